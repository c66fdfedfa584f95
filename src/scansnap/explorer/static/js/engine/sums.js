// Sums in NumPy's order: a plain loop would differ in the last bit of a probability, and with it the draws.

/**
 * NumPy's sum of float64: eight running sums up to 128 numbers, halves of the array beyond.
 * @param {ArrayLike<number>} a
 * @param {number} from
 * @param {number} to
 * @returns {number}
 */
export function sum(a, from = 0, to = a.length) {
  const n = to - from;
  if (n < 8) {
    let total = 0;
    for (let i = from; i < to; i++) total += a[i];
    return total;
  }
  if (n > 128) {
    const half = Math.floor(n / 2), middle = from + half - (half % 8);
    return sum(a, from, middle) + sum(a, middle, to);
  }
  const r = [0, 1, 2, 3, 4, 5, 6, 7].map((j) => a[from + j]), last = to - (n % 8);
  for (let i = from + 8; i < last; i += 8) for (let j = 0; j < 8; j++) r[j] += a[i + j];
  let total = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (let i = last; i < to; i++) total += a[i];
  return total;
}

/**
 * The whole numbers from `first` on.
 * @param {number} length
 * @param {number} first
 */
export const range = (length, first = 0) => Array.from({ length }, (_, i) => first + i);

// Sums and exponentials with the same bits as Python's: another last bit of a probability changes the draws.

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

// e^x for x ≤ 0, operation by operation as in kernels/cpu/sampling.c. Math.exp may differ in the last bit, and is slower.

const POWERS = Float64Array.from({ length: 1100 }, (_, i) => 2 ** (i - 1074)); // 2^-1074 … 2^25

/**
 * e^{n ln 2 + r} with a series in r, |r| ≤ ln 2 / 2; 0 below e^-700.
 * @param {number} x
 */
export function exponential(x) {
  if (!(x > -700)) return x <= -700 ? 0 : NaN;
  const n = (x * 1.4426950408889634 + 6755399441055744) - 6755399441055744; // adding 1.5 · 2^52 rounds to an integer
  const r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10, q = r * r;
  let even = q * (1 / 479001600) + 1 / 3628800, odd = q * (1 / 6227020800) + 1 / 39916800;
  even = even * q + 1 / 40320;
  odd = odd * q + 1 / 362880;
  even = even * q + 1 / 720;
  odd = odd * q + 1 / 5040;
  even = even * q + 1 / 24;
  odd = odd * q + 1 / 120;
  even = even * q + 0.5;
  odd = odd * q + 1 / 6;
  return (1 + (r + (even + odd * r) * q)) * POWERS[n + 1074];
}

// How numbers read.

/**
 * Three figures, no noise: 0.0123, 1.5, 12 300, 3.1e-7.
 * @param {unknown} x
 * @returns {string}
 */
export function short(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === "inf" || x === Infinity) return "∞";
  if (typeof x !== "number") return String(x);
  const a = Math.abs(x);
  if (a === 0) return "0";
  if (a >= 1e7 || a < 1e-4) return x.toExponential(1).replace("e+", "e").replace("-", "−").replace("e-", "e−");
  if (a >= 1000) return whole(Math.round(x));
  return String(Number(x.toPrecision(3))).replace("-", "−");
}

/**
 * 12345 as 12 345 (with thin spaces).
 * @param {number} n
 */
export function whole(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009").replace("-", "−");
}

/**
 * Ticks at round numbers between 0 and `top`, about `n` of them.
 * @param {number} top
 */
export function ticks(top, n = 4) {
  if (!(top > 0)) return [0];
  const raw = top / n, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5].map((m) => m * power).find((s) => s >= raw) ?? 10 * power;
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

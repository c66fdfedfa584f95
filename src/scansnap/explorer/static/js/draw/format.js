// How numbers read.

const ROUNDING = 1e-12; // what float64 leaves of a zero after some thousand steps
/** @type {Record<string, string>} */
const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/**
 * Three figures, no noise: 0.0123, 1.5, 12 300, 3.1 · 10⁻⁷; ≈ 0 where only rounding is left.
 * @param {unknown} x
 * @returns {string}
 */
export function short(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === "inf" || x === Infinity) return "∞";
  if (typeof x !== "number") return String(x);
  const a = Math.abs(x);
  if (a === 0) return "0";
  if (a < ROUNDING) return "≈ 0";
  if (a >= 1e7 || a < 1e-4) {
    const [figures, power] = x.toExponential(1).split("e"), raised = [...power].map((d) => RAISED[d] ?? "").join("");
    return a === Number(`1e${power}`) ? `${x < 0 ? "−" : ""}10${raised}` : `${figures.replace("-", "−")}·10${raised}`;
  }
  if (a >= 1000) return whole(Math.round(x));
  return String(Number(x.toPrecision(3))).replace("-", "−");
}

/**
 * 12345 as 12 345, with narrow spaces that do not break a line.
 * @param {number} n
 */
export function whole(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f").replace("-", "−");
}

/**
 * Round numbers from `low` to `high`, about `n` of them.
 * @param {number} low
 * @param {number} high
 */
export function ticks(low, high, n = 4) {
  if (!(high > low)) return [low];
  const raw = (high - low) / n, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5].map((m) => m * power).find((s) => s >= raw * (1 - 1e-9)) ?? 10 * power;
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/**
 * How a number on an axis reads whose ticks are `step` apart: as many figures as tell neighbours apart.
 * @param {number} x
 * @param {number} step
 */
export function tick(x, step) {
  const most = Math.max(Math.abs(x), step);
  if (x === 0) return "0";
  if (most >= 1e5 || most < 1e-3) return short(x);
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9) + (Number((step / 10 ** Math.floor(Math.log10(step) + 1e-9)).toPrecision(3)) % 1 ? 1 : 0)));
  return digits ? x.toFixed(digits).replace("-", "−") : whole(x);
}

/**
 * From one share to another, with as many figures as tell them apart: 65% → 39%, 24.32% → 24.27%; 65% where it is the same.
 * @param {number} from
 * @param {number} to
 */
export function fromTo(from, to) {
  const text = (/** @type {number} */ v, /** @type {number} */ digits) => `${(100 * v).toFixed(digits)}%`;
  let digits = 0;
  while (digits < 3 && Math.abs(from - to) < 10 ** (-2 - digits)) digits++;
  if (text(from, digits) === text(to, digits)) return text(to, 0);
  return `${text(from, digits)} → ${text(to, digits)}`;
}

/**
 * A probability as a percentage, with as many figures as tell it from 0% and 100%: 4.2%, 64%, 99.998%.
 * @param {number} p
 */
export function percent(p) {
  const rest = Math.min(p, 1 - p), digits = rest <= 0 ? 0 : Math.max(0, Math.min(9, Math.ceil(-Math.log10(rest)) - 1 - (p < 0.5 ? 1 : 2) + 1));
  return `${Number((100 * p).toFixed(p >= 0.1 && p <= 0.9 ? 0 : digits))}%`;
}

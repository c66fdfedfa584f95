// The colours of drawings: those of meanings, which are fixed, and those of the page, which follow its theme.

export const DISTINCT = "#0072B2";
export const COMMON = "#E69F00"; // in every context
export const SEVERAL = "#7F8892";
export const QUERY = "#888888";
export const FLOW = "#009E73";
export const CLOSED = "#D55E00";
export const PINNED = "#C0689A";
export const RESPONSE = "#6F42C1";

/** @typedef {{ink: string, muted: string, line: string, panel: string, faint: string}} Colours */

/**
 * The page's colours as a canvas needs them.
 * @returns {Colours}
 */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return { ink: get("--ink"), muted: get("--muted"), line: get("--line"), panel: get("--panel"), faint: get("--faint") };
}

/**
 * "#RRGGBB" or "rgb(r, g, b)" as three numbers.
 * @param {string} colour
 */
export function rgb(colour) {
  if (colour.startsWith("#")) return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return (colour.match(/\d+(\.\d+)?/g) ?? []).slice(0, 3).map(Number);
}

const light = (/** @type {number} */ v) => (v <= 0.04045 * 255 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);

/**
 * The contrast of two colours, 1 to 21 (WCAG 2: relative luminances).
 * @param {string} a
 * @param {string} b
 */
export function contrast(a, b) {
  const [p, q] = [a, b].map((c) => { const [red, green, blue] = rgb(c).map(light); return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05; });
  return Math.max(p, q) / Math.min(p, q);
}

/**
 * Between two colours, `x` of the way.
 * @param {string} from
 * @param {string} to
 * @param {number} x
 */
export function between(from, to, x) {
  const b = rgb(to);
  return `#${rgb(from).map((v, i) => Math.round(v + (b[i] - v) * x).toString(16).padStart(2, "0")).join("")}`;
}

// Contrast of a thin line to its ground: 3 is what graphics need (WCAG 2); on a dark ground antialiasing, which mixes in
// sRGB, takes much of it away again.
const LEAST = { light: 3, dark: 4.5 };

/**
 * The colour of a thin line: the meaning's own, turned towards the ink until it stands out from the panel.
 * @param {string} colour
 * @param {Colours} c
 */
export function legible(colour, { ink, panel }) {
  const least = contrast(panel, "#ffffff") < contrast(panel, "#000000") ? LEAST.light : LEAST.dark;
  let x = 0;
  while (x < 1 && contrast(between(colour, ink, x), panel) < least) x += 0.02;
  return between(colour, ink, x);
}

/**
 * The ink, faded towards the panel as far as one may: for what is behind the rest.
 * @param {Colours} c
 */
export function faint({ ink, panel }) {
  let x = 1;
  while (x > 0 && contrast(between(ink, panel, x), panel) < 3) x -= 0.02;
  return between(ink, panel, x);
}

/**
 * A table of 256 colours from `a` to `b` as packed little-endian RGBA, rising faster at the start.
 * @param {string} a
 * @param {string} b
 */
export function ramp(a, b, power = 0.6) {
  const from = rgb(a), to = rgb(b), out = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const x = (i / 255) ** power;
    const [red, green, blue] = from.map((f, j) => Math.round(f + (to[j] - f) * x));
    out[i] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return out;
}

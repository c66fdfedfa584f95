// The colours of drawings: those of meanings, which are fixed, and those of the page, which follow its theme.

export const DISTINCT = "#0072B2";
export const COMMON = "#E69F00";
export const QUERY = "#888888";
export const FLOW = "#009E73";
export const CLOSED = "#D55E00";
export const PINNED = "#CC79A7";

/** @typedef {{ink: string, muted: string, line: string, panel: string, faint: string}} Colours */

/**
 * The page's colours as canvas and plotly need them.
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

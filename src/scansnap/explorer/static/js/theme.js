// Light and dark: what the system wishes, unless the user chose; the colours drawings use.

import { $ } from "./dom.js";
import { emit } from "./app.js";

export const DISTINCT = "#0072B2", COMMON = "#E69F00", FLOW = "#009E73", CLOSED = "#D55E00", PINNED = "#CC79A7";

const system = window.matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
try { chosen = localStorage.getItem("scansnap-theme"); } catch { /* storage may be off */ }

export const dark = () => (chosen ? chosen === "dark" : system.matches);

/** The page's colours as canvas and plotly need them. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return { ink: get("--ink"), muted: get("--muted"), line: get("--line"), panel: get("--panel"), faint: get("--faint") };
}

function apply() {
  document.documentElement.dataset.theme = dark() ? "dark" : "light";
  emit("theme");
}

export function toggle() {
  chosen = dark() ? "light" : "dark";
  try { localStorage.setItem("scansnap-theme", chosen); } catch { /* storage may be off */ }
  apply();
}

export function start() {
  system.addEventListener("change", apply);
  $("theme").addEventListener("click", toggle);
  apply();
}

/** "#RRGGBB" or "rgb(r, g, b)" as three numbers. */
export function rgb(colour) {
  if (colour.startsWith("#")) return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return colour.match(/\d+(\.\d+)?/g).slice(0, 3).map(Number);
}

/** A table of 256 colours from `a` to `b` as packed little-endian RGBA, rising faster at the start. */
export function ramp(a, b, power = 0.6) {
  const from = rgb(a), to = rgb(b), out = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const x = (i / 255) ** power;
    const [red, green, blue] = from.map((f, j) => Math.round(f + (to[j] - f) * x));
    out[i] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return out;
}

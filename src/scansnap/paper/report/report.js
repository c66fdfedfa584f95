// Marks the current section, folds the contents on small screens, enlarges drawings, and draws points.

import { embedded, figure, get } from "../../html/base.js";

/**
 * Behind a finding: rows of values, half widths and names of the rows, which side of the margin agrees.
 * @typedef {{v: (number | null)[][], h: (number | null)[], c: string[], w: string, m: number}} Points
 */

const SVG = "http://www.w3.org/2000/svg";
/** Where a statement holds, as signs of the margin: from the first to the second edge. @type {Record<string, [number, number]>} */
const SIDES = { "rises": [1, Infinity], "falls": [-Infinity, -1], "does not rise": [-Infinity, 1], "does not fall": [-1, Infinity], "level": [-1, 1] };

/** @param {Node} parent @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
function add(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
}

const contents = get(".contents details", HTMLDetailsElement);
const narrow = matchMedia("(max-width: 71.99rem)");
const fold = () => { contents.open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();
contents.addEventListener("click", (event) => {
  if (narrow.matches && event.target instanceof Element && event.target.closest("a")) contents.open = false;
});
contents.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !narrow.matches) return;
  contents.open = false;
  get("summary", HTMLElement, contents).focus();
});

// on a phone a drawing fits the screen; the button makes it large enough to read, in a box that scrolls
for (const picture of document.querySelectorAll(".picture")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "enlarge";
  button.textContent = "Enlarge";
  button.addEventListener("click", () => {
    button.textContent = picture.classList.toggle("large") ? "Fit to the screen" : "Enlarge";
    dispatchEvent(new Event("resize")); // the box scrolls now, or no longer
  });
  picture.after(button);
}

// the current section: the last heading in the upper quarter or above
const links = new Map([...contents.querySelectorAll("a")].map((a) => [a.hash.slice(1), a]));
let due = false;
function mark() {
  due = false;
  const here = [...links.keys()].filter((id) => (document.getElementById(id)?.getBoundingClientRect().top ?? Infinity) < innerHeight / 4).pop();
  for (const [id, a] of links) {
    if (id === here) a.setAttribute("aria-current", "location"); else a.removeAttribute("aria-current");
  }
}
addEventListener("scroll", () => { if (!due) { due = true; requestAnimationFrame(mark); } }, { passive: true });
mark();

// the points behind a finding
/** @type {Record<string, Points>} */
const data = embedded();
const box = get("#points", HTMLElement);
/** @type {Element | null} */
let shown = null;

/** @param {number} x */
const number = (x) => (x && Math.abs(x) < 1e-3 ? x.toExponential(1).replaceAll("-", "−") : figure(x));

/** η_Y with its index below. @param {Node} parent @param {string} text */
function label(parent, text) {
  for (const [i, part] of text.split(/_(\w+)/).entries()) {
    if (i % 2) add(parent, "tspan", { "dy": 2, "font-size": 8 }, part);
    else if (part) add(parent, "tspan", i ? { "dy": -2 } : {}, part);
  }
}

/** Rows of dots with mean and interval; green where the statement holds. @param {Points} points */
function strip({ v, h, c, w, m }) {
  const longest = Math.max(0, ...c.map((name) => name.length)), step = v.length > 32 ? 4 : v.length > 16 ? 6 : 15, named = longest > 0 && step > 10;
  const left = named ? Math.min(200, 16 + 5.6 * longest) : 8, right = 392, top = 6, bottom = top + v.length * step;
  const rows = v.map((row, i) => {
    const seen = row.filter((x) => x !== null);
    return { seen, mean: seen.reduce((a, b) => a + b, 0) / seen.length, half: h[i] ?? 0 };
  });
  const ends = rows.filter((row) => row.seen.length).flatMap(({ seen, mean, half }) => [...seen, mean - half, mean + half]);
  const side = SIDES[w], edges = (side ?? []).filter(Number.isFinite).map((sign) => sign * m);
  const low = Math.min(...ends, ...edges), high = Math.max(...ends, ...edges), pad = (high - low || Math.abs(high) || 1) / 20;
  /** @param {number} value */
  const x = (value) => Math.max(left, Math.min(right, left + ((value - low + pad) / (high - low + 2 * pad)) * (right - left)));
  const svg = add(document.createDocumentFragment(), "svg", { "viewBox": `0 0 400 ${bottom + 18}`, "aria-hidden": "true" });
  if (side) {
    const [from, to] = side.map((sign) => x(Number.isFinite(sign) ? sign * m : sign));
    add(svg, "rect", { "class": "side", "x": from, "width": Math.max(0, to - from), "y": 0, "height": bottom + 4 });
  }
  for (const edge of edges) add(svg, "line", { "class": "zero", "x1": x(edge), "x2": x(edge), "y1": 0, "y2": bottom + 4 });
  rows.forEach(({ seen, mean, half }, i) => {
    const y = top + (i + 0.5) * step;
    if (named) label(add(svg, "text", { "x": left - 6, "y": y + 3, "text-anchor": "end", ...(c[i].length > 34 ? { "textLength": left - 8, "lengthAdjust": "spacingAndGlyphs" } : {}) }), c[i]);
    for (const value of seen) add(svg, "circle", { "cx": x(value), "cy": y, "r": step > 10 ? 2.6 : 1.6 });
    if (half) add(svg, "line", { "class": "mean", "x1": x(mean - half), "x2": x(mean + half), "y1": y, "y2": y });
    if (half) add(svg, "line", { "class": "mean", "x1": x(mean), "x2": x(mean), "y1": y - step / 5, "y2": y + step / 5 });
  });
  add(svg, "text", { "x": left, "y": bottom + 14, "text-anchor": "start" }, number(low));
  add(svg, "text", { "x": right, "y": bottom + 14, "text-anchor": "end" }, number(high));
  if (side && x(0) > left + 50 && x(0) < right - 50) add(svg, "text", { "x": x(0), "y": bottom + 14, "text-anchor": "middle" }, "0");
  return svg;
}

/** @param {number} n @param {string} word */
const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** @param {Points} points */
function explanation({ v, h, c, w }) {
  const most = Math.max(...v.map((row) => row.length));
  if (w && h.some((half) => half !== 0)) return `${many(v.length, "case")}, a dot for each of ${many(most, "seed")}: the difference tested; mean and 95% interval. Green: “${w}”.`;
  return c.length ? "What was measured in each case; no noise." : `${many(most, "value")}, one for each case; no noise.`;
}

function hide() {
  shown = null;
  box.hidden = true;
}

/** @param {HTMLElement} button */
function show(button) {
  if (shown === button) return;
  shown = button;
  const points = data[button.dataset.points ?? ""], words = document.createElement("p");
  words.textContent = explanation(points);
  box.replaceChildren(words, strip(points));
  box.hidden = false;
  const at = button.getBoundingClientRect(), size = box.getBoundingClientRect();
  const below = at.bottom + size.height + 12 < innerHeight || at.top < size.height + 12;
  const origin = (box.offsetParent ?? document.body).getBoundingClientRect();
  box.style.left = `${-origin.left + Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8))}px`;
  box.style.top = `${-origin.top + (below ? at.bottom + 6 : at.top - size.height - 6)}px`;
}

for (const button of document.querySelectorAll("button[data-points]")) {
  if (!(button instanceof HTMLElement)) continue;
  for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => show(button));
  button.addEventListener("mouseleave", () => { if (document.activeElement !== button) hide(); });
  button.addEventListener("blur", hide);
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

export {}; // a module: its names are its own

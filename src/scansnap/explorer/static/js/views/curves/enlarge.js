// One plot of curves, large: to zoom with the mouse, the wheel or the keyboard, and to save.

import { h } from "../../page/dom.js";
import { app, on } from "../../app.js";
import { EDGE, HIGH, caption, settings } from "../../draw/caption.js";
import { colours } from "../../draw/colours.js";
import { CanvasPen, SvgPen, penFor, unit } from "../../draw/pen.js";
import { areaOf, drawPlot, nearest } from "../../draw/plot.js";
import { modal, tip } from "../../page/popup.js";
import { describe, figure } from "./traces.js";

/** @import { Figure } from "../../draw/plot.js" */
/** @import { View } from "./traces.js" */
/** @typedef {[number, number]} Range */
/** @typedef {{x: Range, y: Range}} Zoom */

const POINTS = 1000;
const LEAST = 1e-4; // of an axis, as far as one may zoom in

/**
 * A range around the place `at` of it, by a factor smaller or larger, within `all`.
 * @type {(range: Range, by: number, at: number, all: Range) => Range}
 */
function scaled([low, high], by, at, all) {
  const wide = Math.min(all[1] - all[0], Math.max(LEAST * (all[1] - all[0]), (high - low) * by)), middle = low + at * (high - low);
  return within([middle - at * wide, middle + (1 - at) * wide], all);
}

/** @type {(range: Range, all: Range) => Range} */
function within([low, high], all) {
  const by = Math.max(0, all[0] - low) - Math.max(0, high - all[1]);
  return [low + by, high + by];
}

/**
 * @param {View} view
 * @param {string} title
 * @param {(format: "png" | "svg", zoom: Zoom | null) => void} save
 */
export function enlarge(view, title, save) {
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": `${title} over steps. Plus and minus zoom, arrow keys move, 0 shows everything.` }), frame = h("i", { class: "zoomframe", hidden: true });
  const box = h("div", { class: "large canvas" }, canvas, frame);
  /** @type {Zoom | null} */
  let zoom = null;
  /** @type {Figure} */
  let drawn;
  /** @type {[number, number] | null} */
  let from = null; // where a drag began
  const whole = () => { const { x, y } = figureOf(null); return { x: x.range, y: y.range }; };
  const size = () => ({ width: box.clientWidth / unit(), height: box.clientHeight / unit() });
  const figureOf = (/** @type {Zoom | null} */ of) => figure(view, { points: POINTS, titles: true, zoom: of, size: 12, ...size() });
  const draw = () => { if (!box.clientWidth) return; drawn = figureOf(zoom); box.dataset.zoomed = String(zoom !== null); drawPlot(penFor(canvas, box), drawn, colours()); };
  const set = (/** @type {Zoom | null} */ to) => { zoom = to; draw(); };
  const place = (/** @type {MouseEvent} */ e) => { const b = canvas.getBoundingClientRect(), u = unit(); return /** @type {[number, number]} */ ([(e.clientX - b.left) / u, (e.clientY - b.top) / u]); };
  /** Shares of the axes, from left and from below. @type {(at: [number, number]) => [number, number]} */
  const share = ([x, y]) => { const a = areaOf(drawn, size()); return [Math.max(0, Math.min(1, (x - a.x) / a.w)), Math.max(0, Math.min(1, 1 - (y - a.y) / a.h))]; };
  const by = (/** @type {number} */ factor, /** @type {[number, number]} */ at = [0.5, 0.5]) => {
    const all = whole(), now = zoom ?? all, next = { x: scaled(now.x, factor, at[0], all.x), y: scaled(now.y, factor, at[1], all.y) };
    set(next.x[1] - next.x[0] >= all.x[1] - all.x[0] - 1e-12 ? null : next);
  };
  const move = (/** @type {number} */ dx, /** @type {number} */ dy) => {
    if (!zoom) return;
    const all = whole(), moved = (/** @type {Range} */ r, /** @type {number} */ d, /** @type {Range} */ a) => within([r[0] + d * (r[1] - r[0]), r[1] + d * (r[1] - r[0])], a);
    set({ x: moved(zoom.x, dx, all.x), y: moved(zoom.y, dy, all.y) });
  };
  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act, id = "") => h("button", { type: "button", "aria-label": label, title: label, onclick: act, id }, text);
  const dialog = modal(title, box, [
    button("+", "Zoom in", () => by(0.5), "zoom-in"), button("−", "Zoom out", () => by(2), "zoom-out"), button("All", "Show everything", () => set(null), "zoom-all"), h("span", { class: "spread" }),
    button("PNG", "Save as PNG", () => save("png", zoom)), button("SVG", "Save as SVG", () => save("svg", zoom))]);
  dialog.classList.add("wide");
  draw();
  const resized = new ResizeObserver(draw);
  resized.observe(box);
  dialog.addEventListener("close", () => { resized.disconnect(); tip.hide(); });
  on("theme", () => { if (dialog.open) draw(); });
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); by(e.deltaY > 0 ? 1.25 : 0.8, share(place(e))); }, { passive: false });
  canvas.addEventListener("dblclick", () => set(null));
  canvas.addEventListener("pointerdown", (e) => { if (e.button) return; from = place(e); canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    const at = place(e);
    if (from) {
      const u = unit();
      frame.hidden = Math.abs(at[0] - from[0]) < 4 && Math.abs(at[1] - from[1]) < 4;
      Object.assign(frame.style, { left: `${u * Math.min(at[0], from[0])}px`, top: `${u * Math.min(at[1], from[1])}px`, width: `${u * Math.abs(at[0] - from[0])}px`, height: `${u * Math.abs(at[1] - from[1])}px` });
      return tip.hide();
    }
    const point = nearest(drawn, size(), ...at);
    if (!point) return tip.hide();
    const { title: what, sub, lines } = describe(point, view);
    tip.show(e, what, sub, lines);
  });
  canvas.addEventListener("pointerup", (e) => {
    const begun = from, to = place(e);
    from = null;
    if (frame.hidden || !begun) return;
    frame.hidden = true;
    const now = zoom ?? whole(), [a, b] = [share(begun), share(to)];
    const part = (/** @type {Range} */ r, /** @type {number} */ i) => /** @type {Range} */ ([Math.min(a[i], b[i]), Math.max(a[i], b[i])].map((s) => r[0] + s * (r[1] - r[0])));
    if (Math.abs(a[0] - b[0]) > 0.01 && Math.abs(a[1] - b[1]) > 0.01) set({ x: part(now.x, 0), y: part(now.y, 1) });
  });
  canvas.addEventListener("pointerleave", tip.hide);
  dialog.addEventListener("keydown", (e) => {
    /** @type {Record<string, () => void>} */
    const acts = { "+": () => by(0.5), "=": () => by(0.5), "-": () => by(2), 0: () => set(null), ArrowLeft: () => move(-0.2, 0), ArrowRight: () => move(0.2, 0), ArrowUp: () => move(0, 0.2), ArrowDown: () => move(0, -0.2) };
    const act = acts[e.key];
    if (!act || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    act();
  });
}

/**
 * A plot as a file: with its title, its legend and the settings of its run.
 * @param {View} view
 * @param {string} title
 * @param {"png" | "svg"} format
 * @param {Zoom | null} zoom
 * @returns {Promise<Blob>}
 */
export async function picture(view, title, format, zoom = null) {
  if (!app.film) throw new Error("There is no run to draw.");
  const c = colours(), size = { width: 900, height: 600 }, canvas = document.createElement("canvas");
  const pen = format === "svg" ? new SvgPen(size.width, size.height, c.panel) : new CanvasPen(canvas, size.width, size.height, 2);
  if (format === "png") pen.rect(0, 0, size.width, size.height, c.panel);
  caption(pen, c, { title, keys: [], settings: settings(app.film) });
  drawPlot(pen, figure(view, { points: POINTS, titles: true, zoom, size: 12, width: size.width - 2 * EDGE, height: size.height - HIGH - EDGE }), c);
  if (pen instanceof SvgPen) return new Blob([pen.toString()], { type: "image/svg+xml" });
  return new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("The picture could not be made."))), "image/png"));
}


// The curve views: drawn in turns so that the bars have their frame rate, and shown up to the step on screen.

import { $, h, maths, saveBlob, throttle } from "../../page/dom.js";
import { app, emit, frameIndex, ghost, on, timeAxis } from "../../app.js";
import { CLOSED, FLOW, PINNED, RESPONSE, colours, faint, legible } from "../../draw/colours.js";
import { name } from "../../draw/film.js";
import { short, whole } from "../../draw/format.js";
import { penFor, unit } from "../../draw/pen.js";
import { areaOf, drawCurves, drawGround, drawMoments, nearest } from "../../draw/plot.js";
import { tip } from "../../page/popup.js";
import { OVERLAYS, overlayNotes } from "../../compute/predict.js";
import { isMoving } from "../../compute/runner.js";
import { enlarge, picture as pictureOf } from "./enlarge.js";
import { VIEWS, describe, figure } from "./traces.js";

/** @import { Overlay } from "../../compute/predict.js" */
/** @import { Area, Figure } from "../../draw/plot.js" */
/** @import { View } from "./traces.js" */
/** What is drawn in a box, for tests to read. @typedef {HTMLElement & {figure?: Figure}} PlotBox */
/** @typedef {{view: View, box: PlotBox, ground: HTMLCanvasElement, front: HTMLCanvasElement, over: HTMLCanvasElement, cursor: HTMLElement, dirty: boolean, area: Area | null, end: number}} Plot */

/** Which views of the tour a plot belongs to. @type {Record<string, string>} */
const WATCHED = { chi: "growth" };
const panel = $("panel-curves");
/** @type {Map<string, Plot>} */
const plots = new Map();
let next = 0, free = 0, hidden = false, moved = false;

const soil = () => { for (const p of plots.values()) p.dirty = true; };

export function start() {
  const grid = h("div", { class: "plots" });
  for (const view of VIEWS) {
    const [ground, front, over] = ["ground", "front", "over"].map((layer) => h("canvas", { class: layer, "aria-hidden": "true" }));
    const box = h("div", { class: "plot", role: "img", "aria-label": `${view.title} over steps` }, ground, front, over), cursor = h("i", { class: "cursor", "aria-hidden": "true" });
    grid.append(h("figure", { class: `view ${view.name} ${["growth", "chi"].includes(view.name) ? "theory" : ""}`, "data-view": WATCHED[view.name] ?? view.name, id: `view-${view.name}` },
      h("figcaption", {}, h("span", {}, maths(view.title.replace("Bₙ", "B_n"))), h("button", { type: "button", class: "icon", "aria-label": `Enlarge ${view.title}`, title: "Enlarge, zoom, save", onclick: () => enlarge(view, titleOf(view), (format, zoom) => save(view, format, zoom)) }, "⤢")),
      h("div", { class: "plotbox" }, box, cursor)));
    plots.set(view.name, { view, box, ground, front, over, cursor, dirty: true, area: null, end: 1 });
    box.addEventListener("pointermove", (e) => hover(e, /** @type {Plot} */ (plots.get(view.name))));
    box.addEventListener("pointerleave", tip.hide);
  }
  panel.append(grid, h("div", { class: "options theory" }, option("flow", "infinite-data limit"), option("theory", "the paper's formula"), option("response", "our formula"), sign("run", "run"), sign("ghost", "run before"), sign("pinned", "pinned")), h("p", { class: "note theory", id: "predict-note", role: "status" }));
  on("frames run focus scale pinned ghost flow marks theme options state level", soil);
  on("theme", paint);
  paint();
  on("options run", () => { for (const which of OVERLAYS) /** @type {HTMLInputElement} */ ($(`show-${which}`)).checked = app.options[which]; });
  on("pinned ghost run", () => { for (const [id, is] of /** @type {const} */ ([["pinned", app.pinned], ["ghost", ghost()]])) $(`option-${id}`).style.visibility = is ? "visible" : "hidden"; });
  on("run focus", () => { // logits belong to a query
    if (!app.film) return;
    const { layout, classes } = app.film.run, title = $("view-z").querySelector("span");
    if (title) title.textContent = `Logits z of query ${name(classes, layout.queries[layout.class_query[Math.max(0, app.focus)]])}`;
  });
  on("flow run options marks", () => ($("predict-note").textContent = overlayNotes()));
  on("frames run cursor", () => { moved = true; say(); });
  new ResizeObserver(soil).observe(panel);
}

/**
 * @param {Overlay} which
 * @param {string} text
 */
function option(which, text) {
  const input = h("input", { type: "checkbox", id: `show-${which}`, checked: app.options[which], onchange: () => { app.options[which] = app.chosen[which] = input.checked; emit("options"); } });
  return h("label", { class: `option ${which}` }, input, h("i", { "aria-hidden": "true" }), text);
}

const sign = (/** @type {string} */ which, /** @type {string} */ text) => h("span", { class: `option ${which}`, id: `option-${which}`, style: which === "run" ? "" : "visibility: hidden" }, h("i", { "aria-hidden": "true" }), text);

/** The signs of the lines in the colours of the lines. */
function paint() {
  const c = colours();
  /** @type {Record<string, string>} */
  const lines = { flow: legible(FLOW, c), theory: legible(CLOSED, c), response: legible(RESPONSE, c), pinned: legible(PINNED, c), ghost: faint(c) };
  for (const [which, colour] of Object.entries(lines)) { const i = /** @type {HTMLElement | null} */ (panel.querySelector(`.option.${which} i`)); if (i) i.style.borderTopColor = colour; }
}

/** @param {boolean} is */
export function visible(is) {
  hidden = !is;
  if (is) { moved = true; soil(); }
}

/**
 * Called on every animation frame: draws one plot when its turn has come.
 * @param {number} now
 */
export function frame(now) {
  if (!hidden && moved) { moved = false; for (const p of plots.values()) reveal(p); }
  if (hidden || !app.film?.length || now < free) return;
  const list = [...plots.values()];
  for (let i = 0; i < list.length; i++) {
    const p = list[(next + i) % list.length];
    if (!p.dirty) continue;
    next = (next + i + 1) % list.length;
    const begun = performance.now();
    draw(p);
    const cost = performance.now() - begun;
    free = now + (isMoving() ? Math.max(60, 7 * cost) : 0);
    return;
  }
}

/** @param {Plot} p */
function draw(p) {
  const { box, ground, front, over, view } = p;
  if (box.clientWidth < 40 || box.clientHeight < 40) return;
  p.dirty = false;
  const c = colours(), pen = penFor(ground, box);
  const plotted = figure(view, { points: isMoving() ? 150 : 400, size: 10, width: pen.width, height: pen.height });
  drawGround(pen, plotted, c);
  drawCurves(penFor(front, box), plotted);
  drawMoments(penFor(over, box), plotted, c);
  box.figure = plotted;
  p.area = areaOf(plotted, pen);
  p.end = plotted.x.range[1];
  reveal(p);
}

/**
 * Shows the curves up to the step on screen, and a thin line there. Nothing is drawn for it.
 * @param {Plot} p
 */
function reveal({ front, cursor, box, area, end }) {
  const i = frameIndex();
  if (!area || i < 0 || !app.film) return;
  const x = unit() * (area.x + Math.min(1, timeAxis(app.film.steps[i]) / end) * area.w), at = `translateX(${x.toFixed(1)}px)`;
  const cut = `inset(0px ${Math.max(0, box.clientWidth - x - 1.5).toFixed(1)}px 0px 0px)`;
  if (cursor.style.transform !== at) cursor.style.transform = at;
  if (front.style.clipPath !== cut) front.style.clipPath = cut;
}

const say = throttle(() => {
  const film = app.film, i = frameIndex();
  if (!film || i < 0 || hidden) return;
  for (const { view, box } of plots.values()) {
    if (view.name === "z") continue;
    const v = app.focus >= 0 && view.name !== "loss" ? film.value(view.field, i, app.focus) : film.mean(view.field, i);
    box.setAttribute("aria-label", `${view.title} over steps: ${short(v)} at step ${whole(film.steps[i])}`);
  }
}, 1000);

/**
 * @param {MouseEvent} event
 * @param {Plot} p
 */
function hover(event, { box, view }) {
  const i = frameIndex(), b = box.getBoundingClientRect(), u = unit();
  const point = box.figure && i >= 0 && app.film ? nearest(box.figure, { width: b.width / u, height: b.height / u }, (event.clientX - b.left) / u, (event.clientY - b.top) / u, app.film.steps[i]) : null;
  if (!point) return tip.hide();
  const { title, sub, lines } = describe(point, view);
  tip.show(event, title, sub, lines);
}

const titleOf = (/** @type {View} */ view) => (view.name === "z" && $("view-z").querySelector("figcaption span")?.textContent) || view.title;

/**
 * @param {View} view
 * @param {"png" | "svg"} format
 * @param {import("./enlarge.js").Zoom | null} zoom
 */
async function save(view, format, zoom) {
  saveBlob(await pictureOf(view, titleOf(view), format, zoom), `scansnap-${view.name}.${format}`);
}

/**
 * @param {string} which
 * @param {"png" | "svg"} format
 */
export async function picture(which, format) {
  const view = VIEWS.find((v) => v.name === which);
  if (!view) throw new Error(`There is no view ${which}.`);
  return pictureOf(view, titleOf(view), format);
}

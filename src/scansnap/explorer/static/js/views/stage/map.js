// The map of the rates: 9 × 9 whole runs of the set-up on screen, and a dot that is moved to change the rates.

import * as api from "../../compute/api.js";
import { isAbort } from "../../compute/engine.js";
import { $, debounce, errorMessage, h, maths } from "../../page/dom.js";
import { app, emit, on } from "../../app.js";
import { COMMON, DISTINCT, colours, rgb } from "../../draw/colours.js";
import { short, whole } from "../../draw/format.js";
import { penFor } from "../../draw/pen.js";
import { tip } from "../../page/popup.js";
import * as runner from "../../compute/runner.js";
import { matching } from "../panels/setup.js";

/** @import { ControlSpec, RateMap } from "../../messages.js" */
/** @import { Pen } from "../../draw/pen.js" */

const SIDE = 9;
/** @type {HTMLDetailsElement} */
const details = $("map");
const canvas = h("canvas", { role: "img", "aria-label": "Map of the rates; its cells follow as a table" }), cells = h("table", { id: "map-cells" });
const dot = h("i", { class: "dot", role: "slider", tabindex: 0, id: "map-dot", "aria-label": "Rates on the map: up and down η_Y, left and right η_Z", "aria-valuemin": 0, "aria-valuemax": SIDE * SIDE - 1 });
const box = h("div", { class: "mapbox" }, canvas, dot), reading = h("p", { class: "reading", id: "map-reading", role: "status" }), note = h("p", { class: "note", id: "map-note", role: "status" });
/** @type {RateMap | null} */
let map = null;
/** @type {AbortController | null} */
let request = null;
let key = "", dragging = false;

const low = (/** @type {"eta_y" | "eta_z"} */ name) => Math.log(Number(control(name)?.low ?? 0.01));
const span = (/** @type {"eta_y" | "eta_z"} */ name) => Math.log(Number(control(name)?.high ?? 100)) - low(name);
/** @type {(name: string) => ControlSpec | undefined} */
const control = (name) => app.catalogue?.controls.find((c) => c.name === name);

/**
 * Where a rate lies among the nine, from 0 to 8; outside it lies on the edge.
 * @param {"eta_y" | "eta_z"} name
 */
function place(name) {
  const now = Number(app.setup?.[name]);
  return Math.max(0, Math.min(SIDE - 1, now > 0 ? ((SIDE - 1) * (Math.log(now) - low(name))) / span(name) : 0));
}

/**
 * The rate at a place, with as many digits as the slider beside it has.
 * @param {"eta_y" | "eta_z"} name
 * @param {number} at
 */
function rate(name, at) {
  const x = Math.exp(low(name) + (Math.max(0, Math.min(SIDE - 1, at)) / (SIDE - 1)) * span(name));
  return Number(x.toPrecision(x < 1 ? 2 : 3));
}

/**
 * New rates; `isDragging`: the dot is still being dragged.
 * @param {number} row
 * @param {number} column
 */
function move(row, column, isDragging = false) {
  if (!app.film || !app.setup) return;
  app.setup = { ...app.setup, eta_y: rate("eta_y", row), eta_z: rate("eta_z", column) };
  app.preset = matching();
  runner.rates(isDragging);
  emit("setup-shown");
  emit("setup");
}

/**
 * Row and column under the mouse.
 * @param {MouseEvent} event
 * @returns {[number, number]}
 */
function where(event) {
  const b = box.getBoundingClientRect();
  return [SIDE - 0.5 - (SIDE * (event.clientY - b.top)) / b.height, (SIDE * (event.clientX - b.left)) / b.width - 0.5];
}

/** @param {PointerEvent} event */
function drag(event) {
  const [row, column] = where(event);
  if (dragging) return move(row, column, true);
  const i = Math.round(row), j = Math.round(column), share = map?.share[i]?.[j];
  if (!map || share === undefined) return tip.hide();
  tip.show(event, cell(i, j), `η_Y ${short(map.eta_y[i])}, η_Z ${short(map.eta_z[j])}`, []);
}

/** @param {KeyboardEvent} event */
function keyed(event) {
  /** @type {Record<string, [number, number]>} */
  const ways = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
  const way = ways[event.key];
  if (!way) return;
  event.preventDefault();
  const part = event.shiftKey ? 8 : 1; // a cell, or an eighth of one
  const next = (/** @type {number} */ at, /** @type {number} */ by) => (by > 0 ? Math.floor(at * part + 1.001) : by < 0 ? Math.ceil(at * part - 1.001) : at * part) / part;
  move(next(place("eta_y"), way[0]), next(place("eta_z"), way[1]));
}

/**
 * What a cell says.
 * @param {number} i
 * @param {number} j
 */
function cell(i, j) {
  const share = map?.share[i][j], failed = map?.failed_step[i][j];
  if (typeof failed === "number") return `diverged at step ${whole(failed)}`;
  return typeof share === "number" ? `${Math.round(100 * share)}% on common tokens` : "not known";
}

/** The share of attention on common tokens where the film on screen ends, weighted as in the map. */
function endShare() {
  const film = app.film, i = (film?.length ?? 0) - 1;
  if (!film || i < 0) return NaN;
  let sum = 0, weight = 0;
  film.run.classes.classes.forEach((c, k) => {
    const values = film.attention(i, k);
    film.run.layout.tokens[k].forEach((token, j) => { if (film.kind(k, token) === "common") sum += c.p_class * values[j]; });
    weight += c.p_class;
  });
  return sum / weight;
}

/** The dot and its description. */
function show() {
  if (!app.setup || !details.open) return;
  const row = place("eta_y"), column = place("eta_z"), { eta_y, eta_z } = app.setup;
  dot.style.left = `${(100 * (column + 0.5)) / SIDE}%`;
  dot.style.bottom = `${(100 * (row + 0.5)) / SIDE}%`;
  const outside = [["eta_y", eta_y], ["eta_z", eta_z]].some(([name, v]) => { const c = control(name); return !c || !(v >= Number(c.low) && v <= Number(c.high)); });
  dot.classList.toggle("outside", outside);
  const near = map ? `nearest cell ${cell(Math.round(row), Math.round(column))}` : "";
  const own = app.state.state === "done" && !dragging ? `${Math.round(100 * endShare())}% on common tokens at step ${whole(app.film?.lastStep ?? 0)}` : "";
  reading.replaceChildren(h("b", {}, maths(`η_Y ${short(eta_y)}, η_Z ${short(eta_z)}`)), own ? `: ${own}` : "", outside ? ". Outside of the map." : "");
  dot.setAttribute("aria-valuenow", String(Math.round(row) * SIDE + Math.round(column)));
  dot.setAttribute("aria-valuetext", `η_Y ${short(eta_y)}, η_Z ${short(eta_z)}${own ? `: ${own}` : ""}${near ? `; ${near}` : ""}`);
}

/**
 * Blue where attention ends on distinct tokens, orange on common ones, pale between.
 * @param {number} share
 * @param {string} pale
 */
function colour(share, pale) {
  const x = Math.min(1, Math.abs(2 * share - 1)) ** 0.7, from = rgb(pale), to = rgb(share < 0.5 ? DISTINCT : COMMON);
  return from.map((f, c) => Math.round(f + (to[c] - f) * x));
}

function draw() {
  if (!details.open || !box.clientWidth) return;
  const pen = penFor(canvas, box), c = colours(), w = pen.width / SIDE, hh = pen.height / SIDE;
  pen.rect(0, 0, pen.width, pen.height, c.faint);
  for (let i = 0; i < SIDE; i++) for (let j = 0; j < SIDE; j++) drawCell(pen, i, j, j * w, (SIDE - 1 - i) * hh, w - 1, hh - 1);
}

/** @type {(pen: Pen, i: number, j: number, x: number, y: number, w: number, hh: number) => void} */
function drawCell(pen, i, j, x, y, w, hh) {
  const share = map?.share[i][j], c = colours();
  if (typeof share === "number") {
    const fill = colour(share, c.faint), light = fill[0] * 0.3 + fill[1] * 0.59 + fill[2] * 0.11 > 130;
    pen.rect(x, y, w, hh, `rgb(${fill.join(", ")})`);
    if (w > 16) pen.text(x + w / 2, y + hh / 2 + 3, String(Math.round(100 * share)), { fill: light ? "#1d1f24" : "#ffffff", size: 10, align: "center" });
  } else if (typeof map?.failed_step[i][j] === "number") { // diverged; a cell that is not computed yet stays empty
    pen.rect(x, y, w, hh, c.panel);
    for (let d = 0; d < w + hh; d += 4) pen.line(x + Math.max(0, d - hh), y + Math.min(d, hh), x + Math.min(d, w), y + Math.max(0, d - w), c.muted, 0.8);
  }
}

/** The cells as a table, for those who do not see them. */
function tell() {
  if (!map) return cells.replaceChildren();
  const { eta_y, eta_z } = map;
  cells.replaceChildren(h("caption", {}, "Final attention on common tokens by the rates"),
    h("tr", {}, h("td"), eta_z.map((z) => h("th", { scope: "col" }, `η_Z ${short(z)}`))),
    ...eta_y.map((y, i) => h("tr", {}, h("th", { scope: "row" }, `η_Y ${short(y)}`), eta_z.map((_, j) => h("td", {}, cell(i, j))))));
}

const refresh = debounce(async () => {
  const film = app.film;
  if (!details.open || !film?.length || runner.isRunning() || dragging) return;
  const { eta_y, eta_z, ...rest } = film.run.setup, setup = { ...rest, steps: film.run.steps }, now = JSON.stringify(setup);
  if (now === key) return;
  key = now;
  request?.abort();
  const mine = (request = new AbortController());
  box.classList.add("stale");
  note.textContent = "computing 81 runs";
  try {
    map = await api.rateMap({ ...setup, eta_y, eta_z }, (filled) => {
      if (mine.signal.aborted) return;
      map = filled;
      box.classList.remove("stale");
      note.textContent = `computing 81 runs: ${filled.known} done`;
      draw();
    });
    const { failed_step } = map, failed = failed_step.flat().filter((s) => s !== null).length;
    note.textContent = [failed ? `${failed} hatched: diverged.` : ""].filter(Boolean).join(" ");
  } catch (e) {
    if (isAbort(e) || mine.signal.aborted) return;
    map = null;
    note.textContent = errorMessage(e);
  }
  box.classList.remove("stale");
  tell();
  draw();
  show();
}, 250);

export function start() {
  const tick = (/** @type {string} */ text) => h("span", {}, text);
  const ticks = (/** @type {string} */ side) => ["0.01", "0.1", "1", "10", "100"].map((text, i) => h("span", { style: `${side}: ${(100 * (2 * i + 0.5)) / SIDE}%` }, text));
  details.append(h("div", { class: "mapbody" },
    h("div", { class: "mapaxis y", "aria-hidden": "true" }, ticks("bottom"), h("b", {}, maths("Decoder rate η_Y"))), box, h("div", { class: "mapaxis x", "aria-hidden": "true" }, ticks("left"), h("b", {}, maths("Attention rate η_Z"))),
    h("div", { class: "maptext" }, reading,
      h("p", { class: "explain" }, maths("Each cell is a whole run of this set-up with other rates, η_Y upwards, η_Z to the right. Its number and colour: how much attention ends on common tokens, mean over classes weighted by their probability. Move the dot, with the mouse or with arrow keys, to change the rates.")),
      h("div", { class: "mapscale", "aria-hidden": "true" }, tick("0%"), h("i"), tick("100%")), note)), h("div", { class: "hidden" }, cells));
  details.addEventListener("toggle", () => { draw(); show(); refresh(); });
  box.addEventListener("pointerdown", (e) => {
    if (!app.film || e.button) return;
    dragging = true;
    box.setPointerCapture(e.pointerId);
    dot.focus({ preventScroll: true });
    tip.hide();
    drag(e);
    e.preventDefault();
  });
  box.addEventListener("pointermove", drag);
  box.addEventListener("pointerleave", tip.hide);
  box.addEventListener("lostpointercapture", (e) => { if (dragging) { dragging = false; move(...where(e)); } });
  dot.addEventListener("keydown", keyed);
  on("setup setup-shown run state frames", show);
  on("run state", refresh);
  on("theme", draw);
  new ResizeObserver(draw).observe(box);
  details.open = window.innerHeight >= 1200 && window.innerWidth > 1080;
}

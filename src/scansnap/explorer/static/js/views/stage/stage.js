// The big view: attention now and its history, with the mouse, as a picture to keep, and in words.

import { $, h, maths, throttle } from "../../page/dom.js";
import { app, emit, frameIndex, ghost, on, timeAxis } from "../../app.js";
import { AttentionPainter, barAt, momentAt, otherAttention, pinnedAttention } from "../../draw/attention.js";
import { EDGE, HIGH, attentionKeys, caption, settings } from "../../draw/caption.js";
import { colours } from "../../draw/colours.js";
import { REACH, sameClasses, word } from "../../draw/film.js";
import { short, whole } from "../../draw/format.js";
import { Gif } from "../../draw/gif.js";
import { CanvasPen, SvgPen, context, penFor, unit } from "../../draw/pen.js";
import { tip } from "../../page/popup.js";
import { label } from "./compare.js";
import { TIMES } from "./headline.js";

/** @import { Cell, Scene } from "../../draw/attention.js" */
/** @import { Film } from "../../draw/film.js" */
/** @import { Pen } from "../../draw/pen.js" */

/** @type {HTMLCanvasElement} */
const canvas = $("attention");
const box = $("attention-box");
/** @type {Cell[]} */
let cells = []; // what was drawn where, for the mouse
let painter = new AttentionPainter(colours());
let dirty = true;

const redraw = () => { dirty = true; };

function theme() {
  painter = new AttentionPainter(colours());
  redraw();
}

/**
 * What is on screen: the class in focus or all.
 * @param {Film} film
 * @returns {Scene}
 */
function scene(film) {
  const classes = app.focus >= 0 ? [app.focus] : film.run.classes.classes.map((_, k) => k);
  const overlays = { pinned: app.pinned?.film ?? null, ghost: ghost()?.film ?? null, ideal: flowAttention };
  return { film, index: frameIndex(), classes, axis: timeAxis, ...overlays, movement: app.options.movement ? TIMES : 0 };
}

/**
 * Attention of the flow at a step, in the order of the layout.
 * @param {number} k
 * @param {number} step
 */
function flowAttention(k, step) {
  const flow = app.options.flow ? app.flow : null;
  if (!flow?.attention[k]) return null;
  const i = flow.t.findIndex((t) => t >= step);
  return i < 0 ? null : flow.attention[k].map((series) => Number(series[i]));
}

const describe = throttle(() => {
  if (!app.film?.length) return;
  const { film, index, classes } = scene(app.film);
  const texts = classes.slice(0, 4).map((k) => {
    const values = film.attention(index, k), best = values.indexOf(Math.max(...values)), token = film.run.layout.tokens[k][best];
    return `class ${k} most on ${word(film.run.classes, token)} (${film.kind(k, token)}, ${short(values[best])})`;
  });
  canvas.setAttribute("aria-label", `Attention at step ${film.steps[index]}: ${texts.join("; ")}.`);
}, 1000);

/** Draws if something changed; called on every animation frame. */
export function frame() {
  if (!dirty || !app.film?.length) return;
  dirty = false;
  cells = painter.draw(penFor(canvas, box), scene(app.film));
  describe();
}

/**
 * What is on screen, or another frame, with its title, its legend and the settings of its run.
 * @param {Pen} pen
 */
function drawPicture(pen, index = frameIndex(), by = painter) {
  if (!app.film?.length) return;
  const shown = { ...scene(app.film), index }, keys = attentionKeys(app.film, by.colours, { pinned: app.pinned !== null, flow: app.options.flow && app.flow !== null });
  caption(pen, by.colours, { title: `${shown.movement ? `Movement of attention × ${TIMES}` : "Attention"} at step ${whole(app.film.steps[shown.index])}`, keys, settings: settings(app.film) });
  by.draw(pen, shown);
}

const FRAMES = 48, SECONDS = 5, STAYS = 2, WIDE = 800; // of an animation: how many, of all, of the last one, its width
/**
 * The film as an animated GIF, from step 0 to the last one, evenly on the axis of time.
 * @param {(share: number) => void} progress
 * @returns {Promise<Blob>}
 */
export async function exportGif(progress) {
  const film = app.film;
  if (!film?.length) throw new Error("There is no run to draw.");
  const [w, high] = pictureSize(), scale = WIDE / w, sheet = document.createElement("canvas"), picks = film.pick(FRAMES, timeAxis), own = new AttentionPainter(colours());
  sheet.getContext("2d", { willReadFrequently: true }); // the pen draws with it, too
  const paint = (/** @type {number} */ i) => {
    const pen = new CanvasPen(sheet, w, high, scale);
    pen.rect(0, 0, pen.width, pen.height, own.colours.panel);
    drawPicture(pen, i, own);
    return context(sheet).getImageData(0, 0, sheet.width, sheet.height).data;
  };
  const samples = [0, Math.floor(picks.length / 2), picks.length - 1].map((n) => paint(picks[n]));
  const gif = new Gif(sheet.width, sheet.height, samples);
  for (const [n, i] of picks.entries()) {
    gif.add(paint(i), n === picks.length - 1 ? STAYS : SECONDS / picks.length);
    progress((n + 1) / picks.length);
    await new Promise((done) => setTimeout(done)); // eslint-disable-line no-await-in-loop -- one frame at a time, and the page goes on
  }
  return gif.end();
}

/** @returns {[number, number]} */
const pictureSize = () => [box.clientWidth / unit() + 2 * EDGE, box.clientHeight / unit() + HIGH + EDGE];

export function exportSvg() {
  const pen = new SvgPen(...pictureSize(), painter.colours.panel);
  drawPicture(pen);
  return pen.toString();
}

/** @returns {Promise<Blob | null>} */
export function exportPng() {
  const out = document.createElement("canvas"), pen = new CanvasPen(out, ...pictureSize(), 2 * unit());
  pen.rect(0, 0, pen.width, pen.height, painter.colours.panel);
  drawPicture(pen);
  return new Promise((done) => out.toBlob(done, "image/png"));
}

/**
 * Where the mouse is, in the units of the drawing.
 * @param {MouseEvent} event
 */
function place(event) {
  const b = canvas.getBoundingClientRect(), u = unit();
  return [(event.clientX - b.left) / u, (event.clientY - b.top) / u];
}

/** @param {PointerEvent} event */
function hover(event) {
  const [x, y] = place(event), film = app.film;
  if (!film?.length) return tip.hide();
  const shown = scene(film), hit = barAt(cells, shown, x, y);
  if (!hit) return tip.hide();
  const { k, bar, frame: i } = hit, q = film.run.layout.class_query[k], zj = film.run.layout.query_tokens[q].indexOf(bar.token);
  const lines = [`attention ${short(film.attention(i, k)[bar.j])}, at step 0 ${short(film.attention(0, k)[bar.j])}`];
  if (app.options.movement) lines.push(`moved ${short(film.attention(i, k)[bar.j] - film.attention(0, k)[bar.j])}`);
  if (zj >= 0) lines.push(`z ${short(film.z(i, q)[zj])}`);
  const old = pinnedAttention(shown, k)?.get(bar.token);
  if (old !== undefined) lines.push(`pinned run ${short(old)}`);
  const before = shown.ghost && sameClasses(film, shown.ghost) ? otherAttention({ ...shown, index: i }, shown.ghost, k) : null;
  if (before) lines.push(`run before ${short(before[bar.j])}`);
  tip.show(event, `${word(film.run.classes, bar.token)}, ${REACH[bar.reach]}`, `class ${k}, step ${whole(film.steps[i])}`, lines);
}

/** @param {MouseEvent} event */
function click(event) {
  const [x, y] = place(event), hit = cells.find(({ full: f }) => x >= f.x && x < f.x + f.w && y >= f.y && y < f.y + f.h);
  if (!hit || !app.film) return;
  const over = barAt(cells, scene(app.film), x, y);
  if (over && y >= hit.by && y < hit.my) return emit("bar", { k: hit.k, token: over.bar.token });
  if (y >= hit.my && y <= hit.my + hit.mh && app.focus >= 0) { // a moment in the heat map
    const row = momentAt(hit, app.film, timeAxis, y);
    if (row >= 0) emit("seek", row);
    return;
  }
  emit("focus-wish", app.focus >= 0 ? -1 : hit.k);
}

/** What the thin line over the bars is, where there is one. */
function legend() {
  const el = $("legend-ghost"), { film } = app, before = ghost();
  el.hidden = !film || !before || !sameClasses(film, before.film);
  if (film) { const all = film.reaches(); for (const reach of /** @type {const} */ (["only", "several", "every"])) { const key = /** @type {HTMLElement | null} */ ($("legend").querySelector(`.${reach}`)); if (key) key.hidden = !all.includes(reach); } }
  if (!before) return;
  const alike = JSON.stringify(before.setup) === JSON.stringify(app.setup0); // they differ in changes on the way
  el.title = `Thin line: the run before this one, at the same step. ${alike ? "" : `It had ${label(before.setup, app.setup0 ?? app.setup)}.`}`;
  el.replaceChildren(h("span", {}, alike ? "before the change" : "before: ", alike ? null : maths(label(before.setup, app.setup0 ?? app.setup))));
}

export function start() {
  theme();
  on("theme", theme);
  on("frames cursor focus scale pinned ghost flow run options", redraw);
  on("ghost pinned run", legend);
  new ResizeObserver(redraw).observe(box);
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerleave", tip.hide);
  canvas.addEventListener("click", click);
}

// The decoder table Y as a heat map: rows are context tokens, columns the tokens they vote for.

import { $, h, throttle } from "../../page/dom.js";
import { app, atEdge, frameIndex, on } from "../../app.js";
import { caption, settings } from "../../draw/caption.js";
import { CLOSED, DISTINCT, colours, rgb } from "../../draw/colours.js";
import { short, whole } from "../../draw/format.js";
import { name, word } from "../../draw/film.js";
import { CanvasPen, SvgPen, context, fitting, penFor, unit, widthOf } from "../../draw/pen.js";
import { askTable } from "../../compute/runner.js";
import { tip } from "../../page/popup.js";

/** @import { Pen } from "../../draw/pen.js" */
/** @typedef {{step: number, values: Float32Array}} TableMessage */
/** @typedef {TableMessage & {rows: number, columns: number, rowTokens: Float32Array, columnTokens: Float32Array, y: Float32Array, top: number}} Table */

const LEAST = 1e-12; // what is no vote
const panel = $("panel-y"), picture = document.createElement("canvas");
const canvas = h("canvas", { role: "img", tabindex: 0, id: "y-canvas", "aria-label": "Decoder table Y" });
const box = h("div", { class: "canvas" }, canvas), note = h("p", { class: "explain" }), heading = h("h3", { id: "y-step", role: "status" });
/** @type {Table | null} */
let table = null;
/** @type {{left: number, w: number, hh: number} | null} */
let place = null;
let shown = false, dirty = false;

export function start() {
  panel.append(h("div", { class: "view y", "data-view": "y" }, heading, h("p", { class: "lead" }, "Y[l, j]: how much context token l votes for next token j. Blue votes for, vermilion against."), box, note));
  on("table", take);
  on("frames state run cursor", ask);
  on("cursor frames", () => { if (table) say(table); });
  on("theme", () => { if (table) take(table); });
  new ResizeObserver(() => (dirty = true)).observe(box);
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerleave", tip.hide);
}

/** @param {boolean} is */
export function visible(is) {
  shown = is;
  if (is) ask();
}

/** The step on screen, where it is not the newest one. */
const looking = () => (atEdge() ? undefined : app.film?.steps[frameIndex()]);

const ask = throttle(() => { if (shown && app.film?.length) askTable(128, looking()); }, 250);

/**
 * Which step the table is of, and that it is another one than that on screen where it must be.
 * @param {Table} made
 */
function say({ step }) {
  const shownStep = app.film?.steps[frameIndex()] ?? step;
  heading.textContent = `Decoder Y at step ${whole(step)}${shownStep === step ? "" : `, the nearest kept to step ${whole(shownStep)}`}`;
}

/** @param {TableMessage} message */
function take({ step, values }) {
  const rows = values[0], columns = values[1], y = values.subarray(2 + rows + columns);
  const top = y.reduce((m, v) => Math.max(m, Math.abs(v)), LEAST);
  table = { step, values, rows, columns, rowTokens: values.subarray(2, 2 + rows), columnTokens: values.subarray(2 + rows, 2 + rows + columns), y, top };
  picture.width = columns;
  picture.height = rows;
  const ink = context(picture), image = ink.createImageData(columns, rows), zero = rgb(colours().faint), up = rgb(DISTINCT), down = rgb(CLOSED);
  y.forEach((v, i) => {
    const x = Math.abs(v / top) ** 0.55, to = v > 0 ? up : down;
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = zero[c] + (to[c] - zero[c]) * x;
    image.data[4 * i + 3] = 255;
  });
  ink.putImageData(image, 0, 0);
  say(table);
  note.textContent = `${top > LEAST ? `The strongest vote is ${short(top)}.` : "No votes yet: every entry of Y is 0."} ${rows} rows, ${columns} columns${table.columnTokens.includes(-1) ? "; “other” stands for all tokens that are never next" : ""}.`;
  canvas.setAttribute("aria-label", `Decoder table Y at step ${step}: ${rows} context tokens by ${columns} next tokens, strongest vote ${top > LEAST ? short(top) : 0}`);
  dirty = true;
}

const SMALL = { size: 10 };

/** @param {Pen} pen */
function draw(pen) {
  const c = colours(), bottom = 30, hh = pen.height - bottom, classes = app.film?.run.classes;
  if (!table || !classes) return null;
  const { rows, columns, rowTokens, columnTokens } = table, rowName = (/** @type {number} */ r) => fitting([name(classes, rowTokens[r])], pen.width / 4, SMALL);
  const every = Math.max(1, Math.ceil((12 * rows) / hh)), named = Array.from({ length: Math.ceil(rows / every) }, (_, i) => i * every);
  const left = Math.max(...named.map((r) => widthOf(rowName(r), SMALL))) + 8, w = pen.width - left;
  const columnName = (/** @type {number} */ j) => fitting([columnTokens[j] < 0 ? "other" : name(classes, columnTokens[j])], w / 3, SMALL);
  pen.image(picture, left, 0, w, hh);
  pen.frame(left + 0.5, 0.5, w - 1, hh - 1, c.line);
  for (const r of named) pen.label(left - 5, ((r + 0.5) * hh) / rows + 3.5, rowName(r), { fill: c.muted, ...SMALL, align: "right" });
  const wide = Math.max(...Array.from({ length: columns }, (_, j) => widthOf(columnName(j), SMALL))) + 8, across = Math.max(1, Math.ceil((wide * columns) / w));
  for (let j = 0; j < columns; j += across) pen.label(left + ((j + 0.5) * w) / columns, hh + 13, columnName(j), { fill: c.muted, ...SMALL, align: "center" });
  pen.label(left + w / 2, hh + 27, "next token j", { fill: c.muted, size: 11, align: "center" });
  return { left, w, hh };
}

export function frame() {
  if (!dirty || !shown || !table) return;
  dirty = false;
  place = draw(penFor(canvas, box));
}

/** @param {PointerEvent} event */
function hover(event) {
  if (!place || !table || !app.film) return;
  const b = canvas.getBoundingClientRect(), x = (event.clientX - b.left) / unit() - place.left, y = (event.clientY - b.top) / unit();
  if (x < 0 || x >= place.w || y < 0 || y >= place.hh) return tip.hide();
  const r = Math.floor((y / place.hh) * table.rows), j = Math.floor((x / place.w) * table.columns), from = table.rowTokens[r], to = table.columnTokens[j], { classes } = app.film.run;
  tip.show(event, `${word(classes, from)} → ${to < 0 ? "tokens never next" : word(classes, to)}`, `step ${whole(table.step)}`, [`vote ${short(table.y[r * table.columns + j])}`]);
}

export const has = () => table !== null;

/**
 * The table with its title, its colours and the settings of its run.
 * @param {Pen} pen
 */
function drawPicture(pen) {
  if (!table || !app.film) return;
  const keys = [{ text: "votes for", colour: DISTINCT }, { text: "votes against", colour: CLOSED }];
  caption(pen, colours(), { title: `Decoder Y at step ${whole(table.step)}`, keys, settings: settings(app.film) });
  draw(pen);
}

export function exportSvg() {
  const pen = new SvgPen(640, 610, colours().panel);
  drawPicture(pen);
  return pen.toString();
}

/** @returns {Promise<Blob | null>} */
export function exportPng() {
  const out = document.createElement("canvas"), pen = new CanvasPen(out, 640, 610, 2);
  pen.rect(0, 0, 640, 610, colours().panel);
  drawPicture(pen);
  return new Promise((done) => out.toBlob(done, "image/png"));
}

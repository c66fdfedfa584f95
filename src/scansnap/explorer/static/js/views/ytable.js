// The decoder table Y as a heat map: rows are context tokens, columns the tokens they vote for.

import { $, h, throttle } from "../page/dom.js";
import { app, on } from "../app.js";
import { CLOSED, DISTINCT, colours, rgb } from "../draw/colours.js";
import { short, whole } from "../draw/format.js";
import { name, word } from "../draw/film.js";
import { CanvasPen, SvgPen, context, penFor, unit } from "../draw/pen.js";
import { askTable } from "../server/runner.js";
import { tip } from "../page/tip.js";

/** @import { Pen } from "../draw/pen.js" */
/** @typedef {{step: number, values: Float32Array}} Told */
/** @typedef {Told & {rows: number, columns: number, rowTokens: Float32Array, columnTokens: Float32Array, y: Float32Array, top: number}} Table */

const panel = $("panel-y"), picture = document.createElement("canvas");
const canvas = h("canvas", { role: "img", tabindex: 0, id: "y-canvas", "aria-label": "Decoder table Y" });
const box = h("div", { class: "canvas" }, canvas), note = h("p", { class: "explain" });
/** @type {Table | null} */
let table = null;
/** @type {{left: number, w: number, hh: number} | null} */
let place = null;
let shown = false, dirty = false;

export function start() {
  panel.append(h("div", { class: "view y", "data-view": "y" }, h("p", { class: "lead" }, "Y[l, j]: how much context token l votes for next token j. Blue votes for, vermilion against."), box, note));
  on("table", take);
  on("frames state run", ask);
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

const ask = throttle(() => { if (shown && app.film) askTable(128); }, 500);

/** @param {Told} told */
function take({ step, values }) {
  const rows = values[0], columns = values[1], y = values.subarray(2 + rows + columns);
  const top = y.reduce((m, v) => Math.max(m, Math.abs(v)), 1e-12);
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
  note.textContent = `At step ${whole(step)}; the strongest vote is ${short(top)}. ${rows} rows, ${columns} columns${table.columnTokens.includes(-1) ? "; “other” stands for all tokens that are never next" : ""}.`;
  canvas.setAttribute("aria-label", `Decoder table Y at step ${step}: ${rows} context tokens by ${columns} next tokens, strongest vote ${short(top)}`);
  dirty = true;
}

/** @param {Pen} pen */
function draw(pen) {
  const c = colours(), left = 36, bottom = 30, w = pen.width - left, hh = pen.height - bottom, classes = app.film?.run.classes;
  if (!table || !classes) return null;
  pen.image(picture, left, 0, w, hh);
  pen.frame(left + 0.5, 0.5, w - 1, hh - 1, c.line);
  const { rows, columns, rowTokens, columnTokens } = table, every = Math.max(1, Math.ceil((12 * rows) / hh)), across = Math.max(1, Math.ceil((34 * columns) / w));
  for (let r = 0; r < rows; r += every) pen.text(left - 5, Math.max(9, ((r + 0.5) * hh) / rows + 3.5), name(classes, rowTokens[r]), { fill: c.muted, size: 10, align: "right" });
  for (let j = 0; j < columns; j += across) pen.text(left + ((j + 0.5) * w) / columns, hh + 13, columnTokens[j] < 0 ? "other" : name(classes, columnTokens[j]), { fill: c.muted, size: 10, align: "center" });
  pen.text(left + w / 2, hh + 27, "next token j", { fill: c.muted, size: 11, align: "center" });
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

export function exportSvg() {
  const pen = new SvgPen(640, 560, colours().panel);
  draw(pen);
  return pen.toString();
}

/** @returns {Promise<Blob | null>} */
export function exportPng() {
  const out = document.createElement("canvas"), pen = new CanvasPen(out, 640, 560, 2);
  pen.rect(0, 0, 640, 560, colours().panel);
  draw(pen);
  return new Promise((done) => out.toBlob(done, "image/png"));
}

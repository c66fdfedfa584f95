// The big view: for each class its attention now, as bars, and below, token under token, its history as a heat map.

import { $, throttle } from "./dom.js";
import { app, on, emit, frameIndex, timeAxis } from "./app.js";
import { short, ticks, whole } from "./format.js";
import { word } from "./film.js";
import { CanvasPen, SvgPen, penFor, unit } from "./pen.js";
import { COMMON, DISTINCT, FLOW, PINNED, colours, ramp } from "./theme.js";
import { tip } from "./tip.js";

const canvas = $("attention"), box = $("attention-box");
let cells = []; // what was drawn where, for the mouse
let paint = null; // colours and ramps of the theme
const maps = new Map(); // class → {canvas, key}: heat maps as small pictures
let dirty = true;

export const redraw = () => { dirty = true; };

function theme() {
  const c = colours();
  paint = { ...c, ramps: { distinct: ramp(c.faint, DISTINCT), common: ramp(c.faint, COMMON), query: ramp(c.faint, "#888888") } };
  maps.clear();
  redraw();
}

/** Classes on screen: the one in focus or all. */
const shown = () => (app.focus >= 0 ? [app.focus] : app.film.run.classes.classes.map((_, k) => k));

/** Columns that make cells closest to a good shape. */
function columns(n, width, height) {
  let best = 1, score = Infinity;
  for (let c = 1; c <= n; c++) {
    const w = width / c, h = height / Math.ceil(n / c), s = Math.abs(Math.log(w / h / 0.8)) + (c * Math.ceil(n / c) - n) * 0.02;
    if (s < score) { score = s; best = c; }
  }
  return best;
}

/** Tokens of a class from left to right: common first, then distinct, each by how often they occur. */
const orders = new WeakMap();
function order(film, k) {
  let all = orders.get(film);
  if (!all) orders.set(film, (all = []));
  if (!all[k]) {
    const rank = { common: 0, query: 1, distinct: 2 }, c = film.run.classes.classes[k];
    all[k] = film.run.layout.tokens[k].map((token, j) => ({ token, j, kind: film.kind(k, token), p: c.p[c.tokens.indexOf(token)] ?? 0 }));
    all[k].sort((a, b) => rank[a.kind] - rank[b.kind] || a.p - b.p || a.token - b.token);
  }
  return all[k];
}

/** The history of class k as a picture: a column per token, a row per moment. */
function heatmap(film, k, rows, top) {
  const list = order(film, k), key = `${film.version}|${rows}|${top}|${app.scale}|${film.run.run}`;
  let map = maps.get(k);
  if (map?.key === key) return map.canvas;
  if (!map) maps.set(k, (map = { canvas: document.createElement("canvas") }));
  map.key = key;
  const width = list.length, image = new ImageData(width, rows), pixels = new Uint32Array(image.data.buffer);
  const frames = film.rowFrames(rows, timeAxis);
  const tables = list.map((t) => paint.ramps[t.kind]), base = film.fields.attention.offset + film.tokenOffset[k];
  for (let r = 0; r < rows; r++) {
    if (frames[r] < 0) { pixels.fill(0, r * width, (r + 1) * width); continue; }
    const frame = film.frames[frames[r]];
    for (let j = 0; j < width; j++) pixels[r * width + j] = tables[j][Math.min(255, Math.round((frame[base + list[j].j] / top) * 255))];
  }
  map.canvas.width = width;
  map.canvas.height = rows;
  map.canvas.getContext("2d").putImageData(image, 0, 0);
  return map.canvas;
}

/** Draws everything with a pen; returns where the cells lie. */
function draw(pen, film) {
  const list = shown(), n = list.length, i = frameIndex();
  const cols = columns(n, pen.width, pen.height), rows = Math.ceil(n / cols);
  const gap = n > 12 ? 10 : 18, w = (pen.width - gap * (cols - 1)) / cols, h = (pen.height - gap * (rows - 1)) / rows;
  const top = Math.max(1e-9, film.peak, list.some((k) => alike(k)) ? app.pinned.film.peak : 0), small = w < 190 || h < 190;
  return list.map((k, at) => cell(pen, film, k, i, { x: (at % cols) * (w + gap), y: Math.floor(at / cols) * (h + gap), w, h, top, small }));
}

function cell(pen, film, k, i, { x, y, w, h, top, small }) {
  const list = order(film, k), c = film.run.classes.classes[k], size = small ? 10 : 12;
  const name = (t) => film.run.classes.words?.[t] ?? t;
  const axis = small ? 4 : 34, head = small ? 14 : 22;
  const title = small ? `${name(c.query)} → ${name(c.next_token)}` : `Class ${k}   query ${name(c.query)} → next ${name(c.next_token)}`;
  pen.text(x + axis, y + (small ? 10 : 13), title, { fill: paint.ink, size, weight: small ? 500 : 600 });
  const x0 = x + axis, bw = (w - axis) / list.length, pad = bw > 5 ? Math.min(2, bw * 0.14) : bw > 2 ? 0.4 : 0;
  const free = h - head - (small ? 4 : 26), barH = free * (small ? 0.52 : 0.5), base = y + head + barH;
  if (!small) for (const v of ticks(top, 4)) {
    const ty = base - (v / top) * barH * 0.96;
    pen.line(x0, ty, x + w, ty, paint.line, 1);
    pen.text(x0 - 6, ty + 3.5, short(v), { fill: paint.muted, size: 10, align: "right" });
  }
  const now = film.attention(i, k), start = film.attention(0, k);
  const old = pinnedAttention(k), ideal = flowAttention(k, film.steps[i]);
  list.forEach((t, j) => {
    const bx = x0 + j * bw + pad, ww = bw - 2 * pad, bh = (now[t.j] / top) * barH * 0.96, sh = (start[t.j] / top) * barH * 0.96;
    pen.rect(bx, base - bh, ww, bh, t.kind === "distinct" ? DISTINCT : t.kind === "common" ? COMMON : "#888888");
    if (bw > 3) pen.line(bx, base - sh, bx + ww, base - sh, paint.ink, 1, small ? [] : [2, 2]);
    if (old && old.has(t.token)) { const oy = base - Math.min(1, old.get(t.token) / top) * barH * 0.96; pen.line(bx - pad, oy, bx + ww + pad, oy, PINNED, 2); }
    if (ideal && bw > 3 && ideal[t.j] <= top) { const oy = base - (ideal[t.j] / top) * barH * 0.96; pen.rect(bx + ww / 2 - 1.5, oy - 1.5, 3, 3, FLOW); }
  });
  pen.line(x0, base + 0.5, x + w, base + 0.5, paint.muted, 1);
  const my = base + (small ? 3 : 6), mh = y + h - my - (small ? 0 : 18), lines = Math.max(8, Math.min(160, Math.round(mh / (small ? 1.5 : 2))));
  pen.rect(x0, my, w - axis, mh, paint.faint);
  pen.image(heatmap(film, k, lines, top), x0, my, w - axis, mh);
  const last = Math.max(1, film.run.steps ?? 1, film.lastStep), where = (step) => my + (timeAxis(step) / timeAxis(last)) * mh;
  for (const mark of film.marks) pen.line(x0, where(mark.step), x + w, where(mark.step), paint.ink, 1, [4, 3]);
  if (i >= 0) pen.line(x0 - (small ? 0 : 4), where(film.steps[i]), x + w, where(film.steps[i]), paint.ink, small ? 1 : 1.5);
  if (!small) {
    pen.text(x0 - 6, my + 9, "0", { fill: paint.muted, size: 10, align: "right" });
    const now = where(film.steps[i]);
    if (now - my > 16 && my + mh - now > 12) pen.text(x0 - 6, now + 3.5, whole(film.steps[i]), { fill: paint.ink, size: 10, align: "right", weight: 600 });
    pen.text(x0 - 6, my + mh, last >= 1e5 ? short(last / 1000) + "k" : whole(last), { fill: paint.muted, size: 10, align: "right" });
    const split = list.findIndex((t) => t.kind === "distinct");
    const under = (text, from, to) => { if ((to - from) * bw > 6 * text.length + 6) pen.text(x0 + from * bw, y + h - 4, text, { fill: paint.muted, size: 10 }); };
    if (split > 0) under(split * bw > 90 ? "common tokens" : "common", 0, split);
    if (split >= 0) under(split * bw > 90 ? "distinct tokens" : "distinct", split, list.length);
  }
  return { k, x: x0, w: w - axis, bw, y, h, base, my, mh, top, list, full: { x, y, w, h } };
}

/** Whether class k of the pinned run has the same tokens. */
function alike(k) {
  const film = app.pinned?.film;
  return Boolean(film?.length) && String(film.run.layout.tokens[k]) === String(app.film.run.layout.tokens[k]);
}

/** Attention of the pinned run at the same step, by token, if the class is alike. */
function pinnedAttention(k) {
  if (!alike(k)) return null;
  const film = app.pinned.film, i = film.at(app.film.steps[frameIndex()]), values = film.attention(i, k);
  return new Map(film.run.layout.tokens[k].map((t, j) => [t, values[j]]));
}

/** Attention of the flow at a step, in the order of the layout. */
function flowAttention(k, step) {
  const flow = app.options.flow && app.flow;
  if (!flow || !flow.attention[k]) return null;
  let i = flow.t.findIndex((t) => t >= step);
  if (i < 0) return null;
  return flow.attention[k].map((series) => series[i]);
}

const describe = throttle(() => {
  const film = app.film, i = frameIndex();
  if (!film || i < 0) return;
  const texts = shown().slice(0, 4).map((k) => {
    const values = film.attention(i, k), best = values.indexOf(Math.max(...values)), token = film.run.layout.tokens[k][best];
    return `class ${k} most on ${word(film.run.classes, token)} (${film.kind(k, token)}, ${short(values[best])})`;
  });
  canvas.setAttribute("aria-label", `Attention at step ${film.steps[i]}: ${texts.join("; ")}.`);
}, 1000);

/** Draws if something changed; called on every animation frame. */
export function frame() {
  if (!dirty || !app.film?.length) return false;
  dirty = false;
  cells = draw(penFor(canvas, box), app.film);
  describe();
  return true;
}

export function exportSvg() {
  const pen = new SvgPen(box.clientWidth / unit(), box.clientHeight / unit(), paint.panel);
  draw(pen, app.film);
  return pen.toString();
}

export function exportPng() {
  const out = document.createElement("canvas"), pen = new CanvasPen(out, box.clientWidth / unit(), box.clientHeight / unit(), 2 * unit());
  pen.rect(0, 0, pen.width, pen.height, paint.panel);
  draw(pen, app.film);
  return new Promise((done) => out.toBlob(done, "image/png"));
}

/** Where the mouse is, in the units of the drawing. */
function place(event) {
  const b = canvas.getBoundingClientRect(), u = unit();
  return [(event.clientX - b.left) / u, (event.clientY - b.top) / u];
}

function hover(event) {
  const [x, y] = place(event);
  const cell = cells.find((c) => x >= c.x && x < c.x + c.w && y >= c.y && y < c.y + c.h);
  if (!cell || !app.film?.length) return tip.hide();
  const film = app.film, t = cell.list[Math.min(cell.list.length - 1, Math.floor((x - cell.x) / cell.bw))];
  let i = frameIndex();
  if (y >= cell.my && y <= cell.my + cell.mh) {
    const rows = film.rowFrames(200, timeAxis), f = rows[Math.min(199, Math.floor(((y - cell.my) / cell.mh) * 200))];
    if (f < 0) return tip.hide();
    i = f;
  }
  const q = film.run.layout.class_query[cell.k], zj = film.run.layout.query_tokens[q].indexOf(t.token);
  const lines = [`attention ${short(film.attention(i, cell.k)[t.j])}, at step 0 ${short(film.attention(0, cell.k)[t.j])}`];
  if (zj >= 0) lines.push(`z ${short(film.z(i, q)[zj])}`);
  const old = pinnedAttention(cell.k)?.get(t.token);
  if (old !== undefined) lines.push(`pinned run ${short(old)}`);
  tip.show(event, `${word(film.run.classes, t.token)}, ${t.kind}`, `class ${cell.k}, step ${whole(film.steps[i])}`, lines);
}

export function start() {
  theme();
  on("theme", theme);
  on("frames cursor focus scale pinned flow run options", redraw);
  new ResizeObserver(redraw).observe(box);
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerleave", tip.hide);
  canvas.addEventListener("click", (event) => {
    const [x, y] = place(event);
    const hit = cells.find(({ full: f }) => x >= f.x && x < f.x + f.w && y >= f.y && y < f.y + f.h);
    if (!hit) return;
    if (y >= hit.my && y <= hit.my + hit.mh && app.focus >= 0) { // a moment in the heat map
      const row = app.film.rowFrames(200, timeAxis)[Math.min(199, Math.floor(((y - hit.my) / hit.mh) * 200))];
      if (row >= 0) emit("seek", row);
      return;
    }
    emit("focus-wish", app.focus >= 0 ? -1 : hit.k);
  });
}

// Attention of every class now, as bars, and below, token under token, its history as a heat map. The page's big view
// and the exported film are both drawn here.

import { COMMON, DISTINCT, FLOW, PINNED, QUERY, ramp } from "./colours.js";
import { name } from "./film.js";
import { short, ticks, whole } from "./format.js";
import { context } from "./pen.js";

/** @import { Film, Kind, TimeAxis } from "./film.js" */
/** @import { Colours } from "./colours.js" */
/** @import { Pen } from "./pen.js" */
/** @typedef {{token: number, j: number, kind: Kind, p: number}} Bar  `j` is its place in the layout. */
/**
 * What there is to draw: a frame of a film, and what may lie over it.
 * @typedef {object} Scene
 * @property {Film} film
 * @property {number} index  the frame on screen
 * @property {number[]} classes  those on screen
 * @property {TimeAxis} axis  of the heat map
 * @property {Film | null} [pinned]  a run to compare with, where it has the same tokens
 * @property {Film | null} [ghost]  the run before this one, likewise
 * @property {((k: number, step: number) => number[] | null) | null} [ideal]  attention of the flow
 */
/** @typedef {{x: number, y: number, w: number, h: number}} Box */
/** @typedef {Box & {k: number, bw: number, my: number, mh: number, list: Bar[], full: Box}} Cell  `my`, `mh`: the heat map. */

const FILL = { distinct: DISTINCT, common: COMMON, query: QUERY };
const RANK = { common: 0, query: 1, distinct: 2 };
const MOMENTS = 200; // of the heat map that the mouse can tell apart

/**
 * Columns that make cells closest to a good shape.
 * @param {number} n
 * @param {number} width
 * @param {number} height
 */
function columns(n, width, height) {
  let best = 1, score = Infinity;
  for (let c = 1; c <= n; c++) {
    const w = width / c, h = height / Math.ceil(n / c), s = Math.abs(Math.log(w / h / 0.8)) + (c * Math.ceil(n / c) - n) * 0.02;
    if (s < score) { score = s; best = c; }
  }
  return best;
}

/** @type {WeakMap<Film, Bar[][]>} */
const orders = new WeakMap();

/**
 * Tokens of a class from left to right: common first, then distinct, each by how often they occur.
 * @param {Film} film
 * @param {number} k
 */
function order(film, k) {
  const all = orders.get(film) ?? [];
  orders.set(film, all);
  if (!all[k]) {
    const c = film.run.classes.classes[k];
    all[k] = film.run.layout.tokens[k].map((token, j) => ({ token, j, kind: film.kind(k, token), p: c.p[c.tokens.indexOf(token)] ?? 0 }));
    all[k].sort((a, b) => RANK[a.kind] - RANK[b.kind] || a.p - b.p || a.token - b.token);
  }
  return all[k];
}

/**
 * Whether class k of another run has the same tokens.
 * @param {Film} film
 * @param {Film | null | undefined} other
 * @param {number} k
 */
const alike = (film, other, k) => Boolean(other?.length) && String(other?.run.layout.tokens[k]) === String(film.run.layout.tokens[k]);

/**
 * Attention of another run at the same step, in the same order of tokens, if the class is alike and it came so far.
 * @param {Scene} scene
 * @param {Film | null | undefined} other
 * @param {number} k
 */
export function otherAttention({ film, index }, other, k) {
  if (!other || !alike(film, other, k) || other.lastStep < film.steps[index]) return null;
  return other.attention(other.at(film.steps[index]), k);
}

/**
 * Attention of the pinned run at the same step, by token, if the class is alike.
 * @param {Scene} scene
 * @param {number} k
 */
export function pinnedAttention({ film, index, pinned }, k) {
  if (!pinned || !alike(film, pinned, k)) return null;
  const values = pinned.attention(pinned.at(film.steps[index]), k);
  return new Map(pinned.run.layout.tokens[k].map((t, j) => [t, values[j]]));
}

/** Draws scenes in the colours of a theme, and keeps the heat maps from one frame to the next. */
export class AttentionPainter {
  /** @param {Colours} colours */
  constructor(colours) {
    this.colours = colours;
    this.ramps = { distinct: ramp(colours.faint, DISTINCT), common: ramp(colours.faint, COMMON), query: ramp(colours.faint, QUERY) };
    /** @type {Map<number, {canvas: HTMLCanvasElement, key: string}>} */
    this.maps = new Map();
  }

  /**
   * Draws everything with a pen; returns where the cells lie.
   * @param {Pen} pen
   * @param {Scene} scene
   * @returns {Cell[]}
   */
  draw(pen, scene) {
    const { film, classes, pinned, ghost } = scene, n = classes.length;
    const cols = columns(n, pen.width, pen.height), rows = Math.ceil(n / cols);
    const gap = n > 12 ? 10 : 18, w = (pen.width - gap * (cols - 1)) / cols, h = (pen.height - gap * (rows - 1)) / rows;
    const over = classes.some((k) => alike(film, pinned, k)) ? pinned?.peak ?? 0 : 0;
    const before = classes.some((k) => alike(film, ghost, k)) ? ghost?.peak ?? 0 : 0;
    const top = Math.max(1e-9, film.peak, over, before), small = w < 190 || h < 190;
    return classes.map((k, at) => this.cell(pen, scene, k, { x: (at % cols) * (w + gap), y: Math.floor(at / cols) * (h + gap), w, h }, top, small));
  }

  /**
   * @param {Pen} pen
   * @param {Scene} scene
   * @param {number} k
   * @param {Box} full
   * @param {number} top  attention at the top of the bars
   * @param {boolean} small
   * @returns {Cell}
   */
  cell(pen, scene, k, full, top, small) {
    const { film } = scene, { ink, muted, faint } = this.colours, { classes } = film.run, c = classes.classes[k];
    const { x, y, w, h } = full, list = order(film, k), axis = small ? 4 : 34, head = small ? 14 : 22;
    const title = small ? `${name(classes, c.query)} → ${name(classes, c.next_token)}` : `Class ${k}   query ${name(classes, c.query)} → next ${name(classes, c.next_token)}`;
    pen.text(x + axis, y + (small ? 10 : 13), title, { fill: ink, size: small ? 10 : 12, weight: small ? 500 : 600 });
    const x0 = x + axis, bw = (w - axis) / list.length, free = h - head - (small ? 4 : 26), tall = free * (small ? 0.52 : 0.5), base = y + head + tall;
    this.bars(pen, scene, k, list, { x: x0, y: base, w: x + w - x0, h: tall }, top, small);
    pen.line(x0, base + 0.5, x + w, base + 0.5, muted, 1);
    const my = base + (small ? 3 : 6), mh = y + h - my - (small ? 0 : 18), lines = Math.max(8, Math.min(160, Math.round(mh / (small ? 1.5 : 2))));
    pen.rect(x0, my, w - axis, mh, faint);
    pen.image(this.heatmap(scene, k, list, lines, top), x0, my, w - axis, mh);
    this.times(pen, scene, { x: x0, y: my, w: w - axis, h: mh }, small);
    if (!small) {
      const split = list.findIndex((t) => t.kind === "distinct");
      const under = (/** @type {string} */ text, /** @type {number} */ from, /** @type {number} */ to) => { if ((to - from) * bw > 6 * text.length + 6) pen.text(x0 + from * bw, y + h - 4, text, { fill: muted, size: 10 }); };
      if (split > 0) under(split * bw > 90 ? "common tokens" : "common", 0, split);
      if (split >= 0) under(split * bw > 90 ? "distinct tokens" : "distinct", split, list.length);
    }
    return { k, x: x0, w: w - axis, bw, y, h, my, mh, list, full };
  }

  /**
   * The bars, standing on the lower edge `y` of their box, and what lies over them.
   * @param {Pen} pen
   * @param {Scene} scene
   * @param {number} k
   * @param {Bar[]} list
   * @param {Box} box
   * @param {number} top
   * @param {boolean} small
   */
  bars(pen, scene, k, list, { x, y: base, w, h }, top, small) {
    const { film, index } = scene, { ink, muted, line } = this.colours, bw = w / list.length, pad = bw > 5 ? Math.min(2, bw * 0.14) : bw > 2 ? 0.4 : 0;
    const high = (/** @type {number} */ v) => (v / top) * h * 0.96;
    if (!small) for (const v of ticks(top, 4)) {
      pen.line(x, base - high(v), x + w, base - high(v), line, 1);
      pen.text(x - 6, base - high(v) + 3.5, short(v), { fill: muted, size: 10, align: "right" });
    }
    const now = film.attention(index, k), start = film.attention(0, k), old = pinnedAttention(scene, k), ideal = scene.ideal?.(k, film.steps[index]);
    list.forEach((t, j) => {
      const bx = x + j * bw + pad, ww = bw - 2 * pad, before = base - high(start[t.j]), was = old?.get(t.token);
      pen.rect(bx, base - high(now[t.j]), ww, high(now[t.j]), FILL[t.kind]);
      if (bw > 3) pen.line(bx, before, bx + ww, before, ink, 1, small ? [] : [2, 2]);
      if (was !== undefined) pen.line(bx - pad, base - high(Math.min(top, was)), bx + ww + pad, base - high(Math.min(top, was)), PINNED, 2);
      if (ideal && bw > 3 && ideal[t.j] <= top) pen.rect(bx + ww / 2 - 1.5, base - high(ideal[t.j]) - 1.5, 3, 3, FLOW);
    });
    const ghost = otherAttention(scene, scene.ghost, k);
    if (ghost) { // one thin line over all bars
      const edge = list.flatMap((t, j) => [x + j * bw, x + (j + 1) * bw].map((at) => /** @type {[number, number]} */ ([at, base - high(ghost[t.j])])));
      pen.path([[x, base], ...edge, [x + w, base]], muted, 1);
    }
  }

  /**
   * The moments over a heat map: where rates changed, where the film stands, and the numbers beside.
   * @param {Pen} pen
   * @param {Scene} scene
   * @param {Box} box
   * @param {boolean} small
   */
  times(pen, { film, index, axis }, { x, y, w, h }, small) {
    const { ink, muted } = this.colours, last = Math.max(1, film.run.steps, film.lastStep);
    const where = (/** @type {number} */ step) => y + (axis(step) / axis(last)) * h, now = where(film.steps[index]);
    for (const mark of film.marks) pen.line(x, where(mark.step), x + w, where(mark.step), ink, 1, [4, 3]);
    pen.line(x - (small ? 0 : 4), now, x + w, now, ink, small ? 1 : 1.5);
    if (small) return;
    pen.text(x - 6, y + 9, "0", { fill: muted, size: 10, align: "right" });
    if (now - y > 16 && y + h - now > 12) pen.text(x - 6, now + 3.5, whole(film.steps[index]), { fill: ink, size: 10, align: "right", weight: 600 });
    pen.text(x - 6, y + h, last >= 1e5 ? short(last / 1000) + "k" : whole(last), { fill: muted, size: 10, align: "right" });
  }

  /**
   * The history of class k as a picture: a column per token, a row per moment.
   * @param {Scene} scene
   * @param {number} k
   * @param {Bar[]} list
   * @param {number} rows
   * @param {number} top
   */
  heatmap({ film, axis }, k, list, rows, top) {
    const end = axis(Math.max(1, film.run.steps)), key = `${film.version}|${rows}|${top}|${end}|${film.run.run}`;
    const map = this.maps.get(k) ?? { canvas: document.createElement("canvas"), key: "" };
    this.maps.set(k, map);
    if (map.key === key) return map.canvas;
    map.key = key;
    const width = list.length, image = new ImageData(width, rows), pixels = new Uint32Array(image.data.buffer);
    const frames = film.rowFrames(rows, axis);
    const tables = list.map((t) => this.ramps[t.kind]), base = film.fields.attention.offset + film.tokenOffset[k];
    for (let r = 0; r < rows; r++) {
      if (frames[r] < 0) { pixels.fill(0, r * width, (r + 1) * width); continue; }
      const frame = film.frames[frames[r]];
      for (let j = 0; j < width; j++) pixels[r * width + j] = tables[j][Math.min(255, Math.round((frame[base + list[j].j] / top) * 255))];
    }
    map.canvas.width = width;
    map.canvas.height = rows;
    context(map.canvas).putImageData(image, 0, 0);
    return map.canvas;
  }
}

/**
 * The bar under a point, and the frame it shows there: a moment of its history, or the frame on screen. Null beside
 * the bars and where there is no history yet.
 * @param {Cell[]} cells
 * @param {Scene} scene
 * @param {number} x
 * @param {number} y
 */
export function barAt(cells, { film, index, axis }, x, y) {
  const cell = cells.find((c) => x >= c.x && x < c.x + c.w && y >= c.y && y < c.y + c.h);
  if (!cell) return null;
  const bar = cell.list[Math.min(cell.list.length - 1, Math.floor((x - cell.x) / cell.bw))];
  const frame = y >= cell.my && y <= cell.my + cell.mh ? momentAt(cell, film, axis, y) : index;
  return frame < 0 ? null : { k: cell.k, bar, frame };
}

/**
 * The frame at a height in the history of a cell, −1 where there is none yet.
 * @param {Cell} cell
 * @param {Film} film
 * @param {TimeAxis} axis
 * @param {number} y
 */
export const momentAt = (cell, film, axis, y) => film.rowFrames(MOMENTS, axis)[Math.min(MOMENTS - 1, Math.floor(((y - cell.my) / cell.mh) * MOMENTS))];

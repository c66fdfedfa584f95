// Attention of every class now, as bars, and below, token under token, its history as a heat map. The page's big view
// and the exported film are both drawn here.

import { CLOSED, COMMON, DISTINCT, FLOW, PINNED, QUERY, SEVERAL, legible, ramp } from "./colours.js";
import { name, sameClasses } from "./film.js";
import { labelsOf, writeLabels } from "./labels.js";
import { fromTo, short, tick, ticks, whole } from "./format.js";
import { context, fitting, widthOf } from "./pen.js";

/** @import { Film, Kind, Reach, TimeAxis } from "./film.js" */
/** @import { Colours } from "./colours.js" */
/** @import { Pen } from "./pen.js" */
/** @typedef {{token: number, j: number, kind: Kind, reach: Reach, p: number}} Bar  `j` is its place in the layout. */
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
 * @property {number} [movement]  draw how far attention has moved since step 0, so many times as large; 0: attention
 */
/** @typedef {{x: number, y: number, w: number, h: number}} Box */
/** @typedef {Box & {k: number, bw: number, by: number, my: number, mh: number, list: Bar[], full: Box}} Cell  `by`: top of the bars; `my`, `mh`: the heat map. */

const FILL = { only: DISTINCT, several: SEVERAL, every: COMMON, query: QUERY };
const RANK = { every: 0, several: 1, query: 2, only: 3 };
/** Under the bars, in more words or fewer. @type {Record<Reach, string[]>} */
const UNDER = { every: ["common: in every context", "in every context", "common"], several: ["common: in several contexts", "in several", "common"], query: [], only: ["distinct: only in this context", "only in this context", "distinct"] };
const MOMENTS = 200; // of the heat map that the mouse can tell apart
const NARROW = 400; // two classes beside each other at most, so that their words have room
const SMALL = { size: 10 };
const stepText = (/** @type {number} */ last) => (last >= 1e6 ? short(last / 1e6) + "M" : last >= 1e5 ? short(last / 1000) + "k" : whole(last));

/**
 * Columns that make cells closest to a good shape.
 * @param {number} n
 * @param {number} width
 * @param {number} height
 */
function columns(n, width, height) {
  let best = 1, score = Infinity;
  for (let c = 1; c <= n; c++) {
    const w = width / c, h = height / Math.ceil(n / c), s = Math.abs(Math.log(w / h / 0.8)) + (c * Math.ceil(n / c) - n) * 0.15;
    if (s < score) { score = s; best = c; }
  }
  return best;
}

/** @type {WeakMap<Film, Bar[][]>} */
const orders = new WeakMap();

/**
 * Tokens of a class from left to right: those of every context, of several, of this one, each by how often they occur.
 * @param {Film} film
 * @param {number} k
 */
function order(film, k) {
  const all = orders.get(film) ?? [];
  orders.set(film, all);
  if (!all[k]) {
    const c = film.run.classes.classes[k];
    all[k] = film.run.layout.tokens[k].map((token, j) => ({ token, j, kind: film.kind(k, token), reach: film.reach(k, token), p: c.p[c.tokens.indexOf(token)] ?? 0 }));
    all[k].sort((a, b) => RANK[a.reach] - RANK[b.reach] || a.p - b.p || a.token - b.token);
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
    this.ramps = { only: ramp(colours.faint, DISTINCT), several: ramp(colours.faint, SEVERAL), every: ramp(colours.faint, COMMON), query: ramp(colours.faint, QUERY) };
    this.gain = ramp(colours.faint, DISTINCT);
    this.loss = ramp(colours.faint, CLOSED);
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
    const { film, classes, pinned, ghost, movement = 0 } = scene, n = classes.length;
    const wide = columns(n, pen.width, pen.height), cols = film.run.classes.words && pen.width < NARROW ? Math.min(2, wide) : wide, rows = Math.ceil(n / cols);
    const gap = n > 12 ? 10 : 18, w = (pen.width - gap * (cols - 1)) / cols, h = (pen.height - gap * (rows - 1)) / rows;
    const over = [pinned, ghost && sameClasses(film, ghost) ? ghost : null].map((other) => (classes.some((k) => alike(film, other, k)) ? other?.peak ?? 0 : 0));
    const top = Math.max(1e-9, ...(movement ? [1.04 * film.moved * movement] : [film.peak, ...over])), small = w < 190 || h < (film.run.classes.words ? 300 : 190); // words need room
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
    const { film, movement = 0 } = scene, { muted, faint } = this.colours, { x, y, w, h } = full, list = order(film, k);
    const marks = small ? [] : ticks(movement ? -top : 0, top, movement ? 6 : 4), apart = marks[1] - marks[0], texts = marks.map((v) => tick(v, apart));
    const axis = small ? 4 : Math.max(...[...texts, stepText(film.run.steps), whole(film.steps[scene.index])].map((t) => widthOf(t, { ...SMALL, weight: 600 }))) + 9;
    const x0 = x + axis, bw = (w - axis) / list.length, head = this.heading(pen, scene, k, { x: x0, y, w: w - axis, h }, small);
    const labels = labelsOf(film, scene.classes, list, bw, 0.3 * h), strip = labels?.height ?? 0;
    const free = h - head - strip - (small ? 4 : 26), history = small || !labels || free >= 100, tall = history ? free * (small ? 0.52 : 0.5) : free, base = y + head + (movement ? tall / 2 : tall);
    const values = marks.map((v, i) => ({ v, text: texts[i] }));
    this.bars(pen, scene, k, list, { x: x0, y: base, w: x + w - x0, h: movement ? tall / 2 : tall }, top, values);
    pen.line(x0, base + 0.5, x + w, base + 0.5, muted, 1);
    const now = film.attention(scene.index, k), most = Math.max(...now);
    if (labels) writeLabels(pen, labels, { x: x0, y: y + head + tall, bw, best: list.findIndex((t) => now[t.j] === most) }, this.colours);
    const my = y + head + tall + strip + (small ? 3 : 6), mh = history ? y + h - my - (small ? 0 : 18) : 0, lines = Math.max(8, Math.min(160, Math.round(mh / (small ? 1.5 : 2))));
    if (history) { // where there is no room for both, the bars have it
      pen.rect(x0, my, w - axis, mh, faint);
      pen.image(this.heatmap(scene, k, list, lines, top), x0, my, w - axis, mh);
      this.times(pen, scene, { x: x0, y: my, w: w - axis, h: mh }, small);
    }
    if (!small) {
      for (const reach of /** @type {Reach[]} */ (["every", "several", "only"])) {
        const from = list.findIndex((t) => t.reach === reach), n = list.filter((t) => t.reach === reach).length, text = fitting(UNDER[reach], n * bw - 6, SMALL);
        if (n && UNDER[reach].includes(text)) pen.label(x0 + from * bw, y + h - 4, text, { fill: muted, ...SMALL });
      }
    }
    return { k, x: x0, w: w - axis, bw, y, h, by: y + head, my, mh, list, full };
  }

  /**
   * Above the bars: which class it is, and in one number what has become of it: how much of its attention is on common
   * tokens, at step 0 and now; a strip shows the same. Returns how high it is.
   * @param {Pen} pen
   * @param {Scene} scene
   * @param {number} k
   * @param {Box} box
   * @param {boolean} small
   */
  heading(pen, { film, index }, k, { x, y, w }, small) {
    const { ink, muted } = this.colours, { classes } = film.run, c = classes.classes[k], title = { size: small ? 10 : 12, weight: small ? 500 : 600 };
    const arrow = `${name(classes, c.query)} → ${name(classes, c.next_token)}`, was = film.share(0, k, "common"), now = film.share(index, k, "common"), has = was > 0;
    const number = fromTo(was, now), line = y + (small ? 10 : 13), wide = small ? widthOf(arrow, title) + 8 : 0;
    const words = small ? [number, number.slice(Math.max(0, number.indexOf("→")))].find((t) => widthOf(t, SMALL) + wide <= w) ?? "" : fitting([`common ${classes.words ? "words" : "tokens"} ${number}`, `common ${number}`, number], w, { size: 12 });
    const room = has && words && small ? w - widthOf(words, SMALL) - 8 : w;
    pen.label(x, line, fitting(small ? [arrow] : [classes.words ? `“${name(classes, c.query)}” → “${name(classes, c.next_token)}”` : `Class ${k}   query ${arrow.replace("→", "→ next")}`, `Class ${k}   ${arrow}`, arrow], room, title), { fill: ink, ...title });
    if (!has) return small ? 14 : 22;
    if (!small) pen.label(x, y + 30, words, { fill: ink, size: 12 });
    else if (words) pen.label(x + w, line, words, { fill: muted, ...SMALL, align: "right" });
    const top = small ? y + 14 : y + 36, high = small ? 3 : 6;
    const values = film.attention(index, k), every = order(film, k).reduce((sum, t) => sum + (t.reach === "every" ? values[t.j] : 0), 0);
    pen.rect(x, top, w, high, DISTINCT);
    pen.rect(x, top, w * now, high, SEVERAL);
    pen.rect(x, top, w * every, high, COMMON);
    pen.rect(x + w * was - 0.75, top - 2, 1.5, high + 4, ink);
    return small ? 20 : 50;
  }

  /**
   * The bars, standing on the line `y` of their box, or hanging from it, and what lies over them.
   * @param {Pen} pen
   * @param {Scene} scene
   * @param {number} k
   * @param {Bar[]} list
   * @param {Box} box
   * @param {number} top
   * @param {{v: number, text: string}[]} marks  on the axis; none in a small cell
   */
  bars(pen, scene, k, list, { x, y: base, w, h }, top, marks) {
    const { film, index, movement = 0 } = scene, { ink, muted, line } = this.colours, bw = w / list.length, pad = bw > 5 ? Math.min(2, bw * 0.14) : bw > 2 ? 0.4 : 0;
    const high = (/** @type {number} */ v) => (v / top) * h * 0.96;
    for (const { v, text } of marks) {
      pen.line(x, base - high(v), x + w, base - high(v), line, 1);
      pen.label(x - 6, base - high(v) + 3.5, text, { fill: muted, ...SMALL, align: "right" });
    }
    const now = film.attention(index, k), start = film.attention(0, k), old = movement ? null : pinnedAttention(scene, k), ideal = scene.ideal?.(k, film.steps[index]);
    const shown = (/** @type {number} */ v, /** @type {number} */ j) => (movement ? (v - start[j]) * movement : v);
    list.forEach((t, j) => {
      const bx = x + j * bw + pad, ww = bw - 2 * pad, before = base - high(start[t.j]), was = old?.get(t.token), to = high(shown(now[t.j], t.j));
      pen.rect(bx, base - Math.max(to, 0), ww, Math.abs(to), FILL[t.reach]);
      if (bw > 3 && !movement) pen.line(bx, before, bx + ww, before, ink, 1, marks.length ? [2, 2] : []);
      if (was !== undefined) pen.line(bx - pad, base - high(Math.min(top, was)), bx + ww + pad, base - high(Math.min(top, was)), legible(PINNED, this.colours), 2);
      const limit = ideal ? shown(ideal[t.j], t.j) : NaN;
      if (bw > 3 && Math.abs(limit) <= top) pen.rect(bx + ww / 2 - 1.5, base - high(limit) - 1.5, 3, 3, FLOW);
    });
    const ghost = movement || !scene.ghost || !sameClasses(film, scene.ghost) ? null : otherAttention(scene, scene.ghost, k);
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
    const { ink, muted, faint } = this.colours, last = Math.max(1, film.run.steps, film.lastStep);
    const where = (/** @type {number} */ step) => y + (axis(step) / axis(last)) * h, now = where(film.steps[index]);
    pen.rect(x - 0.5, now, w + 1, y + h - now + 0.5, faint); // what follows is for later
    for (const mark of film.marks) if (mark.step <= film.steps[index]) pen.line(x, where(mark.step), x + w, where(mark.step), ink, 1, [4, 3]);
    pen.line(x - (small ? 0 : 4), now, x + w, now, ink, small ? 1 : 1.5);
    if (small) return;
    const beside = { ...SMALL, align: /** @type {const} */ ("right") }, here = Math.max(y + 9, Math.min(y + h, now + 3.5));
    pen.label(x - 6, here, whole(film.steps[index]), { fill: ink, ...beside, weight: 600 });
    pen.label(x - 6, y + 9, "0", { fill: muted, ...beside });
    pen.label(x - 6, y + h, stepText(last), { fill: muted, ...beside });
  }

  /**
   * The history of class k as a picture: a column per token, a row per moment.
   * @param {Scene} scene
   * @param {number} k
   * @param {Bar[]} list
   * @param {number} rows
   * @param {number} top
   */
  heatmap({ film, axis, movement = 0 }, k, list, rows, top) {
    const end = axis(Math.max(1, film.run.steps)), key = `${film.version}|${rows}|${top}|${end}|${film.number}|${movement}`;
    const map = this.maps.get(k) ?? { canvas: document.createElement("canvas"), key: "" };
    this.maps.set(k, map);
    if (map.key === key) return map.canvas;
    map.key = key;
    const width = list.length, image = new ImageData(width, rows), pixels = new Uint32Array(image.data.buffer);
    const frames = film.rowFrames(rows, axis);
    const tables = list.map((t) => this.ramps[t.reach]), base = film.fields.attention.offset + film.tokenOffset[k], start = film.attention(0, k);
    for (let r = 0; r < rows; r++) {
      if (frames[r] < 0) { pixels.fill(0, r * width, (r + 1) * width); continue; }
      const frame = film.frames[frames[r]];
      for (let j = 0; j < width; j++) {
        const c = frame[base + list[j].j], v = movement ? (c - start[list[j].j]) * movement : c, table = !movement ? tables[j] : v < 0 ? this.loss : this.gain;
        pixels[r * width + j] = table[Math.min(255, Math.round((Math.abs(v) / top) * 255))];
      }
    }
    map.canvas.width = width;
    map.canvas.height = rows;
    context(map.canvas).putImageData(image, 0, 0);
    return map.canvas;
  }
}

/**
 * The bar under a point, and the frame it shows there: a moment of its history, or the frame on screen. Null beside
 * the bars and where there is no history yet, or none on screen.
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
  return frame < 0 || frame > index ? null : { k: cell.k, bar, frame };
}

/**
 * The frame at a height in the history of a cell, −1 where there is none yet.
 * @param {Cell} cell
 * @param {Film} film
 * @param {TimeAxis} axis
 * @param {number} y
 */
export const momentAt = (cell, film, axis, y) => film.rowFrames(MOMENTS, axis)[Math.min(MOMENTS - 1, Math.floor(((y - cell.my) / cell.mh) * MOMENTS))];

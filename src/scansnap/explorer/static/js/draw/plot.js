// A plot of curves over steps: axes, grid, curves, moments, labels, legend; drawn with a pen, on the screen or into a file.

import { Labels, fitting, widthOf } from "./pen.js";

/** @import { Colours } from "./colours.js" */
/** @import { Pen } from "./pen.js" */
/** @typedef {number | "inf" | "-inf" | null | undefined} Value  Null: a gap. */
/** @typedef {{color: string, width: number, dash?: "dash" | "dot" | "dashdot"}} Line */
/**
 * One curve. `texts` says what each point belongs to; `band`: colour between this curve and the one before.
 * @typedef {{name: string, x: Value[], y: Value[], texts: string[], line: Line, band?: string}} Trace
 */
/** @typedef {{v: number, text: string}} Tick */
/** @typedef {{range: [number, number], ticks: Tick[], title: string}} Axis  The range of the x axis is in its own units. */
/** @typedef {{x: number, texts: string[], colour: string, dash: "dash" | "dot"}} Moment  `texts`: ways to name it, longest first. */
/**
 * @typedef {object} Figure
 * @property {Trace[]} data
 * @property {Axis} x
 * @property {(step: number) => number} time  position of a step in the units of the x axis
 * @property {Axis} y
 * @property {Moment[]} moments  vertical lines
 * @property {string} note  instead of curves
 * @property {Key[]} legend
 * @property {number} size  of the letters
 */
/** @typedef {{name: string, line: Line}} Key */
/** @typedef {{x: number, y: number, w: number, h: number}} Area */
/** @typedef {{trace: Trace, i: number, x: number, y: number}} Point */

/** @type {Record<string, number[]>} */
const DASHES = { dash: [7, 4], dot: [2, 3], dashdot: [7, 3, 2, 3] };
const dashOf = (/** @type {Line} */ line) => (line.dash ? DASHES[line.dash] : []);
const SIGN = 22; // length of the line in a legend

/**
 * @param {Value} v
 * @returns {v is number}
 */
export const finite = (v) => typeof v === "number" && Number.isFinite(v);

/**
 * The legend in rows that fit a width: where each key begins.
 * @param {Key[]} keys
 * @param {number} width
 * @param {number} size
 */
function rowsOf(keys, width, size) {
  let x = 0, row = 0;
  return keys.map((key) => {
    const wide = SIGN + 6 + widthOf(key.name, { size });
    if (x > 0 && x + wide > width) { x = 0; row++; }
    const at = { key, x, row };
    x += wide + 16;
    return at;
  });
}

/**
 * Where the curves of a figure lie on a pen of this size: inside of its numbers, titles and legend.
 * @param {Figure} figure
 * @param {{width: number, height: number}} pen
 * @returns {Area}
 */
export function areaOf(figure, { width, height }) {
  const { size } = figure, wide = (/** @type {Tick[]} */ ticks) => Math.max(0, ...ticks.map((t) => widthOf(t.text, { size })));
  const lastTick = figure.x.ticks.at(-1), half = lastTick ? widthOf(lastTick.text, { size }) / 2 : 0;
  const left = Math.ceil(wide(figure.y.ticks) + 7 + (figure.y.title ? 1.5 * size : 0)), right = Math.ceil(Math.max(8, half + 2));
  const rows = figure.legend.length ? (rowsOf(figure.legend, width - left - right, size).at(-1)?.row ?? 0) + 1 : 0;
  const top = 4 + rows * 1.6 * size + (rows ? 4 : 0), bottom = 1.5 * size + 5 + (figure.x.title ? 1.5 * size : 0);
  return { x: left, y: top, w: Math.max(1, width - left - right), h: Math.max(1, height - top - bottom) };
}

/**
 * @param {Figure} figure
 * @param {Area} area
 */
export function projection({ x, y, time }, area) {
  return {
    px: (/** @type {number} */ step) => area.x + ((time(step) - x.range[0]) / (x.range[1] - x.range[0])) * area.w,
    py: (/** @type {number} */ v) => area.y + area.h * (1 - (v - y.range[0]) / (y.range[1] - y.range[0])),
  };
}

/**
 * Grid, numbers, titles, legend, and the lines of moments.
 * @param {Pen} pen
 * @param {Figure} figure
 * @param {Colours} c
 */
export function drawGround(pen, figure, c) {
  const { size, x, y, legend, note } = figure, area = areaOf(figure, pen), { px, py } = projection(figure, area), bottom = area.y + area.h;
  const letters = { fill: c.muted, size };
  for (const { v, text } of y.ticks) {
    pen.line(area.x, py(v), area.x + area.w, py(v), c.line);
    pen.label(area.x - 5, py(v) + 0.36 * size, text, { ...letters, align: "right" });
  }
  for (const { v, text } of x.ticks) {
    pen.line(px(v), area.y, px(v), bottom, c.line);
    pen.label(px(v), bottom + 1.3 * size, text, { ...letters, align: "center" });
  }
  if (x.title) pen.label(area.x + area.w / 2, pen.height - 3, x.title, { ...letters, fill: c.ink, align: "center" });
  if (y.title) pen.upright(size, area.y, fitting([y.title], area.h, { size }), { ...letters, fill: c.ink });
  for (const { key, x: at, row } of rowsOf(legend, area.w, size)) {
    const high = 4 + (row + 0.9) * 1.6 * size - 3;
    pen.line(area.x + at, high - 0.35 * size, area.x + at + SIGN, high - 0.35 * size, key.line.color, Math.max(1.5, key.line.width), dashOf(key.line));
    pen.label(area.x + at + SIGN + 6, high, key.name, { fill: c.ink, size });
  }
  if (note) pen.label(area.x + area.w / 2, area.y + area.h / 2, note, { ...letters, align: "center" });
  pen.clip(area, () => { for (const m of figure.moments) pen.line(px(m.x), area.y, px(m.x), bottom, m.colour, 1, DASHES[m.dash]); });
}

/**
 * The curves, cut off at the axes.
 * @param {Pen} pen
 * @param {Figure} figure
 */
export function drawCurves(pen, figure) {
  const area = areaOf(figure, pen), { px, py } = projection(figure, area);
  pen.clip(area, () => figure.data.forEach((trace, n) => {
    const parts = pieces(trace, px, py), below = trace.band ? pieces(figure.data[n - 1], px, py) : [];
    if (trace.band && parts.length === 1 && below.length === 1) pen.area([...parts[0], ...below[0].reverse()], trace.band);
    for (const part of parts) pen.path(part, trace.line.color, trace.line.width, dashOf(trace.line));
  }));
}

/**
 * A curve without its gaps.
 * @param {Trace} trace
 * @param {(step: number) => number} px
 * @param {(v: number) => number} py
 */
function pieces({ x, y }, px, py) {
  /** @type {[number, number][][]} */
  const out = [];
  /** @type {[number, number][]} */
  let now = [];
  const end = () => { if (now.length) out.push(now); now = []; };
  x.forEach((step, i) => { const v = y[i]; if (finite(step) && finite(v)) now.push([px(step), py(v)]); else end(); });
  end();
  return out;
}

/**
 * The names of moments beside their lines, where there is room; what lies behind them is covered.
 * @param {Pen} pen
 * @param {Figure} figure
 * @param {Colours} c
 */
export function drawMoments(pen, figure, c) {
  const { size } = figure, area = areaOf(figure, pen), { px } = projection(figure, area), labels = new Labels(area.w, area.h);
  for (const { x, texts, colour } of figure.moments) {
    const here = px(x) - area.x;
    if (here >= 0 && here <= area.w) name(here, texts, colour);
  }

  /** @type {(here: number, texts: string[], colour: string) => void} */
  function name(here, texts, colour) {
    for (const [text, align] of texts.flatMap((t) => /** @type {const} */ ([[t, "left"], [t, "right"]]))) { // the side of the text that is at the line
      const wide = widthOf(text, { size });
      if (wide > (align === "left" ? area.w - here : here) - 5) continue;
      for (let row = 0; (row + 1) * size * 1.4 < area.h; row++) {
        const at = align === "left" ? here + 4 : here - 4, y = (row * 1.4 + 1) * size;
        if (!labels.place(at, y, text, { size, align })) continue;
        pen.rect(area.x + (align === "left" ? at - 1 : at - wide - 1), area.y + y - 0.9 * size, wide + 2, 1.25 * size, c.panel);
        pen.text(area.x + at, area.y + y, text, { fill: colour, size, align });
        return;
      }
    }
  }
}

/**
 * All of a figure, with its moments named.
 * @param {Pen} pen
 * @param {Figure} figure
 * @param {Colours} c
 */
export function drawPlot(pen, figure, c) {
  drawGround(pen, figure, c);
  drawCurves(pen, figure);
  drawMoments(pen, figure, c);
}

/**
 * The point of a curve nearest to (x, y), of those up to a step; null where none is near.
 * @param {Figure} figure
 * @param {{width: number, height: number}} size
 * @param {number} x
 * @param {number} y
 * @param {number} until
 * @returns {Point | null}
 */
export function nearest(figure, size, x, y, until = Infinity) {
  const area = areaOf(figure, size), { px, py } = projection(figure, area), NEAR = 30;
  /** @type {Point | null} */
  let best = null;
  let least = NEAR * NEAR;
  for (const trace of figure.data) {
    trace.x.forEach((step, i) => {
      const v = trace.y[i];
      if (!finite(step) || !finite(v) || step > until) return;
      const dx = px(step) - x, dy = py(v) - y, far = dx * dx + dy * dy;
      if (far <= least && px(step) >= area.x - 1 && px(step) <= area.x + area.w + 1) { least = far; best = { trace, i, x: px(step), y: py(v) }; }
    });
  }
  return best;
}

// The axes of the curve views: their ranges, the numbers on them, and the labels of the lines across them.

import { app } from "../app.js";
import { short, tick, ticks, whole } from "../draw/format.js";
import { Labels, unit, widthOf } from "../draw/pen.js";

/** @import { Colours } from "../draw/colours.js" */
/** @import { Film } from "../draw/film.js" */
/** @import { How, PlotLayout, View } from "./traces.js" */

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (/** @type {number} */ k) => (k < 2 ? String(10 ** k) : `10${[...String(k)].map((d) => RAISED[Number(d)]).join("")}`);

/** The last step on the axis of time. */
const end = () => Math.max(2, app.film?.run.steps ?? 2);

/**
 * Where a step lies on the axis of time, in plotly's units.
 * @param {number} step
 */
const at = (step) => (app.scale === "log" ? Math.log10(step) : step);

/**
 * Both axes. The small plots have numbers of our own, none over another and none cut off; the large ones can be zoomed,
 * and plotly places theirs.
 * @param {View} view
 * @param {number[]} values
 * @param {How} how
 * @returns {{layout: PlotLayout, yaxis: object}}
 */
export function axes(view, values, { width, height, large = false }) {
  const u = unit(), size = { size: 10 * u }, log = app.scale === "log", last = end(), range = log ? [0, Math.log10(last)] : [0, last];
  let low = values.reduce((m, v) => Math.min(m, v), Infinity), high = values.reduce((m, v) => Math.max(m, v), -Infinity);
  if (!(high >= low)) [low, high] = [0, 1];
  if (view.name !== "z" && view.name !== "entropy") [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  const flat = high - low < 1e-9 * Math.max(Math.abs(low), Math.abs(high), 1e-9), pad = flat ? 0.5 * (Math.abs(high) || 1) : 0.05 * (high - low);
  const bounds = [low === 0 ? 0 : low - pad, high === 0 && low < 0 ? 0 : high + pad];
  if (large) {
    const title = (/** @type {string} */ text) => ({ text, font: { size: 13 * u } }), auto = { automargin: true, nticks: 8 };
    return {
      layout: { margin: { l: 60 * u, r: 24, t: 14 + 26 * u, b: 46 * u }, xaxis: { ...auto, type: app.scale, range, title: title("step"), exponentformat: "power", dtick: log ? 1 : undefined } },
      yaxis: { ...auto, range: bounds, tickformat: "~g", title: title(view.title + (view.unit ? ` (${view.unit})` : "")) },
    };
  }
  const marks = ticks(bounds[0], bounds[1], Math.max(2, Math.min(5, height / (34 * u)))), apart = marks.length > 1 ? marks[1] - marks[0] : 1, texts = marks.map((v) => tick(v, apart));
  const wanted = log ? Array.from({ length: Math.floor(range[1] + 1e-9) + 1 }, (_, k) => ({ v: 10 ** k, text: power(k) })) : ticks(0, last, 4).map((v) => ({ v, text: v >= 1e6 ? short(v) : whole(v) }));
  const half = widthOf(wanted[wanted.length - 1].text, size) / 2 + 2, l = Math.max(...texts.map((t) => widthOf(t, size)), half) + 7 * u;
  const over = (at(wanted[wanted.length - 1].v || 1) / range[1]) * (width - l - 8) + half - (width - l - 8); // of the last number, beyond the axis
  const r = Math.max(8, 8 + Math.min(over, half)), along = width - l - r, labels = new Labels(width, 2 * size.size);
  const kept = wanted.filter(({ v, text }) => labels.place(l + (at(v || (log ? 1 : 0)) / range[1]) * along, size.size, text, { ...size, align: "center" }));
  const own = { tickmode: "array", automargin: false, fixedrange: true };
  return {
    layout: { margin: { l, r, t: 4, b: 20 * u }, xaxis: { ...own, type: app.scale, range, tickvals: kept.map((k) => k.v), ticktext: kept.map((k) => k.text) } },
    yaxis: { ...own, range: bounds, tickvals: marks, ticktext: texts },
  };
}

/**
 * Vertical lines at t₀′ and t₀, where theory has them, and where rates changed; named where there is room beside them.
 * @param {Film} film
 * @param {View} view
 * @param {Colours} c
 * @param {{l: number, r: number, t: number, b: number}} margin
 * @param {How} how
 */
export function verticals(film, view, c, margin, { width, height, large = false }) {
  const u = unit(), size = (large ? 12 : 10) * u, w = width - margin.l - margin.r, hh = height - margin.t - margin.b, labels = new Labels(w, hh);
  /** @type {object[]} */
  const shapes = [];
  /** @type {object[]} */
  const annotations = [];
  /** @type {(x: unknown, texts: string[], colour: string, dash: string, label: boolean) => void} */
  const add = (x, texts, colour, dash, label) => {
    if (typeof x !== "number" || !Number.isFinite(x) || x <= 0 || x > film.run.steps) return;
    shapes.push({ type: "line", x0: x, x1: x, y0: 0, y1: 1, xref: "x", yref: "paper", line: { color: colour, width: 1, dash }, layer: "below" });
    if (!label) return;
    const here = Math.max(0, (at(x) / at(end())) * w);
    for (const [text, side] of texts.flatMap((t) => /** @type {const} */ ([[t, "left"], [t, "right"]]))) { // the side of the text that is at the line
      if (widthOf(text, { size }) > (side === "left" ? w - here : here) - 5) continue;
      for (let row = 0; (row + 1) * size * 1.4 < hh; row++) {
        const place = labels.place(side === "left" ? here + 4 : here - 4, (row * 1.4 + 1) * size, text, { size, align: side });
        if (!place) continue;
        annotations.push({ x: at(x), y: 1 - (row * 1.4 * size) / hh, xref: "x", yref: "paper", text: text.replace(/_([YZ])/g, "<sub>$1</sub>"), showarrow: false, xanchor: side, yanchor: "top", xshift: side === "left" ? 2 : -2, borderpad: 0, bgcolor: c.panel, font: { size, color: colour } }); // other lines end behind it
        return;
      }
    }
  };
  if (app.options.theory && film.run.theory.applies && view.name !== "z") {
    const named = view.name === "growth" || view.name === "chi";
    add(film.run.theory.t_scan, ["t₀′"], c.muted, "dot", named);
    add(film.run.theory.t_snap, ["t₀"], c.muted, "dot", named);
  }
  const recent = film.marks.slice(-30);
  recent.forEach((m, i) => add(m.step, [`η_Y ${short(m.eta_y)}, η_Z ${short(m.eta_z)}`, `η ${short(m.eta_y)}, ${short(m.eta_z)}`], c.ink, "dash", i === recent.length - 1));
  return { shapes, annotations };
}

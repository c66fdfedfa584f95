// What each curve view shows, as plotly traces: the run, the one before it, the pinned run, and what theories say.

import { app, ghost, timeAxis } from "../app.js";
import { CLOSED, COMMON, DISTINCT, FLOW, PINNED, RESPONSE, colours, faint, legible, rgb } from "../draw/colours.js";
import { word } from "../draw/film.js";
import { short, whole } from "../draw/format.js";
import { unit } from "../draw/pen.js";
import { axes, verticals } from "./scales.js";

/** @import { Colours } from "../draw/colours.js" */
/** @import { Film } from "../draw/film.js" */
/** @import { FlowSaid } from "../messages.js" */
/** @typedef {{name: "loss" | "entropy" | "growth" | "chi" | "z", title: string, unit: string, word: string, field: string}} View */
/** @typedef {number | "inf" | "-inf" | null | undefined} Value  Null: a gap. */
/** @typedef {{color: string, width: number, dash?: string}} Line */
/** @typedef {{x: Value[], y: Value[], text?: string[], line: Line, name: string, [key: string]: any}} Trace */
/** @typedef {{margin: {l: number, r: number, t: number, b: number}, width?: number, xaxis: {range?: number[], [key: string]: any}, [key: string]: any}} PlotLayout */
/** @typedef {{points: number, width: number, height: number, large?: boolean, live?: boolean}} How */

/** @type {View[]} */
export const VIEWS = [
  { name: "loss", title: "Loss", unit: "", word: "loss", field: "loss" },
  { name: "entropy", title: "Entropy of attention", unit: "nats", word: "entropy", field: "entropy" },
  { name: "growth", title: "Growth Bₙ", unit: "", word: "Bₙ", field: "growth" },
  { name: "chi", title: "ln χ of the leading token", unit: "", word: "ln χ", field: "log_chi" },
  { name: "z", title: "Logits z", unit: "", word: "z", field: "z" },
];

/** @type {(color: string, width: number, dash?: string) => Line} */
const line = (color, width, dash) => ({ color, width, dash });
/**
 * A line; `text` is what it is of, or what each of its points is of.
 * @type {(name: string, x: Value[], y: Value[], style: Line, text: string | string[], more?: object) => Trace}
 */
const trace = (name, x, y, style, text, more = {}) => ({
  name, x, y, text: typeof text === "string" ? x.map(() => text) : text, type: "scatter", mode: "lines", line: style, showlegend: false, connectgaps: false, ...more,
});

/**
 * @param {Value} v
 * @returns {v is number}
 */
function finite(v) {
  return typeof v === "number" && Number.isFinite(v);
}

const mean = (/** @type {Value[]} */ values) => { const good = values.filter(finite); return good.length ? good.reduce((s, v) => s + v, 0) / good.length : null; };

/**
 * The mean over classes, or the class in focus, from one list per class.
 * @param {Value[][]} lists
 * @returns {Value[]}
 */
function overClasses(lists) {
  if (app.focus >= 0) return lists[app.focus] ?? [];
  return lists[0].map((_, i) => mean(lists.map((l) => l[i])));
}

/**
 * The measured series of a field: bold for the class in focus or the mean, thin for every class.
 * @param {string} name
 * @param {Film} film
 * @param {View} view
 * @param {number} points
 * @param {Line} style
 * @param {Line} [thin]
 */
function measured(name, film, view, points, style, thin) {
  const picks = film.pick(points, timeAxis), { size } = film.fields[view.field], x = picks.map((i) => film.steps[i]);
  const row = (/** @type {number} */ j) => picks.map((i) => { const v = film.value(view.field, i, j); return Number.isFinite(v) ? v : null; });
  const whose = (/** @type {string} */ of) => (name === "run" ? of : `${name}, ${of}`);
  if (view.field === "loss") return [trace(name, x, row(0), style, whose("all classes"))];
  const rows = Array.from({ length: size }, (_, j) => row(j)), out = [];
  if (thin && size > 1) {
    const xs = rows.flatMap(() => [...x, null]), ys = rows.flatMap((r) => [...r, null]);
    out.push(trace("each class", xs, ys, thin, rows.flatMap((_, j) => [...x.map(() => `class ${j}`), ""])));
  }
  const of = app.focus >= 0 ? `class ${app.focus}` : size > 1 ? "mean over classes" : "class 0";
  out.push(trace(`${name}, ${of}`, x, overClasses(rows), style, whose(of)));
  return out;
}

/**
 * z of the query in focus: one thin line per token, coloured by kind.
 * @param {Film} film
 * @param {number} points
 * @param {Colours} c
 */
function logits(film, points, c) {
  const k = Math.max(0, app.focus), q = film.run.layout.class_query[k], tokens = film.run.layout.query_tokens[q];
  const mine = film.run.classes.classes.filter((_, n) => film.run.layout.class_query[n] === q);
  const kind = (/** @type {number} */ t) => { for (const m of mine) { const j = m.tokens.indexOf(t); if (j >= 0) return m.kinds[j]; } return "query"; };
  const picks = film.pick(Math.min(points, Math.ceil(8000 / tokens.length) + 20), timeAxis), x = picks.map((i) => film.steps[i]), out = [];
  for (const [name, colour] of [["common", COMMON], ["distinct", DISTINCT], ["query", c.muted]]) {
    /** @type {Value[]} */
    const xs = [];
    /** @type {Value[]} */
    const ys = [];
    /** @type {string[]} */
    const texts = [];
    tokens.forEach((t, j) => {
      if (kind(t) !== name) return;
      const text = `${word(film.run.classes, t)}, ${name}`;
      picks.forEach((i, p) => { xs.push(x[p]); ys.push(film.z(i, q)[j]); texts.push(text); });
      xs.push(null); ys.push(null); texts.push("");
    });
    if (xs.length) out.push(trace(`${name} tokens`, xs, ys, line(legible(colour, c), 1.3), texts));
  }
  for (const { name, said, style } of paths(c)) {
    if (!said?.z[q]) continue;
    const xs = said.z[q].flatMap(() => [...said.t, null]), ys = said.z[q].flatMap((series) => [...series, null]);
    const texts = said.z[q].flatMap((_, j) => [...said.t.map(() => `${name}, ${word(film.run.classes, tokens[j])}`), ""]);
    out.push(trace(name, xs, ys, { ...style, width: 1 }, texts));
  }
  return out;
}

/**
 * The theories that say a whole path: those switched on.
 * @param {Colours} c
 * @returns {{name: string, said: FlowSaid | null, style: Line}[]}
 */
const paths = (c) => [
  { name: "flow, T → ∞", said: app.options.flow ? app.flow : null, style: line(legible(FLOW, c), 1.6, "dash") },
  { name: "linear response", said: app.options.response ? app.response : null, style: line(legible(RESPONSE, c), 1.6, "dashdot") },
];

/**
 * @param {View} view
 * @param {Colours} c
 */
function overlays(view, c) {
  const out = [], { curves } = app;
  if (app.options.theory && curves) {
    const colour = legible(CLOSED, c), style = line(colour, 1.6, "dot");
    if (view.name === "growth") out.push(trace("closed form", curves.t, overClasses(curves.growth), style, "closed form"));
    if (view.name === "chi") {
      out.push(trace("closed form", curves.t, overClasses(curves.chi_lower), style, "closed form, lower bound"));
      out.push(trace("closed form", curves.t, overClasses(curves.chi_upper), style, "closed form, upper bound", { fill: "tonexty", fillcolor: `rgba(${rgb(colour).join(",")},0.08)` }));
    }
  }
  for (const { name, said, style } of paths(c)) {
    if (!said) continue;
    const y = { loss: [said.loss], entropy: said.entropy, growth: said.growth, chi: said.log_chi, z: [] }[view.name];
    const series = view.name === "loss" ? said.loss : y.length ? overClasses(y) : [];
    if (series.some(finite)) out.push(trace(name, said.t, series, style, name));
  }
  return out;
}

/**
 * The hover text of each point: what it is of, the whole step nearest to it, and its value.
 * @param {Trace} t
 * @param {View} view
 */
function hover(t, view) {
  t.text = t.x.map((x, i) => (finite(x) && finite(t.y[i]) ? `${t.text?.[i] ?? t.name}<br>step ${whole(x)}<br>${view.word} ${short(t.y[i])}${view.unit && ` ${view.unit}`}` : ""));
  t.hovertemplate = "%{text}<extra></extra>";
}

/**
 * Everything plotly needs for one view.
 * @param {View} view
 * @param {How} how
 * @returns {{data: Trace[], layout: PlotLayout}}
 */
export function figure(view, how) {
  const film = app.film, c = colours(), u = unit(), { large = false, live = false } = how, size = (large ? 13 : 10) * u;
  if (!film) throw new Error("There is no run to plot.");
  /** @type {Trace[]} */
  const data = [];
  if (view.name === "z") data.push(...logits(film, how.points, c));
  else {
    const before = ghost()?.film, alike = before && before.fields[view.field]?.size === film.fields[view.field].size;
    if (before?.length && alike) data.push(...measured("run before", before, view, how.points, line(faint(c), 1.5)));
    if (app.pinned?.film.length) data.push(...measured("pinned run", app.pinned.film, view, how.points, line(legible(PINNED, c), 2)));
    data.push(...measured("run", film, view, how.points, line(c.ink, 2), line(faint(c), film.fields[view.field].size > 8 ? 0.5 : 0.8)));
    data.push(...overlays(view, c));
  }
  if (live) for (const t of data) { t.hoverinfo = "skip"; t.text = undefined; } // hovering waits for a pause
  else for (const t of data) hover(t, view);
  const named = new Set();
  for (const t of data) { t.showlegend = large && !named.has(t.name); named.add(t.name); }
  const scales = axes(view, data.flatMap((t) => t.y.filter(finite)), how);
  const { shapes, annotations } = verticals(film, view, c, scales.layout.margin, how);
  if (data.every((t) => !t.y.some(finite))) annotations.push({ text: "not defined for this model", x: 0.5, y: 0.5, xref: "paper", yref: "paper", showarrow: false, font: { size: size + 1, color: c.muted } });
  const axis = { gridcolor: c.line, linecolor: c.line, zeroline: false, tickfont: { size, color: c.muted } };
  return {
    data,
    layout: {
      ...scales.layout, width: how.width, height: how.height,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", dragmode: large ? "zoom" : false,
      hoverlabel: { bgcolor: c.panel, bordercolor: c.line, font: { color: c.ink, size: 12 }, align: "left" },
      font: { family: 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif', color: c.ink },
      uirevision: `${film.run.run}|${app.scale}|${view.name}`,
      xaxis: { ...axis, ...scales.layout.xaxis }, yaxis: { ...axis, ...scales.yaxis },
      shapes, annotations, showlegend: large, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 * u, color: c.ink }, bgcolor: "rgba(0,0,0,0)" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: c.muted, activecolor: c.ink },
    },
  };
}

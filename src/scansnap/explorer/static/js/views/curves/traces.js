// What each curve view shows: the run, the one before it, the pinned run, and what theories say.

import { app, ghost, timeAxis } from "../../app.js";
import { CLOSED, COMMON, DISTINCT, FLOW, PINNED, RESPONSE, SEVERAL, colours, faint, legible, rgb } from "../../draw/colours.js";
import { REACH, sameClasses, word } from "../../draw/film.js";
import { short, whole } from "../../draw/format.js";
import { finite } from "../../draw/plot.js";
import { axes, moments } from "./scales.js";

/** @import { Colours } from "../../draw/colours.js" */
/** @import { Film, Reach } from "../../draw/film.js" */
/** @import { Figure, Line, Point, Trace, Value } from "../../draw/plot.js" */
/** @import { FlowCurves } from "../../messages.js" */
/** @typedef {{name: "loss" | "entropy" | "growth" | "chi" | "z", title: string, unit: string, word: string, field: string}} View */
/**
 * points: at most so many of each curve; zoom: what of the axes is shown; titles: whether the axes are named, and the
 * curves in a legend.
 * @typedef {{points: number, width: number, height: number, size: number, titles?: boolean, zoom?: {x: [number, number], y: [number, number]} | null}} How
 */

const FORMULA = "the paper's formula (closed form)";
/** @type {View[]} */
export const VIEWS = [
  { name: "loss", title: "Loss", unit: "", word: "loss", field: "loss" },
  { name: "entropy", title: "How spread out attention is (entropy)", unit: "nats", word: "entropy", field: "entropy" },
  { name: "growth", title: "Growth Bₙ", unit: "", word: "Bₙ", field: "growth" },
  { name: "chi", title: "ln χ of the leading token", unit: "", word: "ln χ", field: "log_chi" },
  { name: "z", title: "Logits z", unit: "", word: "z", field: "z" },
];

/** @type {(color: string, width: number, dash?: Line["dash"]) => Line} */
const line = (color, width, dash) => ({ color, width, dash });
/**
 * A curve; `text` is what it is of, or what each of its points is of.
 * @type {(name: string, x: Value[], y: Value[], style: Line, text: string | string[], band?: string) => Trace}
 */
const trace = (name, x, y, style, text, band) => ({ name, x, y, texts: typeof text === "string" ? x.map(() => text) : text, line: style, band });

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
  const mine = film.run.layout.class_query.flatMap((of, n) => (of === q ? [n] : []));
  const reach = (/** @type {number} */ t) => mine.map((n) => film.reach(n, t)).find((r) => r !== "query") ?? "query";
  const picks = film.pick(Math.min(points, Math.ceil(8000 / tokens.length) + 20), timeAxis), x = picks.map((i) => film.steps[i]), out = [];
  for (const [name, colour] of /** @type {[Reach, string][]} */ ([["every", COMMON], ["several", SEVERAL], ["only", DISTINCT], ["query", c.muted]])) {
    /** @type {Value[]} */
    const xs = [];
    /** @type {Value[]} */
    const ys = [];
    /** @type {string[]} */
    const texts = [];
    tokens.forEach((t, j) => {
      if (reach(t) !== name) return;
      const text = `${word(film.run.classes, t)}, ${REACH[name]}`;
      picks.forEach((i, p) => { xs.push(x[p]); ys.push(film.z(i, q)[j]); texts.push(text); });
      xs.push(null); ys.push(null); texts.push("");
    });
    if (xs.length) out.push(trace(REACH[name], xs, ys, line(legible(colour, c), 1.3), texts));
  }
  for (const { name, flow, style } of paths(c)) {
    if (!flow?.z[q]) continue;
    const xs = flow.z[q].flatMap(() => [...flow.t, null]), ys = flow.z[q].flatMap((series) => [...series, null]);
    const texts = flow.z[q].flatMap((_, j) => [...flow.t.map(() => `${name}, ${word(film.run.classes, tokens[j])}`), ""]);
    out.push(trace(name, xs, ys, { ...style, width: 1 }, texts));
  }
  return out;
}

/**
 * The predictions of a whole path that are switched on.
 * @param {Colours} c
 * @returns {{name: string, flow: FlowCurves | null, style: Line}[]}
 */
const paths = (c) => [
  { name: "infinite-data limit (flow)", flow: app.options.flow ? app.flow : null, style: line(legible(FLOW, c), 1.6, "dash") },
  { name: "our formula (response)", flow: app.options.response ? app.response : null, style: line(legible(RESPONSE, c), 1.6, "dashdot") },
];

/**
 * @param {View} view
 * @param {Colours} c
 */
function overlays(view, c) {
  const out = [], { curves } = app;
  if (app.options.theory && curves) {
    const colour = legible(CLOSED, c), style = line(colour, 1.6, "dot");
    if (view.name === "growth") out.push(trace(FORMULA, curves.t, overClasses(curves.growth), style, FORMULA));
    if (view.name === "chi") {
      out.push(trace(FORMULA, curves.t, overClasses(curves.chi_lower), style, `${FORMULA}, lower bound`));
      out.push(trace(FORMULA, curves.t, overClasses(curves.chi_upper), style, `${FORMULA}, upper bound`, `rgba(${rgb(colour).join(",")},0.08)`));
    }
  }
  for (const { name, flow, style } of paths(c)) {
    if (!flow) continue;
    const y = { loss: [flow.loss], entropy: flow.entropy, growth: flow.growth, chi: flow.log_chi, z: [] }[view.name];
    const series = view.name === "loss" ? flow.loss : y.length ? overClasses(y) : [];
    if (series.some(finite)) out.push(trace(name, flow.t, series, style, name));
  }
  return out;
}

/**
 * A point in words: what it is of, its step, its value.
 * @param {Point} point
 * @param {View} view
 */
export function describe({ trace: t, i }, view) {
  const step = Number(t.x[i]);
  return { title: t.texts[i] || t.name, sub: `step ${whole(step)}`, lines: [`${view.word} ${short(t.y[i])}${view.unit && ` ${view.unit}`}`] };
}

/**
 * Everything there is to draw of one view.
 * @param {View} view
 * @param {How} how
 * @returns {Figure}
 */
export function figure(view, how) {
  const film = app.film, c = colours();
  if (!film) throw new Error("There is no run to plot.");
  /** @type {Trace[]} */
  const data = [];
  if (view.name === "z") data.push(...logits(film, how.points, c));
  else {
    const before = ghost()?.film, alike = before && sameClasses(film, before);
    if (before?.length && alike) data.push(...measured("run before", before, view, how.points, line(faint(c), 1.5)));
    if (app.pinned?.film.length) data.push(...measured("pinned run", app.pinned.film, view, how.points, line(legible(PINNED, c), 2)));
    data.push(...measured("run", film, view, how.points, line(c.ink, 2), line(faint(c), film.fields[view.field].size > 8 ? 0.5 : 0.8)));
    data.push(...overlays(view, c));
  }
  const values = data.flatMap((t) => t.y.filter(finite)), keys = new Map(data.map((t) => [t.name, { name: t.name, line: t.line }]));
  return {
    data, ...axes(view, values, how), time: timeAxis, moments: moments(film, view, c), size: how.size,
    note: values.length ? "" : "not defined for this model", legend: how.titles ? [...keys.values()] : [],
  };
}

// What each curve view shows, as plotly traces: the run, the pinned run, the flow (dashed), the closed form (dotted).

import { app, timeAxis } from "../app.js";
import { CLOSED, COMMON, DISTINCT, FLOW, PINNED, colours, rgb } from "../draw/colours.js";
import { word } from "../draw/film.js";
import { unit } from "../draw/pen.js";

/** @import { Colours } from "../draw/colours.js" */
/** @import { Film } from "../draw/film.js" */
/** @typedef {{name: "loss" | "entropy" | "growth" | "chi" | "z", title: string, unit: string, field: string}} View */
/** @typedef {number | "inf" | "-inf" | null | undefined} Value  Null: a gap. */
/** @typedef {{color: string, width: number, dash?: string}} Line */
/** @typedef {{x: Value[], y: Value[], text?: string | string[], line: Line, [key: string]: any}} Trace */
/** @typedef {{margin: {l: number, r: number, t: number, b: number}, width?: number, xaxis: {range?: number[], [key: string]: any}, [key: string]: any}} PlotLayout */

/** @type {View[]} */
export const VIEWS = [
  { name: "loss", title: "Loss", unit: "", field: "loss" },
  { name: "entropy", title: "Entropy of attention", unit: "nats", field: "entropy" },
  { name: "growth", title: "Growth Bₙ", unit: "", field: "growth" },
  { name: "chi", title: "ln χ of the leading token", unit: "", field: "log_chi" },
  { name: "z", title: "Logits z", unit: "", field: "z" },
];

const HOVER = "%{text}<br>step %{x}: %{y:.4g}<extra></extra>";
/** @type {(color: string, width: number, dash?: string) => Line} */
const line = (color, width, dash) => ({ color, width, dash });
/** @type {(x: Value[], y: Value[], style: Line, text: string | string[], more?: object) => Trace} */
const trace = (x, y, style, text, more = {}) => ({ x, y, text, type: "scatter", mode: "lines", line: style, hovertemplate: HOVER, showlegend: false, connectgaps: false, ...more });

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
 * @param {Film} film
 * @param {View} view
 * @param {number} points
 * @param {Line} style
 * @param {Line} [thin]
 */
function measured(film, view, points, style, thin) {
  const picks = film.pick(points, timeAxis), { size } = film.fields[view.field], x = picks.map((i) => film.steps[i]);
  const row = (/** @type {number} */ j) => picks.map((i) => { const v = film.value(view.field, i, j); return Number.isFinite(v) ? v : null; });
  if (view.field === "loss") return [trace(x, row(0), style, "loss")];
  const rows = Array.from({ length: size }, (_, j) => row(j)), out = [];
  if (thin && size > 1) {
    const xs = rows.flatMap(() => [...x, null]), ys = rows.flatMap((r) => [...r, null]);
    out.push(trace(xs, ys, thin, rows.flatMap((_, j) => [...x.map(() => `class ${j}`), ""])));
  }
  out.push(trace(x, overClasses(rows), style, app.focus >= 0 ? `class ${app.focus}` : size > 1 ? "mean over classes" : "class 0"));
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
    if (xs.length) out.push(trace(xs, ys, line(colour, 1.2), texts));
  }
  const flow = app.options.flow ? app.flow : null;
  if (flow?.z[q]) {
    const xs = flow.z[q].flatMap(() => [...flow.t, null]), ys = flow.z[q].flatMap((series) => [...series, null]);
    out.push(trace(xs, ys, line("rgba(0,158,115,0.55)", 1, "dash"), "flow T → ∞"));
  }
  return out;
}

/** @param {View} view */
function overlays(view) {
  const out = [], { flow, curves } = app;
  if (app.options.theory && curves) {
    const style = line(CLOSED, 1.6, "dot");
    if (view.name === "growth") out.push(trace(curves.t, overClasses(curves.growth), style, "closed form"));
    if (view.name === "chi") {
      out.push(trace(curves.t, overClasses(curves.chi_lower), style, "closed form, lower bound"));
      out.push(trace(curves.t, overClasses(curves.chi_upper), style, "closed form, upper bound", { fill: "tonexty", fillcolor: "rgba(213,94,0,0.08)" }));
    }
  }
  if (app.options.flow && flow) {
    const y = { loss: [flow.loss], entropy: flow.entropy, growth: flow.growth, chi: flow.log_chi, z: [] }[view.name];
    if (y.length) out.push(trace(flow.t, view.name === "loss" ? flow.loss : overClasses(y), line(FLOW, 1.6, "dash"), "flow T → ∞"));
  }
  return out;
}

/**
 * Vertical lines at t₀′ and t₀ and where rates changed.
 * @param {Film} film
 * @param {View} view
 * @param {Colours} c
 */
function verticals(film, view, c) {
  /** @type {object[]} */
  const shapes = [];
  /** @type {object[]} */
  const annotations = [];
  /** @type {(x: Value, text: string, colour: string, dash: string, y?: number, label?: boolean) => void} */
  const add = (x, text, colour, dash, y = 1, label = true) => {
    if (!finite(x) || x <= 0 || x > film.run.steps) return;
    shapes.push({ type: "line", x0: x, x1: x, y0: 0, y1: 1, xref: "x", yref: "paper", line: { color: colour, width: 1, dash }, layer: "below" });
    if (label) annotations.push({ x: app.scale === "log" ? Math.log10(x) : x, y, xref: "x", yref: "paper", text, showarrow: false, xanchor: "left", yanchor: "top", xshift: 2, font: { size: 10 * unit(), color: colour } });
  };
  if (app.options.theory && view.name !== "z") {
    const named = view.name === "growth" || view.name === "chi";
    add(film.run.theory.t_scan, "t₀′", c.muted, "dot", 1, named);
    add(film.run.theory.t_snap, "t₀", c.muted, "dot", 0.9, named);
  }
  const recent = film.marks.slice(-30);
  recent.forEach((m, i) => add(m.step, i === recent.length - 1 ? `η ${m.eta_y} / ${m.eta_z}` : "", c.ink, "dash", 0.12, i === recent.length - 1));
  return { shapes, annotations };
}

/**
 * Everything plotly needs for one view.
 * @param {View} view
 * @param {{points: number, large?: boolean, live?: boolean}} how
 * @returns {{data: Trace[], layout: PlotLayout}}
 */
export function figure(view, { points, large = false, live = false }) {
  const film = app.film, c = colours(), u = unit(), size = (large ? 13 : 10) * u;
  if (!film) throw new Error("There is no run to plot.");
  /** @type {Trace[]} */
  const data = [];
  if (view.name === "z") data.push(...logits(film, points, c));
  else {
    const fade = film.fields[view.field].size > 8 ? 0.18 : 0.3;
    if (app.pinned?.film.length) data.push(...measured(app.pinned.film, view, points, line(PINNED, 2)));
    data.push(...measured(film, view, points, line(c.ink, 2), line(`rgba(${rgb(c.ink).join(",")},${fade})`, 1)));
    data.push(...overlays(view));
  }
  if (live) for (const t of data) { t.hoverinfo = "skip"; t.hovertemplate = t.text = undefined; } // hovering waits for a pause
  const empty = data.every((t) => !t.y.some(finite));
  const { shapes, annotations } = verticals(film, view, c);
  if (empty) annotations.push({ text: "not defined for this model", x: 0.5, y: 0.5, xref: "paper", yref: "paper", showarrow: false, font: { size: size + 1, color: c.muted } });
  const axis = { gridcolor: c.line, linecolor: c.line, zeroline: false, tickfont: { size, color: c.muted }, automargin: false, nticks: large ? 8 : 5, fixedrange: false };
  const last = Math.max(2, film.run.steps);
  const range = app.scale === "log" ? [0, Math.log10(last)] : [0, last];
  return {
    data,
    layout: {
      margin: large ? { l: 60 * u, r: 20, t: 14, b: 46 * u } : { l: 34 * u, r: 8, t: 4, b: 20 * u },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", dragmode: "zoom",
      hoverlabel: { bgcolor: c.panel, bordercolor: c.line, font: { color: c.ink, size: 12 } },
      font: { family: 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif', color: c.ink },
      uirevision: `${film.run.run}|${app.scale}|${view.name}`,
      xaxis: { ...axis, type: app.scale, range, title: large ? { text: "step", font: { size: 13 * u } } : undefined, exponentformat: "power", dtick: app.scale === "log" ? 1 : undefined },
      yaxis: { ...axis, rangemode: view.name === "z" || view.name === "entropy" ? "normal" : "tozero", tickformat: "~g", title: large ? { text: view.title + (view.unit ? ` (${view.unit})` : ""), font: { size: 13 * u } } : undefined },
      shapes, annotations, showlegend: false, modebar: { bgcolor: "rgba(0,0,0,0)", color: c.muted, activecolor: c.ink },
    },
  };
}

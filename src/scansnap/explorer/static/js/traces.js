// What each curve view shows, as plotly traces: the run, the pinned run, the flow (dashed), the closed form (dotted).

import { app, timeAxis } from "./app.js";
import { word } from "./film.js";
import { unit } from "./pen.js";
import { CLOSED, COMMON, DISTINCT, FLOW, PINNED, colours } from "./theme.js";

export const VIEWS = [
  { name: "loss", title: "Loss", unit: "", field: "loss" },
  { name: "entropy", title: "Entropy of attention", unit: "nats", field: "entropy" },
  { name: "growth", title: "Growth Bₙ", unit: "", field: "growth" },
  { name: "chi", title: "ln χ of the leading token", unit: "", field: "log_chi" },
  { name: "z", title: "Logits z", unit: "", field: "z" },
];

const HOVER = "%{text}<br>step %{x}: %{y:.4g}<extra></extra>";
const line = (color, width, dash) => ({ color, width, dash });
const trace = (x, y, style, text, more = {}) => ({ x, y, text, type: "scatter", mode: "lines", line: style, hovertemplate: HOVER, showlegend: false, connectgaps: false, ...more });

const mean = (values) => { let s = 0, n = 0; for (const v of values) if (Number.isFinite(v)) { s += v; n++; } return n ? s / n : null; };

/** The mean over classes, or the class in focus, from one list per class. */
function overClasses(lists, k = app.focus) {
  if (!lists?.length) return null;
  if (k >= 0) return lists[k] ?? null;
  return lists[0].map((_, i) => mean(lists.map((l) => l[i])));
}

/** The measured series of a field: bold for the class in focus or the mean, thin for every class. */
function measured(film, view, points, style, thin) {
  const picks = film.pick(points, timeAxis), { size } = film.fields[view.field], x = picks.map((i) => film.steps[i]);
  const row = (j) => picks.map((i) => { const v = film.value(view.field, i, j); return Number.isFinite(v) ? v : null; });
  if (view.field === "loss") return [trace(x, row(0), style, "loss")];
  const rows = Array.from({ length: size }, (_, j) => row(j)), out = [];
  if (thin && size > 1) {
    const xs = [], ys = [], texts = [];
    rows.forEach((r, j) => { xs.push(...x, null); ys.push(...r, null); texts.push(...x.map(() => `class ${j}`), ""); });
    out.push(trace(xs, ys, thin, texts));
  }
  out.push(trace(x, overClasses(rows), style, app.focus >= 0 ? `class ${app.focus}` : size > 1 ? "mean over classes" : "class 0"));
  return out;
}

/** z of the query in focus: one thin line per token, coloured by kind. */
function logits(film, points, c) {
  const k = Math.max(0, app.focus), q = film.run.layout.class_query[k], tokens = film.run.layout.query_tokens[q];
  const mine = film.run.classes.classes.filter((_, n) => film.run.layout.class_query[n] === q);
  const kind = (t) => { for (const m of mine) { const j = m.tokens.indexOf(t); if (j >= 0) return m.kinds[j]; } return "query"; };
  const picks = film.pick(Math.min(points, Math.ceil(8000 / tokens.length) + 20), timeAxis), x = picks.map((i) => film.steps[i]), out = [];
  for (const [name, colour] of [["common", COMMON], ["distinct", DISTINCT], ["query", c.muted]]) {
    const xs = [], ys = [], texts = [];
    tokens.forEach((t, j) => {
      if (kind(t) !== name) return;
      const text = `${word(film.run.classes, t)}, ${name}`;
      picks.forEach((i, p) => { xs.push(x[p]); ys.push(film.z(i, q)[j]); texts.push(text); });
      xs.push(null); ys.push(null); texts.push("");
    });
    if (xs.length) out.push(trace(xs, ys, line(colour, 1.2), texts));
  }
  const flow = app.options.flow && app.flow?.z?.[q];
  if (flow) {
    const xs = [], ys = [];
    flow.forEach((series) => { xs.push(...app.flow.t, null); ys.push(...series, null); });
    out.push(trace(xs, ys, line("rgba(0,158,115,0.55)", 1, "dash"), "flow T → ∞"));
  }
  return out;
}

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
    const y = view.name === "loss" ? flow.loss : overClasses(flow[{ entropy: "entropy", growth: "growth", chi: "log_chi" }[view.name]]);
    if (y) out.push(trace(flow.t, y, line(FLOW, 1.6, "dash"), "flow T → ∞"));
  }
  return out;
}

/** Vertical lines at t₀′ and t₀ and where rates changed. */
function verticals(film, view, c) {
  const shapes = [], annotations = [];
  const add = (x, text, colour, dash, y = 1, label = true) => {
    if (!Number.isFinite(x) || x <= 0 || x > film.run.steps) return;
    shapes.push({ type: "line", x0: x, x1: x, y0: 0, y1: 1, xref: "x", yref: "paper", line: { color: colour, width: 1, dash }, layer: "below" });
    if (label) annotations.push({ x: app.scale === "log" ? Math.log10(x) : x, y, xref: "x", yref: "paper", text, showarrow: false, xanchor: "left", yanchor: "top", xshift: 2, font: { size: 10 * unit(), color: colour } });
  };
  if (app.options.theory && film.run.theory && view.name !== "z") {
    const named = view.name === "growth" || view.name === "chi";
    add(film.run.theory.t_scan, "t₀′", c.muted, "dot", 1, named);
    add(film.run.theory.t_snap, "t₀", c.muted, "dot", 0.9, named);
  }
  const recent = film.marks.slice(-30);
  recent.forEach((m, i) => add(m.step, i === recent.length - 1 ? `η ${m.eta_y} / ${m.eta_z}` : "", c.ink, "dash", 0.12, i === recent.length - 1));
  return { shapes, annotations };
}

/** Everything plotly needs for one view. */
export function figure(view, { points, large = false, live = false }) {
  const film = app.film, c = colours(), u = unit(), size = (large ? 13 : 10) * u;
  const data = [];
  if (view.name === "z") data.push(...logits(film, points, c));
  else {
    const fade = film.fields[view.field].size > 8 ? 0.18 : 0.3;
    if (app.pinned?.film.length) data.push(...measured(app.pinned.film, view, points, line(PINNED, 2)));
    data.push(...measured(film, view, points, line(c.ink, 2), line(fadeInk(c.ink, fade), 1)));
    data.push(...overlays(view));
  }
  if (live) for (const t of data) { t.hoverinfo = "skip"; t.hovertemplate = t.text = undefined; } // hovering waits for a pause
  const empty = data.every((t) => t.y?.every((v) => v === null || !Number.isFinite(v)));
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

function fadeInk(ink, alpha) {
  const n = ink.startsWith("#") ? [1, 3, 5].map((i) => parseInt(ink.slice(i, i + 2), 16)) : ink.match(/\d+/g).slice(0, 3);
  return `rgba(${n.join(",")},${alpha})`;
}

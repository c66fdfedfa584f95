// The verdict on every lemma and theorem for the run on screen.

import { $, h, maths } from "./dom.js";
import * as api from "./api.js";
import { app, on } from "./app.js";
import { short, whole } from "./format.js";
import { penFor } from "./pen.js";
import { CLOSED, colours } from "./theme.js";

const SIGN = { holds: "✓", fails: "✕", undecided: "?", "not applicable": "–" };
// What a verdict rests on. Only what was measured is evidence and counted; the others could hardly come out otherwise.
const KIND = { identity: "an identity: it follows for every run, and a failure would be a bug", formula: "a formula: no run takes part", "by definition": "true by definition" };
const panel = $("panel-claims");
let shown = false, busy = false, last = "", timer = null, open = new Set();

export function start() {
  panel.append(h("p", { class: "lead", id: "claims-lead" }, "Verdicts appear once the run has a few steps."), h("div", { id: "claims", class: "view", "data-view": "claims", "aria-live": "off" }));
  on("run", () => { last = ""; $("tally").replaceChildren(); });
  on("frames state", later);
}

export function visible(is) {
  shown = is;
  if (is) { last = ""; later(); }
}

function later() {
  if (timer || !app.film || app.film.lastStep < 2) return;
  timer = setTimeout(() => { timer = null; ask(); }, shown ? 1100 : 2500);
}

async function ask() {
  const film = app.film;
  if (!film || busy) return later();
  const key = `${film.run.run}|${app.state.step}`;
  if (key === last) return;
  busy = true;
  try {
    const answer = await api.claims(film.run.run);
    if (app.film !== film) return;
    last = `${film.run.run}|${answer.step}`;
    draw(answer);
    if (answer.step < app.state.step) later();
  } catch (e) {
    $("claims-lead").textContent = e.message;
    last = key;
  } finally { busy = false; }
}

function draw({ step, setting, claims }) {
  const measured = claims.filter((c) => !(c.kind in KIND)), count = (s) => measured.filter((c) => c.status === s).length;
  $("tally").replaceChildren(...Object.keys(SIGN).map((s) => h("b", { class: s.replace(" ", "-"), title: `${count(s)} ${s}` }, String(count(s)))));
  $("claims-lead").textContent = `At step ${whole(step)}, measured: ${count("holds")} hold, ${count("fails")} fail, ${count("undecided")} undecided, ${count("not applicable")} not applicable.${apart(claims)}${setting ? ` Judged ${setting}.` : ""}`;
  if (!shown) return;
  $("claims").replaceChildren(...claims.map(card));
}

/** The identities, formulas and definitions, in words. */
function apart(claims) {
  const parts = Object.keys(KIND).map((k) => [k, claims.filter((c) => c.kind === k)]).filter(([, list]) => list.length);
  return parts.length ? ` Counted apart: ${parts.map(([k, list]) => `${list.length} ${k} (${list.filter((c) => c.status === "holds").length} hold)`).join(", ")}.` : "";
}

function card(claim) {
  const cls = claim.status.replace(" ", "-");
  const numbers = claim.status === "not applicable" ? null : h("dl", {}, [["measured", claim.measured], ["predicted", claim.predicted], ["margin", claim.margin]].map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, short(v)))));
  const more = h("details", { class: `claim ${cls}`, "data-claim": claim.name, "data-kind": claim.kind, open: open.has(claim.name) },
    h("summary", {}, h("span", { class: "sign", "aria-hidden": "true" }, SIGN[claim.status]),
      h("span", { class: "what" }, h("b", {}, maths(claim.reference || claim.name), claim.kind in KIND ? h("span", { class: "kind", title: KIND[claim.kind] }, claim.kind) : null), h("em", {}, h("strong", {}, claim.status), h("span", { class: "short" }, maths(claim.statement)))), numbers),
    h("p", { class: "statement" }, maths(claim.statement)),
    claim.quantity ? h("p", { class: "explain" }, "Measured: ", maths(claim.quantity), claim.tolerance !== null && claim.tolerance !== undefined ? ` Tolerance ${short(claim.tolerance)}.` : "") : null,
    claim.why ? h("p", { class: "why" }, h("b", {}, claim.status === "not applicable" ? "Why not applicable: " : claim.status === "undecided" ? "What would decide: " : "Note: "), maths(claim.why)) : null,
    claim.assumptions?.length ? h("ul", { class: "assumptions" }, claim.assumptions.map((a) => h("li", { class: a.met ? "met" : "unmet" }, a.met ? "✓ " : "✕ ", maths(a.name), ` ${short(a.value)} against ${short(a.threshold)}`))) : null,
    claim.curve ? h("canvas", { class: "mini", role: "img", "aria-label": `${claim.curve.y_label} against ${claim.curve.x_label}, measured and predicted` }) : null);
  const plot = () => { if (more.open && claim.curve) mini(more.querySelector("canvas"), claim.curve); };
  more.addEventListener("toggle", () => { if (more.open) open.add(claim.name); else open.delete(claim.name); plot(); });
  if (more.open) requestAnimationFrame(plot);
  return more;
}

/** Measured (ink) against predicted (dotted) in a small plot. */
function mini(canvas, { x, measured, predicted, log_x, log_y, x_label, y_label }) {
  const c = colours(), pen = penFor(canvas, canvas), sx = log_x ? Math.log10 : (v) => v, sy = log_y ? Math.log10 : (v) => v;
  const good = (v) => v !== null && Number.isFinite(v), ok = (v, s) => good(v) && Number.isFinite(s(v));
  const xs = x.filter((v) => ok(v, sx)).map(sx), ys = [...measured, ...(predicted ?? [])].filter((v) => ok(v, sy)).map(sy);
  if (xs.length < 2 || ys.length < 2) return;
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)], l = 8, b = 18, w = pen.width - 2 * l, hh = pen.height - b - 16;
  const at = (list) => list.map((v, i) => [x[i], v]).filter(([u, v]) => ok(u, sx) && ok(v, sy)).map(([u, v]) => [l + (w * (sx(u) - x0)) / (x1 - x0 || 1), 14 + hh - (hh * (sy(v) - y0)) / (y1 - y0 || 1)]);
  pen.line(l, 14 + hh, l + w, 14 + hh, c.line);
  if (predicted) pen.path(at(predicted), CLOSED, 2, [2, 3]);
  pen.path(at(measured), c.ink, 1.5);
  pen.text(l, 10, y_label + (log_y ? " (log)" : ""), { fill: c.muted, size: 10 });
  pen.text(l + w, pen.height - 4, x_label + (log_x ? " (log)" : ""), { fill: c.muted, size: 10, align: "right" });
}

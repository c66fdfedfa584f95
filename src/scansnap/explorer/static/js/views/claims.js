// The verdict on every lemma and theorem for the run on screen.

import { $, h, maths, said } from "../page/dom.js";
import * as api from "../server/api.js";
import { app, on } from "../app.js";
import { CLOSED, FLOW, colours } from "../draw/colours.js";
import { short, whole } from "../draw/format.js";
import { penFor } from "../draw/pen.js";

/** @import { ClaimCurve, ClaimInstead, ClaimSaid, ClaimsSaid } from "../messages.js" */

const SIGN = { holds: "✓", fails: "✕", undecided: "?", "not applicable": "–" };
/**
 * What a verdict rests on. Only what was measured is evidence and counted; the others could hardly come out otherwise.
 * @type {Record<string, string>}
 */
const KIND = { identity: "an identity: it follows for every run, and a failure would be a bug", formula: "a formula: no run takes part", "by definition": "true by definition", ours: "a statement of ours: what holds where one of the paper's does not" };
const panel = $("panel-claims");
/** @type {Set<string>} */
const open = new Set();
/** @type {number | null} */
let timer = null;
let shown = false, busy = false, last = "";

export function start() {
  panel.append(h("p", { class: "lead", id: "claims-lead" }, "Verdicts appear once the run has a few steps."), h("div", { id: "claims", class: "view", "data-view": "claims", "aria-live": "off" }));
  on("run", () => { last = ""; $("tally").replaceChildren(); });
  on("frames state", later);
}

/** @param {boolean} is */
export function visible(is) {
  shown = is;
  if (is) { last = ""; later(); }
}

function later() {
  if (timer !== null || !app.film?.run.run || app.film.lastStep < 2) return;
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
    $("claims-lead").textContent = said(e);
    last = key;
  } finally { busy = false; }
}

/** @param {ClaimsSaid} answer */
function draw({ step, setting, claims }) {
  const measured = claims.filter((c) => !(c.kind in KIND)), count = (/** @type {string} */ s) => measured.filter((c) => c.status === s).length;
  $("tally").replaceChildren(...Object.keys(SIGN).map((s) => h("b", { class: s.replace(" ", "-"), title: `${count(s)} ${s}` }, String(count(s)))));
  $("claims-lead").textContent = `At step ${whole(step)}, measured: ${count("holds")} hold, ${count("fails")} fail, ${count("undecided")} undecided, ${count("not applicable")} not applicable.${apart(claims)}${setting ? ` Judged ${setting}.` : ""}`;
  if (!shown) return;
  $("claims").replaceChildren(...claims.map(card));
}

/**
 * The identities, formulas and definitions, in words.
 * @param {ClaimSaid[]} claims
 */
function apart(claims) {
  const parts = Object.keys(KIND).flatMap((kind) => {
    const list = claims.filter((c) => c.kind === kind);
    return list.length ? [`${list.length} ${kind} (${list.filter((c) => c.status === "holds").length} hold)`] : [];
  });
  return parts.length ? ` Counted apart: ${parts.join(", ")}.` : "";
}

/** @param {ClaimSaid} claim */
function card(claim) {
  const cls = claim.status.replace(" ", "-"), { curve, instead } = claim;
  /** @type {[string, unknown][]} */
  const values = [["measured", claim.measured], ["predicted", claim.predicted], ["margin", claim.margin]];
  const numbers = claim.status === "not applicable" ? null : h("dl", {}, values.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, short(v)))));
  const canvas = curve ? h("canvas", { class: "mini", role: "img", "aria-label": `${curve.y_label} against ${curve.x_label}, measured and predicted` }) : null;
  const more = h("details", { class: `claim ${cls}`, "data-claim": claim.name, "data-kind": claim.kind, open: open.has(claim.name) },
    h("summary", {}, h("span", { class: "sign", "aria-hidden": "true" }, SIGN[claim.status]),
      h("span", { class: "what" }, h("b", {}, maths(claim.reference || claim.name), claim.kind in KIND ? h("span", { class: "kind", title: KIND[claim.kind] }, claim.kind) : null), h("em", {}, h("strong", {}, claim.status), h("span", { class: "short" }, maths(claim.statement)))), numbers),
    h("p", { class: "statement" }, maths(claim.statement)),
    claim.quantity ? h("p", { class: "explain" }, "Measured: ", maths(claim.quantity), claim.tolerance !== null ? ` Tolerance ${short(claim.tolerance)}.` : "") : null,
    claim.why ? h("p", { class: "why" }, h("b", {}, claim.status === "not applicable" ? "Why not applicable: " : claim.status === "undecided" ? "What would decide: " : "Note: "), maths(claim.why)) : null,
    claim.assumptions.length ? h("ul", { class: "assumptions" }, claim.assumptions.map((a) => h("li", { class: a.met ? "met" : "unmet" }, a.met ? "✓ " : "✕ ", maths(a.name), ` ${short(a.value)} against ${short(a.threshold)}`))) : null,
    instead ? h("p", { class: "instead" }, h("b", {}, `${instead.words[0].toUpperCase()}${instead.words.slice(1)}: `), maths(`${instead.statement}.`), typeof instead.off === "number" && typeof instead.theirs === "number" ? ` Its curve (broad) is off by ${short(100 * instead.off)}%, the paper's by ${short(100 * instead.theirs)}%.` : "") : null,
    canvas);
  const plot = () => { if (more.open && canvas && curve) mini(canvas, curve, instead); };
  more.addEventListener("toggle", () => { if (more.open) open.add(claim.name); else open.delete(claim.name); plot(); });
  if (more.open) requestAnimationFrame(plot);
  return more;
}

/**
 * Measured (ink) against predicted (dotted) in a small plot, and what holds instead (broad).
 * @param {HTMLCanvasElement} canvas
 * @param {ClaimCurve} curve
 * @param {ClaimInstead | null} instead
 */
function mini(canvas, { x, measured, predicted, log_x, log_y, x_label, y_label }, instead) {
  const place = (/** @type {unknown} */ v, /** @type {boolean} */ log) => (typeof v === "number" ? (log ? Math.log10(v) : v) : NaN);
  const line = (/** @type {unknown[]} */ list, /** @type {unknown[]} */ along = x) => list.map((v, i) => [place(along[i], log_x), place(v, log_y)]).filter((p) => p.every(Number.isFinite));
  const dots = predicted ? line(predicted) : [], drawn = line(measured), xs = x.map((v) => place(v, log_x)).filter(Number.isFinite), ys = [...drawn, ...dots].map((p) => p[1]);
  if (xs.length < 2 || ys.length < 2) return;
  const c = colours(), pen = penFor(canvas, canvas), [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)], l = 8, b = 18, w = pen.width - 2 * l, hh = pen.height - b - 16;
  /** @type {(points: number[][]) => [number, number][]} */
  const at = (points) => points.map(([u, v]) => [l + (w * (u - x0)) / (x1 - x0 || 1), 14 + hh - (hh * (v - y0)) / (y1 - y0 || 1)]);
  pen.line(l, 14 + hh, l + w, 14 + hh, c.line);
  if (instead?.x && instead.y) pen.path(at(line(instead.y, instead.x)), `${FLOW}66`, 6);
  if (predicted) pen.path(at(dots), CLOSED, 2, [2, 3]);
  pen.path(at(drawn), c.ink, 1.5);
  pen.text(l, 10, y_label + (log_y ? " (log)" : ""), { fill: c.muted, size: 10 });
  pen.text(l + w, pen.height - 4, x_label + (log_x ? " (log)" : ""), { fill: c.muted, size: 10, align: "right" });
}

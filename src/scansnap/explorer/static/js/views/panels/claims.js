// The verdict on every lemma and theorem for the run on screen; where it was not judged, what is checked here.

import { $, errorMessage, h, maths, throttle, toast } from "../../page/dom.js";
import { COMMANDS, liveChecks, shippedVerdicts, verifyCommand, whereApplies } from "../../compute/claims.js";
import * as lab from "../../compute/lab.js";
import { askTable } from "../../compute/runner.js";
import { app, frameIndex, on } from "../../app.js";
import { CLOSED, FLOW, colours } from "../../draw/colours.js";
import { short, whole } from "../../draw/format.js";
import { fitting, penFor } from "../../draw/pen.js";
import { take } from "./setup.js";

/** @import { Verdicts } from "../../compute/claims.js" */
/** @import { Table } from "../../draw/sentence.js" */
/** @import { Film } from "../../draw/film.js" */
/** @import { ClaimCurve, ClaimInstead, Claim, Setup } from "../../messages.js" */

const SIGN = { holds: "✓", fails: "✕", undecided: "?", "not applicable": "–" };
/**
 * What a verdict rests on. Only independent statements of the paper are evidence and counted.
 * @type {Record<string, string>}
 */
const KIND = { dependent: "it follows from another statement here, or measures the same again", "proof step": "a step of the paper's proof, not one of its statements", identity: "an identity: it follows for every run, and a failure would be a bug", formula: "a formula: no run takes part", "by definition": "true by definition", ours: "a statement of ours: what holds where one of the paper's does not" };
/** @type {Record<string, string>} */
const PLURAL = { "proof step": "proof steps", identity: "identities", formula: "formulas" };
/** Groups, what is most worth reading first. @type {[Claim["status"], string][]} */
const GROUPS = [["fails", "Fails, with every assumption met"], ["undecided", "Undecided"], ["holds", "Holds"]];
const TABLE = 256; // most rows and columns of a decoder that is checked
const panel = $("panel-claims");
/** @type {Set<string>} */
const open = new Set();
/** @type {AbortController | null} */
let judging = null;
/** @type {{start: Table | null, now: Table | null, asked: number}} */
let tables = { start: null, now: null, asked: -1 }; // of Y, at step 0 and at the step that is checked
/** @type {Map<Film, Verdicts>} verdicts from Python on runs that are not shipped */
const judged = new Map();
let shown = false, last = "";

export function start() {
  panel.append(h("p", { class: "lead", id: "claims-lead" }), h("div", { id: "claims", class: "view", "data-view": "claims", "aria-live": "off" }));
  on("run", () => { judging?.abort(); last = ""; tables = { start: null, now: null, asked: -1 }; });
  on("table", received);
  on("frames state cursor marks run flow", later);
}

/** @param {boolean} is */
export function visible(is) {
  shown = is;
  last = "";
  later();
}

const later = throttle(() => { if (app.film?.length) show(app.film); }, 300);

/** @param {Film} film */
function show(film) {
  const verdicts = shippedVerdicts(film) ?? judged.get(film) ?? null, i = frameIndex(), key = JSON.stringify([film.run.setup, film.marks, Boolean(verdicts), film.steps[i], Boolean(app.curves), shown]);
  if (key === last) return;
  last = key;
  if (verdicts) return draw(verdicts, film);
  $("tally").replaceChildren();
  if (shown) drawChecks(film, i);
}

/**
 * Of a run that Python has not judged: what is checked here, and what judges all of it.
 * @param {Film} film
 * @param {number} i
 */
function drawChecks(film, i) {
  const { setup } = film.run, { why, applies } = film.run.theory, command = film.marks.length ? "" : verifyCommand({ ...setup, steps: film.run.steps });
  $("claims-lead").textContent = applies ? "The file has no verdicts on this run. Below: what the page checks itself, and the command that checks every claim." : `No theorem applies to this run: ${why}.`;
  const commands = command ? [command] : film.marks.length || !applies ? [] : COMMANDS;
  $("claims").replaceChildren(
    checkList(film, i),
    ...(film.marks.length ? [h("p", { class: "explain" }, "No claim covers a run whose rates change on the way.")] : []),
    ...(commands.length ? [h("h3", {}, "Every lemma and theorem"), h("p", { class: "explain" }, command ? "Checked by the Python package, in a terminal:" : "Save the set-up as TOML (Export), then, in a terminal:"), h("pre", { id: "verify-command" }, commands.join("\n")), h("div", { class: "buttons" },
      h("button", { type: "button", class: "small", id: "copy-verify", onclick: () => navigator.clipboard.writeText(commands.join("\n")).then(() => toast("Copied the command."), () => getSelection()?.selectAllChildren($("verify-command"))) }, "Copy"),
      app.catalogue.lab?.verify ? h("button", { type: "button", class: "small primary", id: "judge", onclick: () => judge(film) }, "Check it in Python") : null)] : []));
}

/**
 * Asks the lab's server.
 * @param {Film} film
 */
async function judge(film) {
  judging?.abort();
  const mine = (judging = new AbortController());
  $("claims-lead").textContent = "Python checks the run …";
  try {
    judged.set(film, await lab.verify({ ...film.run.setup, steps: film.run.steps }, mine.signal));
    last = "";
    if (app.film === film) show(film);
  } catch (error) { if (!mine.signal.aborted) $("claims-lead").textContent = errorMessage(error); }
}

/**
 * @param {Verdicts} verdicts
 * @param {Film} film
 */
function draw({ step, setting, claims }, film) {
  const measured = claims.filter((c) => !(c.kind in KIND)), count = (/** @type {string} */ s) => measured.filter((c) => c.status === s).length, none = count("not applicable") === measured.length;
  $("tally").replaceChildren(...(none ? [] : Object.keys(SIGN).map((s) => h("b", { class: s.replace(" ", "-"), title: `${count(s)} ${s}` }, String(count(s))))));
  const of = `the whole run, to step ${whole(step)}${inSnaps(step)}`;
  $("claims-lead").replaceChildren(...(none
    ? [h("b", {}, "No theorem applies to this run"), `, ${of}: its assumptions are not met. Below: what the page can check, and where each of the ${measured.length} independent statements applies.${apart(claims)}`]
    : [h("b", {}, `Judged by scansnap ${app.catalogue.version}`), `, on ${of}. Of ${measured.length} independent statements ${count("holds")} hold, ${count("fails")} fail, ${count("undecided")} undecided, ${count("not applicable")} not applicable.${apart(claims)}`]));
  $("claims-lead").title = setting;
  if (!shown) return;
  const groups = GROUPS.flatMap(([status, title]) => {
    const matching = claims.filter((c) => c.status === status);
    return matching.length ? [h("section", { "data-group": status }, h("h3", {}, `${title} (${matching.length})`), matching.map(card))] : [];
  });
  $("claims").replaceChildren(...(none ? [checkList(film, frameIndex())] : []), ...groups, ...silent(claims.filter((c) => c.status === "not applicable")));
}

/**
 * A table of Y for the checks.
 * @param {Table} table
 */
function received(table) {
  if (!shown) return;
  if (table.step === 0) tables.start = table;
  tables.now = table;
  last = "";
  later();
}

/**
 * Asks for the decoder of a frame, after that of step 0 where it does not begin at 0.
 * @param {Film} film
 * @param {number} i
 */
function askTables(film, i) {
  const step = film.run.setup.init === "zero" || tables.start ? film.steps[i] : 0;
  if (tables.asked === step) return; // it is on its way, or here
  tables.asked = step;
  askTable(TABLE, step);
}

/**
 * What the page itself can say of a run, to a step.
 * @param {Film} film
 * @param {number} i
 */
function checkList(film, i) {
  askTables(film, i);
  const sign = (/** @type {boolean | null} */ is) => (is === null ? "–" : is ? "✓" : "✕"), state = (/** @type {boolean | null} */ is) => (is === null ? "not-applicable" : is ? "holds" : "fails");
  return h("section", {}, h("h3", {}, `Checked here, to step ${whole(film.steps[i])}`), h("ul", { class: "checks", id: "live-checks" }, liveChecks(film, i, app.curves, tables).map((c) => h("li", { class: state(c.is) },
    h("span", { class: "sign", "aria-hidden": "true" }, sign(c.is)), h("span", {}, h("span", { class: "hidden" }, `${state(c.is)}: `), maths(c.what)), h("em", {}, c.value)))));
}

/**
 * A step in units of t₀, where there is one.
 * @param {number} at
 */
function inSnaps(at) {
  const theory = app.film?.run.theory, t = theory?.applies ? theory.t_snap : null;
  return typeof t === "number" ? ` (${short(at / t)} t₀)` : "";
}

/**
 * Statements that say nothing of this run, by the reason why, each reason with a way to where they do.
 * @param {Claim[]} claims
 */
function silent(claims) {
  if (!claims.length) return [];
  /** @type {Map<string, Claim[]>} */
  const by = new Map();
  for (const c of claims) { const key = JSON.stringify([reason(c), whereApplies(c.name)]); by.set(key, [...(by.get(key) ?? []), c]); }
  const groups = [...by.values()].sort((a, b) => b.length - a.length);
  return [h("section", { "data-group": "not applicable" }, h("h3", {}, `Not applicable, because … (${claims.length})`),
    groups.map((list) => h("div", { class: "because" }, h("div", { class: "reason" }, h("p", {}, maths(reason(list[0]))), way(list[0])), list.map(card))))];
}

/** @param {Claim} claim */
function reason(claim) {
  const unmet = claim.assumptions.filter((a) => !a.met);
  return unmet.length ? `not met: ${unmet.map((a) => `${a.name} (${short(a.value)} against ${short(a.threshold)})`).join(", ")}` : claim.why;
}

/** @param {Claim} claim */
function way({ name }) {
  const { where, command } = whereApplies(name);
  if (where) return h("button", { type: "button", class: "small", title: "Loads a set-up in which it applies, and runs it", onclick: () => go(where) }, "Go where it applies");
  return command ? h("p", { class: "explain" }, "Checked on the flow by ", h("code", {}, command)) : null;
}

/** @param {Setup} where */
function go(where) {
  const same = app.catalogue.presets.find((p) => JSON.stringify(Object.entries(p.setup).sort()) === JSON.stringify(Object.entries(where).sort()));
  take(where, { preset: same?.name ?? null, play: true });
}

/**
 * What is not an independent statement of the paper, in words.
 * @param {Claim[]} claims
 */
function apart(claims) {
  const parts = Object.keys(KIND).flatMap((kind) => {
    const list = claims.filter((c) => c.kind === kind);
    return list.length ? [`${list.length} ${list.length > 1 ? PLURAL[kind] ?? kind : kind} (${list.filter((c) => c.status === "holds").length} hold)`] : [];
  });
  return parts.length ? ` Counted apart: ${parts.join(", ")}.` : "";
}

/** @param {Claim} claim */
function card(claim) {
  const cls = claim.status.replace(" ", "-"), { curve, instead } = claim;
  /** @type {[string, unknown][]} */
  const values = [["measured", claim.measured], ["predicted", claim.predicted], ["margin", claim.margin]];
  const numbers = claim.status === "not applicable" ? null : h("dl", {}, values.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, short(v)))));
  const canvas = curve ? h("canvas", { class: "mini", role: "img", "aria-label": `${curve.y_label} against ${curve.x_label}, measured and predicted` }) : null;
  const more = h("details", { class: `claim ${cls}`, "data-claim": claim.name, "data-kind": claim.kind, open: open.has(claim.name) },
    h("summary", {}, h("span", { class: "sign", "aria-hidden": "true" }, SIGN[claim.status]),
      h("span", { class: "what" }, h("b", {}, maths(claim.reference || claim.name), claim.kind in KIND ? h("span", { class: "kind", title: claim.relation || KIND[claim.kind] }, claim.kind) : null), h("em", {}, h("strong", {}, claim.status), h("span", { class: "short" }, maths(claim.statement)))), numbers),
    h("p", { class: "statement" }, maths(claim.statement), claim.relation ? ` It ${claim.relation}.` : ""),
    instead ? h("p", { class: "instead" }, h("b", {}, `${instead.words[0].toUpperCase()}${instead.words.slice(1)}: `), maths(`${instead.statement}.`), typeof instead.off === "number" && typeof instead.theirs === "number" ? ` Its curve (broad) is off by ${short(100 * instead.off)}%, the paper's by ${short(100 * instead.theirs)}%.` : "") : null,
    canvas,
    claim.quantity ? h("p", { class: "explain" }, "Measured: ", maths(`${claim.quantity}.`), claim.tolerance !== null ? ` Tolerance ${short(claim.tolerance)}.` : "") : null,
    claim.why ? h("p", { class: "why" }, h("b", {}, claim.status === "not applicable" ? "Why not applicable: " : claim.status === "undecided" ? "What would decide: " : "Note: "), maths(claim.why)) : null,
    claim.assumptions.length ? h("ul", { class: "assumptions" }, claim.assumptions.map((a) => h("li", { class: a.met ? "met" : "unmet" }, a.met ? "✓ " : "✕ ", maths(a.name), ` ${short(a.value)} against ${short(a.threshold)}`))) : null);
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
  const small = { size: 10 }, value = (/** @type {number} */ v, /** @type {boolean} */ log) => short(log ? 10 ** v : v), foot = { fill: c.muted, ...small };
  pen.line(l, 14 + hh, l + w, 14 + hh, c.line);
  if (instead?.x && instead.y) pen.path(at(line(instead.y, instead.x)), `${FLOW}66`, 6);
  if (predicted) pen.path(at(dots), CLOSED, 2, [2, 3]);
  pen.path(at(drawn), c.ink, 1.5);
  pen.label(l, 10, fitting([`${y_label}${log_y ? " (log)" : ""}, ${value(y0, log_y)} to ${value(y1, log_y)}`, y_label], w, small), foot);
  pen.label(l, pen.height - 4, value(x0, log_x), foot);
  pen.label(l + w, pen.height - 4, value(x1, log_x), { ...foot, align: "right" });
  pen.label(l + w / 2, pen.height - 4, fitting([x_label + (log_x ? " (log)" : ""), x_label], 0.6 * w, small), { ...foot, align: "center" });
}

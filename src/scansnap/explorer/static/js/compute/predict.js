// Three predictions beside the run on screen: the paper's formula (closed forms), the infinite-data limit (flow), our
// formula (linear response). Each is computed once per run, and only while it is shown. A note says what they leave out.

import * as api from "./api.js";
import { isAbort } from "./engine.js";
import { app, emit, on } from "../app.js";
import { short, whole } from "../draw/format.js";
import { errorMessage } from "../page/dom.js";

/** @import { Film } from "../draw/film.js" */
/** @import { RateChange, Setup } from "../messages.js" */
/** @typedef {"theory" | "flow" | "response"} Overlay */

/** @type {Overlay[]} */
export const OVERLAYS = ["theory", "flow", "response"];
/** @type {Record<Overlay, string>} */
const NAMES = { theory: "the paper's formula", flow: "the infinite-data limit", response: "our formula" };
/** @type {AbortController | null} */
let request = null;
let key = "";
/** @type {Set<Overlay>} */
let begun = new Set();
/** @type {Record<Overlay, string>} */
const notes = { flow: "", theory: "", response: "" };

/**
 * What the run has and the predictions leave out.
 * @param {Setup} setup
 */
export function differences(setup) {
  const out = [];
  if (setup.momentum > 0) out.push(`momentum ${setup.momentum} (a late start, then ${short(1 / (1 - setup.momentum))} × the rates)`);
  if (setup.context !== "inf") out.push(`T = ${whole(setup.context)} (sampling moves attention by order 1/T)`);
  return out;
}

/** Why limit and response cannot be computed for the run on screen; empty where they can. */
function noPath() {
  const run = app.film?.run;
  if (!run) return "there is no run yet";
  const { applies, why } = run.theory, frozen = why === "a rate is 0";
  if (!applies && !frozen) return why;
  return run.setup.init !== "zero" ? "they start from Y = Z = 0, this run does not" : run.setup.eta_y === 0 ? "they need η_Y above 0" : "";
}

/** The note under the curves: where predictions do not apply, and what they leave out. */
export function overlayNotes() {
  const film = app.film;
  if (!film) return "";
  const { applies, why } = film.run.theory, none = noPath(), out = [], shown = OVERLAYS.filter((name) => app.options[name]);
  if (!applies) out.push(`The paper's formula, t₀′ and t₀ do not apply to this run: ${why}.`);
  if (none && applies) out.push(`No infinite-data limit and no formula of ours for this run: ${none}.`);
  const assumptions = differences(film.run.setup), possible = applies || !none;
  if (possible && assumptions.length) out.push(`Limit and formulas assume T → ∞ and no momentum; this run has ${assumptions.join(" and ")}. ${shown.length ? "They need not agree with it." : "They are off."}`);
  const changed = film.marks.find((/** @type {RateChange} */ m) => m.step > 0);
  if (possible && changed && shown.length) out.push(`The rates changed at step ${whole(changed.step)}: ${list(shown.map((name) => NAMES[name]))}${applies && app.options.theory ? ", t₀′ and t₀" : ""} use the first rates.`);
  const until = app.options.response ? app.response?.trusted_until : null;
  if (typeof until === "number" && until < film.run.steps) out.push(`Our formula ends at step ${whole(until)}: beyond it, its error exceeds a tenth.`);
  return [...out, ...OVERLAYS.map((name) => notes[name])].filter(Boolean).join(" ");
}

const list = (/** @type {string[]} */ names) => names.join(", ").replace(/, ([^,]*)$/, " and $1").replace(/^./, (ch) => ch.toUpperCase());

/**
 * Predictions that nobody switched by hand are on where they apply to the run as it is.
 * @param {Setup} setup
 */
function follow(setup) {
  const fits = differences(setup).length === 0;
  for (const name of OVERLAYS) app.options[name] = app.chosen[name] ?? fits;
  emit("options");
}

async function refresh() {
  const film = app.film;
  if (!film) return;
  const setup = film.run.setup, last = Math.max(1, film.run.steps), now = JSON.stringify([setup, last]);
  if (now !== key) {
    key = now;
    request?.abort();
    request = new AbortController();
    begun = new Set();
    app.flow = app.curves = app.response = null;
    for (const name of OVERLAYS) notes[name] = "";
    follow(setup);
    emit("flow");
  }
  const { signal } = /** @type {AbortController} */ (request);
  const get = async (/** @type {Overlay} */ what, /** @type {string} */ waiting, /** @type {() => Promise<void>} */ call) => {
    if (!app.options[what] || begun.has(what) || signal.aborted) return;
    begun.add(what);
    notes[what] = waiting;
    emit("flow");
    try {
      await call();
      if (!signal.aborted) notes[what] = "";
    } catch (e) {
      if (isAbort(e) || signal.aborted) return;
      notes[what] = errorMessage(e);
    }
    emit("flow");
  };
  if (film.run.theory.applies) await get("theory", "", async () => { app.curves = api.curves({ setup, last, points: 200 }); });
  if (noPath()) return;
  await get("flow", "Computing the infinite-data limit.", async () => { app.flow = await api.flow({ setup, last, points: 100 }, signal); });
  await get("response", "Computing our formula.", async () => { app.response = await api.flow({ setup, last, points: 100, by: "response" }, signal); });
}

/** @type {[Film, number] | null} */
let known = null; // film and its last step

export function start() {
  on("run state options", refresh);
  on("frames", () => { if (app.film && (known?.[0] !== app.film || known[1] !== app.film.run.steps)) { known = [app.film, app.film.run.steps]; refresh(); } });
}

// What theory says about the run on screen: the closed forms, the T → ∞ flow and the linear response, asked for once
// per run and only while they are shown; and, in words, where they speak of something else than this run.

import * as api from "./api.js";
import { isAbort } from "./engine.js";
import { app, emit, on } from "../app.js";
import { short, whole } from "../draw/format.js";
import { said } from "../page/dom.js";

/** @import { Film } from "../draw/film.js" */
/** @import { MarkSaid, Setup } from "../messages.js" */
/** @typedef {"theory" | "flow" | "response"} Overlay */

/** @type {Overlay[]} */
export const OVERLAYS = ["theory", "flow", "response"];
/** @type {Record<Overlay, string>} */
const NAMES = { theory: "the closed form", flow: "the flow", response: "the response" };
/** @type {AbortController | null} */
let asked = null;
let key = "";
/** @type {Set<Overlay>} */
let begun = new Set();
/** @type {Record<Overlay, string>} */
const notes = { flow: "", theory: "", response: "" };

/**
 * What the run has that the theories leave out, in words.
 * @param {Setup} setup
 */
export function differences(setup) {
  const out = [];
  if (setup.momentum > 0) out.push(`momentum ${setup.momentum} (it starts late, then goes as at ${short(1 / (1 - setup.momentum))} × the rates)`);
  if (setup.context !== "inf") out.push(`T = ${whole(setup.context)} (sampling pushes attention, too, by order 1/T)`);
  return out;
}

/** Why there is no flow and no response for the run on screen; empty where there are. */
function noPath() {
  const run = app.film?.run;
  if (!run) return "there is no run yet";
  const { applies, why } = run.theory, frozen = why === "a rate is 0";
  if (!applies && !frozen) return why;
  return run.setup.init !== "zero" ? "they start from Y = Z = 0, this run does not" : run.setup.eta_y === 0 ? "they need η_Y above 0" : "";
}

/** What is to be known about the overlays, in sentences. */
export function told() {
  const film = app.film;
  if (!film) return "";
  const { applies, why } = film.run.theory, none = noPath(), out = [], shown = OVERLAYS.filter((name) => app.options[name]);
  if (!applies) out.push(`Closed forms, t₀′ and t₀ do not speak of this run: ${why}.`);
  if (none && applies) out.push(`No flow and no response for this run: ${none}.`);
  const other = differences(film.run.setup), possible = applies || !none;
  if (possible && other.length) out.push(`Flow, closed form and response are of T → ∞ without momentum; this run has ${other.join(" and ")}${shown.length ? ": they need not agree." : ": they are off."}`);
  const changed = film.marks.find((/** @type {MarkSaid} */ m) => m.step > 0);
  if (possible && changed && shown.length) out.push(`The rates changed at step ${whole(changed.step)}: ${list(shown.map((name) => NAMES[name]))}${applies && app.options.theory ? ", t₀′ and t₀" : ""} are of the first rates.`);
  const until = app.options.response ? app.response?.trusted_until : null;
  if (typeof until === "number" && until < film.run.steps) out.push(`The response is drawn to step ${whole(until)}: beyond, what it leaves out is more than a tenth of it.`);
  return [...out, ...OVERLAYS.map((name) => notes[name])].filter(Boolean).join(" ");
}

const list = (/** @type {string[]} */ names) => names.join(", ").replace(/, ([^,]*)$/, " and $1").replace(/^./, (ch) => ch.toUpperCase());

/**
 * Overlays that nobody switched by hand are on where they speak of the run as it is.
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
    asked?.abort();
    asked = new AbortController();
    begun = new Set();
    app.flow = app.curves = app.response = null;
    for (const name of OVERLAYS) notes[name] = "";
    follow(setup);
    emit("flow");
  }
  const { signal } = /** @type {AbortController} */ (asked);
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
      notes[what] = said(e);
    }
    emit("flow");
  };
  if (film.run.theory.applies) await get("theory", "", async () => { app.curves = api.curves({ setup, last, points: 200 }); });
  if (noPath()) return;
  await get("flow", "Computing the flow.", async () => { app.flow = await api.flow({ setup, last, points: 100 }, signal); });
  await get("response", "Computing the response.", async () => { app.response = await api.flow({ setup, last, points: 100, by: "response" }, signal); });
}

/** @type {[Film, number] | null} */
let known = null; // film and its last step

export function start() {
  on("run state options", refresh);
  on("frames", () => { if (app.film && (known?.[0] !== app.film || known[1] !== app.film.run.steps)) { known = [app.film, app.film.run.steps]; refresh(); } });
}

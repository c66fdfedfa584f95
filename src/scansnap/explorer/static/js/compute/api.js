// Short answers for the views: from the engine, and from what is in the file.

import { app } from "../app.js";
import { asJson, data } from "./data.js";
import { declared, workers } from "./engine.js";
import { mapAxis } from "../engine/ratemap.js";
import { readSetup } from "../engine/setup/blueprint.js";
import { toCsv, toToml } from "../engine/setup/export.js";
import { offerWords } from "../engine/setup/passage.js";
import { curvesOf, theoryOf } from "../engine/theory/theory.js";

/** @import { Cell } from "../engine/ratemap.js" */
/** @import { Film } from "../draw/film.js" */
/** @import { SetupSummary, ClosedFormsRequest, ClosedForms, FlowRequest, FlowCurves, RateMap, Setup, WordsRequest, TextSummary } from "../messages.js" */

const FRAMES = 200; // of a film as CSV

/**
 * What a set-up means: every default filled in, its classes, what theory says of it.
 * @param {Setup} setup
 * @returns {SetupSummary}
 */
export function check(setup) {
  const blueprint = readSetup(declared, setup);
  return /** @type {any} */ ({ setup: blueprint.setup, classes: blueprint.classes.summary(), theory: theoryOf(declared, blueprint), note: blueprint.note });
}

/** @type {(body: ClosedFormsRequest) => ClosedForms} */
export const curves = ({ setup, ...rest }) => curvesOf(declared, readSetup(declared, setup), rest);
/** @type {(body: FlowRequest, signal: AbortSignal) => Promise<FlowCurves>} */
export const flow = (body, signal) => workers.ask("flow", body, { lane: body.by ?? "flow", signal });
/** @type {(body: WordsRequest) => TextSummary} */
export const words = ({ text, pairs = null }) => /** @type {any} */ (offerWords(text, pairs, app.catalogue.limits.text_characters));
/** @type {(setup: Setup, notes?: string[]) => string} */
export const toml = (setup, notes = []) => toToml(declared, readSetup(declared, setup), notes);

/**
 * A film as a page of its own, its numbers as tidy rows, or its set-up as a run file.
 * @param {Film} film
 * @param {"film.html" | "csv" | "toml"} what
 */
export function file(film, what) {
  const setup = { ...film.run.setup, steps: film.run.steps };
  if (what === "csv") return toCsv(readSetup(declared, setup), film.run.layout, film.steps, film.frames, FRAMES);
  if (what === "toml") return toml(setup, film.marks.map((m) => `from step ${m.step} on: eta_y = ${m.eta_y}, eta_z = ${m.eta_z} (changed on the page, not part of this file)`));
  return data("film").replace('"__FILM__"', () => asJson(filmData(film)));
}

const base64 = (/** @type {ArrayBufferView} */ a) => {
  const all = new Uint8Array(a.buffer, a.byteOffset, a.byteLength), parts = [];
  for (let i = 0; i < all.length; i += 0x8000) parts.push(String.fromCharCode(...all.subarray(i, i + 0x8000)));
  return btoa(parts.join(""));
};

/** @param {Film} film */
function filmData(film) {
  const floats = film.run.layout.floats, values = new Float32Array(film.length * floats);
  film.frames.forEach((frame, i) => values.set(frame, i * floats));
  return { run: film.run, marks: film.marks, n: film.length, floats, steps: base64(Uint32Array.from(film.steps)), data: base64(values) };
}

/**
 * Where attention ends up over the rates of a set-up; `filled` gets what is known so far.
 * @param {Setup} setup
 * @param {(map: RateMap) => void} filled
 * @returns {Promise<RateMap>}
 */
export async function rateMap(setup, filled) {
  const eta_y = mapAxis(declared, "eta_y"), eta_z = mapAxis(declared, "eta_z");
  /** @type {RateMap} */
  const map = { eta_y, eta_z, share: eta_y.map(() => eta_z.map(() => null)), failed_step: eta_y.map(() => eta_z.map(() => null)), known: 0 };
  await workers.map(setup, ({ cells }) => {
    for (const { row, column, share, failed_step } of /** @type {Cell[]} */ (cells)) {
      map.share[row][column] = Number.isNaN(share) ? null : share;
      map.failed_step[row][column] = failed_step;
    }
    map.known += cells.length;
    filled(map);
  });
  return map;
}

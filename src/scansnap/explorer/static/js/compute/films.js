// The film on screen: a worker computes the whole run at full speed. Every change wants a new one; the latest wins, and
// the film before stays as a ghost.

import { $, errorMessage, refuse } from "../page/dom.js";
import { app, emit } from "../app.js";
import { Film } from "../draw/film.js";
import { fieldOf, isAbort, workers } from "./engine.js";

/** @import { RateChange, Setup } from "../messages.js" */
/**
 * A film somebody wants: `preview` while a slider is being dragged, `again` where the one on screen is its beginning,
 * `settle` gets the complete film, or null once another is wanted.
 * @typedef {{setup: Setup, marks: RateChange[], preview: boolean, again: boolean, begun: boolean, settle: (film: Film | null) => void}} Wish
 */

/** @type {Wish | null} */
let current = null;
/** @type {Film | null} */
let standby = null; // a longer film, as long as the one from before reaches further

const same = (/** @type {any} */ a, /** @type {any} */ b) => JSON.stringify(a) === JSON.stringify(b);
/** Whether no more frames come. */
export const over = () => app.state.state === "done" || app.state.state === "failed";
/** The step that the wanted film has come to. */
export const reach = () => (current && !current.begun && !current.again ? -1 : app.film?.lastStep ?? -1);
/** The film that is wanted last, whether it is there or not. */
export const wanted = () => current;
export const say = (/** @type {string} */ message) => refuse($("run-refusal"), message);

/**
 * Computes what a wish is for; the film of an older wish ends where another one begins.
 * @param {Wish} wish
 */
async function compute(wish) {
  const began = performance.now();
  /** @type {Film | null} */
  let film = null;
  const listener = (/** @type {any} */ { type, steps, values, ...about }) => {
    if (type === "about") { film = new Film({ ...about, steps, marks: [] }); begin(wish, film); return; }
    if (type !== "frames" || !film || !steps.length) return;
    grow(film, steps, values);
    app.state.rate = (1000 * app.state.step) / (performance.now() - began);
    emit("frames");
  };
  try {
    const { failed_step } = await workers.ask("film", { setup: wish.setup, marks: wish.marks }, { listener });
    app.state.state = failed_step === null ? "done" : "failed";
    if (failed_step !== null) say(`The run failed at step ${failed_step}: its numbers are no longer finite. Smaller rates help.`);
    put();
    emit("state");
    if (film) wish.settle(film);
  } catch (error) {
    wish.settle(null);
    if (isAbort(error)) return;
    if (current === wish) current = null;
    app.state.state = "failed";
    const field = fieldOf(error);
    emit("refused", { field, message: errorMessage(error) });
    if (!["eta_y", "eta_z"].includes(field)) say(errorMessage(error));
    emit("state");
  }
}

/**
 * The first part of a film is there: it takes the place of the one on screen.
 * @param {Wish} wish
 * @param {Film} film
 */
function begin(wish, film) {
  const old = app.film, last = wish.marks.at(-1), { run } = film;
  wish.begun = true;
  standby = null;
  say("");
  if (wish.again && old?.length) {
    standby = film;
    old.run.steps = run.steps;
  } else {
    app.film = film;
    app.setup0 = wish.setup;
    if (last) { app.setup = { ...app.setup, eta_y: last.eta_y, eta_z: last.eta_z }; emit("setup-shown"); }
  }
  Object.assign(app.state, { state: "running", step: wish.again ? app.state.step : 0, steps: run.steps, rate: 0 });
  emit(wish.again ? "state" : "run");
}

/**
 * @param {Film} film
 * @param {Uint32Array} steps
 * @param {Float64Array} values
 */
function grow(film, steps, values) {
  film.add(steps, values, film.run.layout.floats);
  app.state.step = Math.max(app.state.step, film.lastStep);
  const passed = (current?.marks ?? []).filter((m) => m.step <= film.lastStep);
  const isNew = passed.length > film.marks.length;
  film.marks = passed;
  put();
  if (isNew) emit("marks");
}

/** Puts a longer film in its place once it has come as far as the one on screen. */
function put() {
  if (!standby || (!over() && standby.lastStep < (app.film?.lastStep ?? 0))) return;
  app.film = standby;
  standby = null;
  emit("marks");
}

/**
 * Wants the whole run of a set-up, with changes of its rates on the way; what is there already is not computed again.
 * @param {Setup} setup
 * @param {RateChange[]} marks
 * @param {boolean} preview
 * @returns {Promise<Film | null>}
 */
export function want(setup, marks, preview) {
  const before = current;
  return new Promise((done) => {
    if (before && same([before.setup, before.marks], [setup, marks])) {
      const first = before.settle;
      before.settle = (film) => { first(film); done(film); };
      before.preview &&= preview;
      if (over() && before.begun) before.settle(app.film);
    } else start({ setup, marks, preview, again: false, begun: false, settle: done });
  });
}

/** @param {Wish} wish */
function start(wish) {
  const old = app.film, isResult = old?.length && (over() || app.cursor !== null); // it had come to the step on screen
  if (!wish.again && old && isResult && app.setup0 && current && !current.preview) { app.ghost = { film: old, setup: app.setup0 }; emit("ghost"); }
  current = wish;
  compute(wish);
}

/** Lets the run go on, to twice as many steps. */
export function extend() {
  const steps = Math.min(app.catalogue.limits.steps, app.state.steps * 2), setup = { ...(app.setup0 ?? app.setup), steps };
  app.setup = { ...app.setup, steps };
  app.setup0 = setup;
  start({ setup, marks: current?.marks ?? [], preview: false, again: true, begun: false, settle: () => {} });
  emit("setup-shown");
}

/** The latest question of each size, as several views may ask at once. @type {Map<number, number | undefined>} */
const questions = new Map();
let answering = false;

/**
 * The table Y of the film on screen at a step, or at its last, as the event `table`.
 * @param {number} size at most so many rows and columns; larger tables as means over blocks
 * @param {number} [step]
 */
export async function askTable(size, step) {
  questions.set(size, step);
  if (answering) return;
  answering = true;
  for (let next = questions.entries().next(); !next.done; next = questions.entries().next()) {
    const [of, at] = next.value, film = app.film, wish = current;
    questions.delete(of);
    if (!film || !wish) continue;
    // eslint-disable-next-line no-await-in-loop -- one after the other, in one worker
    const table = await workers.ask("table", { setup: wish.setup, marks: wish.marks, step: at ?? film.lastStep, size: of }, { worker: 1 }).catch(() => null);
    if (table && app.film === film) emit("table", { step: table.step, values: Float32Array.from([table.rows.length, table.columns.length, ...table.rows, ...table.columns, ...table.values]) });
  }
  answering = false;
}

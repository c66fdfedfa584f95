// The film on screen comes from the server, which computes the whole run at full speed. Every change wants a new one;
// the latest wins: the server drops a run whose socket starts another, and the film before stays as a ghost.

import { $, refuse, toast } from "../page/dom.js";
import { app, emit } from "../app.js";
import { Film } from "../draw/film.js";
import { url } from "./api.js";
import { Link, RESTART, unpack } from "./socket.js";

/** @import { ErrorText, MarkSaid, RunText, Setup } from "../messages.js" */
/**
 * A film somebody wants: `preview` while a slider is being dragged, `again` where the one on screen is the same and
 * only the server does not have it, `settle` is told the complete film, or null once another is wanted.
 * @typedef {{setup: Setup, marks: MarkSaid[], preview: boolean, again: boolean, settle: (film: Film | null) => void}} Wish
 */

/** @type {Link} */
let link; // made by connect
/** @type {Wish | null} */
let asked = null; // sent, not answered yet
/** @type {Wish | null} */
let waiting = null; // the latest while another is asked; sent when that is answered
/** @type {Wish | null} */
let current = null; // its frames come in
/** @type {Film | null} */
let standby = null; // a film computed again, as long as the one from before reaches further
let foreign = false; // what comes in belongs to a run that is wanted no more

const same = (/** @type {any} */ a, /** @type {any} */ b) => JSON.stringify(a) === JSON.stringify(b);
const incoming = () => (foreign ? null : standby ?? app.film);
/** Whether no more frames come. */
export const over = () => ["done", "failed", "closed"].includes(app.state.state);
/** The step that the wanted film has come to. */
export const reach = () => ((waiting ?? asked)?.again === false ? -1 : app.film?.lastStep ?? -1);
/** The film that is wanted last, whether it is there or not. */
export const wanted = () => waiting ?? asked ?? current;
export const say = (/** @type {string} */ message) => refuse($("run-refusal"), message);
export const send = (/** @type {{op: string, [key: string]: any}} */ message) => link?.send(message);

export function connect() {
  link = new Link({
    link: (status) => emit("link", status),
    run: begun,
    state: (m) => {
      const into = incoming();
      if (!into) return;
      Object.assign(app.state, m);
      into.run.steps = m.steps;
      if (m.state === "failed") say(`The run failed at step ${m.failed_step}: its numbers are no longer finite. Smaller rates help.`);
      settle();
      emit("state");
    },
    mark: ({ step, eta_y, eta_z }) => {
      const into = incoming();
      if (!into) return;
      into.marks = [...into.marks.filter((m) => m.step !== step), { step, eta_y, eta_z }];
      emit("marks");
    },
    frames: (steps, values, floats, flags) => {
      const into = incoming();
      if (!into || floats !== into.run.layout.floats) return;
      if (flags & RESTART) into.clear();
      into.add(steps, values, floats);
      if (steps.length) app.state.step = Math.max(app.state.step, steps[steps.length - 1]);
      settle();
      emit("frames");
    },
    table: (step, values) => emit("table", { step, values }),
    error: refused,
    closed: (m) => { say(`The run has ended: ${m.reason} Play computes it again.`); app.state.state = "closed"; emit("state"); },
  });
}

/** Shows the default run that is shipped with the page, until the server has it too. */
export async function adopt() {
  const buffer = await (await fetch(url("/static/first.bin"))).arrayBuffer(), length = new Uint32Array(buffer, 0, 1)[0];
  const run = /** @type {RunText} */ (JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)))), wish = wanted();
  if (app.film || (wish && !same([wish.setup, wish.marks], [run.setup, []]))) return;
  if (wish) wish.again = true; // it was asked for before this one was read
  const { steps, values, floats } = unpack(buffer, 4 + length);
  app.film = new Film(run);
  app.film.add(steps, values, floats);
  app.setup0 = run.setup;
  Object.assign(app.state, { state: run.state, step: run.step, steps: run.steps });
  emit("frames");
}

/**
 * The server has a run: the one asked for, or the one on screen after a dropped connection.
 * @param {RunText} m
 */
function begun(m) {
  const wish = asked;
  asked = null;
  foreign = Boolean(wish && waiting);
  if (foreign) return next();
  link.seen = () => incoming()?.lastStep ?? -1;
  say("");
  if (wish) take(wish, new Film(m)); else if (app.film) Object.assign(standby ?? app.film, { marks: [...m.marks] });
  Object.assign(app.state, { state: m.state, step: m.step, steps: m.steps, speed: m.speed });
  emit(wish ? "run" : "state");
}

/**
 * @param {Wish} wish
 * @param {Film} film
 */
function take(wish, film) {
  const old = app.film, last = wish.marks.at(-1);
  standby = null;
  if (wish.again && old?.length) { // the same numbers are on their way: nothing is taken from the screen
    standby = film;
    old.run.run = film.run.run;
  } else {
    const seen = old?.length && (over() || app.cursor !== null); // it had come to the step on screen
    if (old && seen && app.setup0 && !current?.preview) { app.ghost = { film: old, setup: app.setup0 }; emit("ghost"); }
    app.film = film;
    app.setup0 = wish.setup;
    if (last) { app.setup = { ...app.setup, eta_y: last.eta_y, eta_z: last.eta_z }; emit("setup-shown"); }
  }
  current = wish;
}

/** Puts a film computed again in its place once it has come so far, and tells who waits for a film that it is complete. */
function settle() {
  const film = incoming();
  if (!film || !current) return;
  const complete = over() && film.lastStep >= app.state.step;
  if (standby && (complete || standby.lastStep >= (app.film?.lastStep ?? 0))) {
    app.film = standby;
    standby = null;
    emit("marks");
  }
  if (complete) current.settle(film);
}

/** @param {ErrorText} m */
function refused(m) {
  const wish = asked;
  asked = null;
  wish?.settle(null);
  if (wish && waiting) return next();
  if (wish?.again) return say(`The server no longer has this run and could not start it again: ${m.message} What is on screen is from before.`);
  if (!wish && m.field === "run" && !link.run) return again("The server no longer had this run; it is being computed again, with its changes of rates.");
  emit("refused", m);
  if (!["eta_y", "eta_z"].includes(m.field)) say(m.message);
}

function next() {
  asked = waiting;
  waiting = null;
  if (asked) link.send({ op: "start", setup: asked.setup, marks: asked.marks, speed: "max", play: true });
}

/** @param {Wish} wish */
function ask(wish) {
  for (const other of [waiting, asked, current]) other?.settle(null);
  waiting = wish;
  if (!asked) next();
}

/**
 * Wants the whole run of a set-up, with changes of its rates on the way; what is there already is not computed again.
 * @param {Setup} setup
 * @param {MarkSaid[]} marks
 * @param {boolean} preview
 * @returns {Promise<Film | null>}
 */
export function want(setup, marks, preview) {
  const before = wanted();
  return new Promise((done) => {
    if (before && app.state.state !== "closed" && same([before.setup, before.marks], [setup, marks])) {
      const first = before.settle;
      before.settle = (film) => { first(film); done(film); };
      before.preview &&= preview;
      settle();
    } else ask({ setup, marks, preview, again: !before && !marks.length && same(setup, app.setup0), settle: done });
  });
}

/**
 * What is on screen, once more: the server has lost it, and the page knows everything it was made of.
 * @param {string} words
 */
export function again(words) {
  if (!app.setup0 || !app.film) return;
  toast(words);
  ask({ setup: app.setup0, marks: app.film.marks, preview: false, again: true, settle: () => {} });
}

/** Lets the run go on, to twice as many steps. */
export function extend() {
  const steps = Math.min(app.catalogue.limits.steps, app.state.steps * 2);
  for (const op of [{ op: "extend", steps }, { op: "play" }]) link.send(op);
  app.setup = { ...app.setup, steps };
  if (app.setup0) app.setup0 = { ...app.setup0, steps };
  if (current) current.setup = { ...current.setup, steps };
  emit("setup-shown");
}

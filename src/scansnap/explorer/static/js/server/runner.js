// The run on screen: starts it, steers it, takes its frames in, and takes it up again after a dropped connection.

import { $, refuse, throttle, toast } from "../page/dom.js";
import { app, emit, atEdge } from "../app.js";
import { Film } from "../draw/film.js";
import { Link, RESTART } from "./socket.js";

/** @import { MarkSaid, Setup } from "../messages.js" */
/** @import { Pace } from "../app.js" */

/** @type {Link} */
let link; // made by connect, before anything can be asked for
/** @type {number | null} */
let playback = null; // timer of the film being played in the page
/** @type {{marks: MarkSaid[], at: number, sent: number} | null} */
let replay = null; // marks to pass again on the way to a step, from a shared address
/** @type {Setup | null} */
let wanted = null; // set-up of the last start

const say = (/** @type {string} */ message) => refuse($("run-refusal"), message);

export function connect() {
  link = new Link({
    link: (status) => emit("link", status),
    run: (m) => {
      const known = app.film?.run.run === m.run ? app.film : null;
      if (known) { known.run.steps = m.steps; known.marks = [...m.marks]; } else app.film = new Film(m);
      link.seen = () => app.film?.lastStep ?? -1;
      Object.assign(app.state, { state: m.state, step: m.step, steps: m.steps, speed: m.speed });
      say("");
      if (!known) app.cursor = null;
      emit(known ? "state" : "run");
      followReplay();
    },
    state: (m) => {
      Object.assign(app.state, m);
      if (app.film) app.film.run.steps = m.steps;
      if (m.state === "failed") say(`The run failed at step ${m.failed_step}: its numbers are no longer finite. Smaller rates help.`);
      emit("state");
      followReplay();
    },
    mark: (m) => { app.film?.marks.push({ step: m.step, eta_y: m.eta_y, eta_z: m.eta_z }); emit("marks"); },
    frames: (steps, values, floats, flags) => {
      if (!app.film || floats !== app.film.run.layout.floats) return;
      if (flags & RESTART) app.film.clear();
      app.film.add(steps, values, floats);
      if (steps.length) app.state.step = Math.max(app.state.step, steps[steps.length - 1]);
      emit("frames");
    },
    table: (at, values) => emit("table", { step: at, values }),
    reset: () => { app.film?.clear(); if (app.film) app.film.marks = []; app.cursor = null; app.state.step = 0; emit("marks"); emit("cursor"); },
    error: (m) => {
      if (m.field === "run" && wanted && !link.run) { toast("The run was gone; started again."); begin(wanted, false); return; }
      emit("refused", m);
      if (!["eta_y", "eta_z"].includes(m.field)) say(m.message);
    },
    closed: (m) => { say(`The run has ended: ${m.reason}`); app.state.state = "closed"; emit("state"); },
  });
}

/**
 * A new run of a set-up.
 * @param {Setup} setup
 * @param {boolean} playing
 */
export function begin(setup, playing) {
  wanted = app.setup0 = setup;
  stopFilm();
  replay = null;
  link.send({ op: "start", setup, speed: app.speed, play: playing });
}

/**
 * A run as it was when its address was shared: through every change of rates, to a step.
 * @param {Setup} setup
 * @param {MarkSaid[]} marks
 * @param {number} at
 */
export function beginAt(setup, marks, at) {
  wanted = app.setup0 = setup;
  replay = { marks: [...marks], at, sent: -1 };
  link.send({ op: "start", setup, speed: app.speed, play: false });
}

function followReplay() {
  const { state, step: now, steps } = app.state;
  if (!replay || state === "running") return;
  if (state === "failed" || state === "done") { replay = null; return; }
  const next = replay.marks[0], target = Math.min(next ? next.step : replay.at, steps);
  if (now < target) {
    if (replay.sent === now) return;
    replay.sent = now;
    link.send({ op: "step", n: Math.min(target - now, app.catalogue.limits.single_steps) });
  } else if (next) {
    replay.marks.shift();
    replay.sent = -1;
    link.send({ op: "rates", eta_y: next.eta_y, eta_z: next.eta_z });
    app.setup = { ...app.setup, eta_y: next.eta_y, eta_z: next.eta_z };
    emit("setup-shown");
  } else replay = null;
}

export const isRunning = () => app.state.state === "running";
export const isPlaying = () => playback !== null || isRunning();

export function play() {
  if (!app.film) return;
  if (!atEdge()) return playFilm();
  if (app.state.state === "done" || app.state.state === "failed") { seek(0); return playFilm(); }
  if (app.state.state === "closed") { if (wanted) begin(wanted, true); return; }
  app.cursor = null;
  emit("cursor");
  link.send({ op: "play" });
}

export function pause() {
  stopFilm();
  if (isRunning()) link.send({ op: "pause" });
}

export const toggle = () => (isPlaying() ? pause() : play());

export function step() {
  stopFilm();
  if (!app.film) return;
  if (!atEdge()) return seek((app.cursor ?? 0) + 1);
  if (app.state.step >= app.state.steps) return;
  app.cursor = null;
  link.send({ op: "step", n: 1 });
}

/** Back to step 0, at the rates the controls show now. */
export function reset() {
  stopFilm();
  app.cursor = null;
  say("");
  const moved = ["eta_y", "eta_z"].some((k) => app.setup[k] !== wanted?.[k]);
  if (app.state.state === "closed" || moved) begin(app.setup, false);
  else link.send({ op: "reset" });
}

/** @param {Pace} value */
export function speed(value) {
  app.speed = value;
  link.send({ op: "speed", speed: value });
}

export const rates = throttle((/** @type {number} */ eta_y, /** @type {number} */ eta_z) => link.send({ op: "rates", eta_y, eta_z }), 150);

export function extend() {
  const steps = Math.min(app.catalogue.limits.steps, app.state.steps * 2);
  link.send({ op: "extend", steps });
  app.setup = { ...app.setup, steps };
  if (wanted) wanted = app.setup0 = { ...wanted, steps };
  emit("setup-shown");
}

/**
 * The table Y at a step, or the newest.
 * @param {number} size
 * @param {number} [at]
 */
export const askTable = (size, at) => link.send({ op: "y", size, step: at });

/**
 * Shows frame i; the newest frame is followed again when the run goes on.
 * @param {number} i
 */
export function seek(i) {
  if (!app.film?.length) return;
  if (isRunning()) link.send({ op: "pause" });
  const last = app.film.length - 1;
  app.cursor = Math.max(0, Math.min(last, i));
  if (app.cursor === last) app.cursor = null;
  emit("cursor");
}

/** @param {1 | -1} by */
export function move(by) {
  stopFilm();
  if (!app.film) return;
  if (by > 0 && atEdge()) step(); else seek((app.cursor ?? app.film.length - 1) + by);
}

/** Plays the frames the page has, the whole film in about eight seconds, then goes on with the run if it is not over. */
function playFilm() {
  stopFilm();
  const film = app.film;
  if (!film) return;
  const begun = performance.now(), from = app.cursor ?? 0, perMs = Math.max(20, film.length / 8) / 1000;
  const tick = () => {
    const i = from + Math.floor((performance.now() - begun) * perMs), frames = app.film?.length ?? 0;
    if (i >= frames - 1) {
      stopFilm();
      seek(frames - 1);
      if (app.state.state === "paused" && app.state.step < app.state.steps) play();
      return;
    }
    if (i !== app.cursor) { app.cursor = i; emit("cursor"); }
    playback = requestAnimationFrame(tick);
  };
  playback = requestAnimationFrame(tick);
  emit("state");
}

function stopFilm() {
  if (playback !== null) { cancelAnimationFrame(playback); playback = null; emit("state"); }
}

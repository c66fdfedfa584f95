// The film on screen: which run it is, which of its steps is shown, and its playback.

import { throttle } from "../page/dom.js";
import { app, emit, frameIndex, on } from "../app.js";
import * as films from "./films.js";
import * as playback from "./playback.js";

/** @import { RateChange, Setup } from "../messages.js" */
/** @import { Pace } from "../app.js" */
/** @import { Film } from "../draw/film.js" */
/** @import { Pacing } from "./playback.js" */

const SECONDS = 12; // for a whole run, paced by ln t
/** The step to show: the frame there, or the newest as long as that is not there yet. */
let at = 0;

export const { isPlaying, stop } = playback;
/** Whether the run is still being computed. */
export const isRunning = () => app.state.state === "running";
/** Whether anything moves: drawings are simpler then. */
export const isMoving = () => isPlaying() || isRunning();
/** The step on screen. */
export const shownStep = () => app.film?.steps[frameIndex()] ?? 0;
/** The last step the film on screen has or will have. */
const end = () => (films.over() ? Math.max(0, app.film?.lastStep ?? 0) : app.state.steps);

// --- which run -------------------------------------------------------------------------------------------------------

/**
 * Computes the whole run of a set-up. The cursor stays at its step unless the film is to be played. Null if another
 * film was wanted before this one was complete.
 * @param {Setup} setup
 * @param {{marks?: RateChange[], from?: number, play?: boolean, seconds?: number, preview?: boolean}} how
 *   marks: changes of the rates on the way; play: at once, from the step `from` to the end, in so many seconds or at
 *   the chosen pace; preview: a slider is still on its way
 * @returns {Promise<Film | null>}
 */
export function film(setup, { marks = [], from = 0, play: plays = false, seconds = 0, preview = false } = {}) {
  const computed = films.want(setup, marks, preview);
  if (plays) playback.play(paced(from, () => app.state.steps, seconds), end, films.reach, show);
  return computed;
}

/**
 * A film as it was when its address was shared: with every change of rates, at a step.
 * @param {Setup} setup
 * @param {RateChange[]} marks
 * @param {number} step
 */
export function beginAt(setup, marks, step) {
  seekStep(step);
  film(setup, { marks });
}

/** What a change of the rates goes on from: the film, and the step on screen or the one that is waited for. */
function ground() {
  const { setup, marks } = films.wanted() ?? { setup: app.setup0 ?? app.setup, marks: [] };
  return { setup, marks, step: app.fromHere ? (at <= films.reach() || at === Infinity ? shownStep() : Math.floor(at)) : 0 };
}

/** @type {ReturnType<typeof ground> | null} */
let drag = null; // ground of the slider on its way

/**
 * @param {ReturnType<typeof ground>} ground
 * @param {boolean} preview
 */
function changeRates({ setup, marks, step }, preview) {
  const { eta_y, eta_z } = app.setup;
  if (step > 0) film(setup, { marks: [...marks.filter((m) => m.step < step), { step, eta_y, eta_z }], preview });
  else film(app.setup, { preview });
}

const previewRates = throttle(() => { if (drag) changeRates(drag, true); }, 150);

/**
 * The rates that the controls show are to act: from step 0 on, or from the step on screen. A slider on its way is
 * shown as a film of its own, but is not yet a result to compare with, and makes one change of the rates in all.
 * @param {boolean} dragging
 */
export function rates(dragging = false) {
  drag ??= ground();
  if (dragging) return previewRates();
  changeRates(drag, false);
  drag = null;
}

export function extend() {
  show(shownStep());
  films.extend();
}

export const { askTable } = films;

// --- which step ------------------------------------------------------------------------------------------------------

/** The frame of the wanted step, or the newest. */
function place() {
  const now = app.film, shown = !now?.length || at >= now.lastStep ? null : now.at(at);
  if (shown === app.cursor) return;
  app.cursor = shown;
  emit("cursor");
}

on("run frames marks state", place); // before the views hear of it

/** @param {number} step */
function show(step) {
  at = step;
  place();
}

/** @param {number} step */
export function seekStep(step) {
  stop();
  show(Math.max(0, step));
}

/**
 * Shows frame i; beyond the last one the newest, and those that come.
 * @param {number} i
 */
export function seek(i) {
  if (!app.film?.length) return;
  const last = app.film.length - 1;
  seekStep(i >= last ? (films.over() ? app.film.lastStep : Infinity) : app.film.steps[Math.max(0, i)]);
}

/** @param {1 | -1} by */
export function move(by) {
  if (app.film) seek(frameIndex() + by);
}

export const step = () => move(1);

/** Back to step 0; changes of the rates on the way are taken back, and the rates on screen hold from the start. */
export function reset() {
  seekStep(0);
  films.say("");
  if (films.wanted()?.marks.length) film(app.setup);
}

// --- playback --------------------------------------------------------------------------------------------------------

/**
 * The step after so many seconds from a step on, and the seconds to a step.
 * @param {number} from
 * @param {() => number} last
 * @param {number} seconds  to the last step, paced by ln t; 0: the pace chosen beside the slider
 * @returns {Pacing}
 */
function paced(from, last, seconds) {
  const x = (/** @type {number} */ s) => Math.log(s + 1), pace = seconds ? "log" : app.speed;
  const perSecond = () => (seconds ? (x(last()) - x(from)) / seconds : x(last()) / SECONDS) || 1;
  if (pace === "max") return { from, step: () => Infinity, time: () => 0 };
  if (pace !== "log") return { from, step: (t) => from + t * pace, time: (s) => (s - from) / pace };
  const stepAt = (/** @type {number} */ t) => Math.max(from, Math.exp(x(from) + t * perSecond()) - 1); // rounding must not take it back
  return { from, step: stepAt, time: (s) => (x(s) - x(from)) / perSecond() };
}

/** From the step on screen to the end, or from the beginning where the end is on screen. */
export function play() {
  if (!app.film) return;
  const from = shownStep() >= end() ? 0 : shownStep();
  playback.play(paced(from, () => app.state.steps, 0), end, films.reach, show);
}

/**
 * Plays from one step to another, paced by ln t; settles when it is there, or was stopped.
 * @param {number} from
 * @param {number} to
 * @param {number} seconds
 * @returns {Promise<void>}
 */
export const playSteps = (from, to, seconds) => playback.play(paced(from, () => to, seconds), () => Math.min(to, end()), films.reach, show);

export const pause = stop;
export const toggle = () => (isPlaying() ? stop() : play());

/** @param {Pace} value */
export function speed(value) {
  app.speed = value;
  if (isPlaying()) play();
  emit("speed");
}

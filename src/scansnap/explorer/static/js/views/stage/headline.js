// Above the stage: the question that a set-up asks. At the end of the run: the answer, computed from the run, and what to
// try next. Where attention hardly moves: an offer to draw its movement magnified.

import { $, h, maths } from "../../page/dom.js";
import { app, emit, frameIndex, ghost, on } from "../../app.js";
import { sameClasses } from "../../draw/film.js";
import { fromTo, short } from "../../draw/format.js";
import * as runner from "../../compute/runner.js";
import { take } from "../panels/setup.js";
import { openWords } from "../dialogs/words.js";

const button = $("watch"), question = $("question");
export const TIMES = 1000; // how much movement is magnified
const HARDLY = 0.02; // a smaller change of every token's share counts as none
const MOVEMENT_STEPS = 100; // a run is called still from this step on
const OWN = "Which of your words does it learn to look at?", ANY = "Where does attention go with these settings?";
const FASTER = 10; // times as fast a decoder, where that is the next thing to try
const FAST = 10; // η_Y / η_Z from which on the decoder is the fast one
let currentQuestion = ""; // the question in force

/** @returns {[string, () => void]} what to try next, and how */
function next() {
  const { eta_y, eta_z, optimizer } = app.setup;
  if (eta_z === 0) return ["let attention learn", () => take({ ...app.setup, eta_z: 1 }, { play: true })];
  if (optimizer === "sgd" && Number(eta_y) / Number(eta_z) < FAST) return ["make the decoder faster", () => take({ ...app.setup, eta_y: Number((Number(eta_y) * FASTER).toPrecision(3)) }, { play: true })];
  return app.film?.run.classes.words ? ["use your own words", openWords] : ["watch it with words", () => { const first = app.catalogue.presets[0]; take(first.setup, { preset: first.name, play: true }); }];
}

/** Whether the last step of a complete run is on screen. */
const isOver = () => Boolean(app.film && app.film.lastStep > 0 && app.state.state === "done" && app.film.lastStep >= app.state.steps && app.film.steps[frameIndex()] === app.film.lastStep);

/** What became of attention in the run on screen. */
function answer() {
  const film = app.film;
  if (!film) return [];
  const what = film.run.classes.words ? "words" : "tokens", was = film.common(0), now = film.common(film.length - 1), before = ghost()?.film;
  const commonBefore = before && before.lastStep === film.lastStep && sameClasses(before, film) ? before.common(before.length - 1) : null;
  const [label, act] = next();
  const compared = commonBefore !== null && Math.abs(commonBefore - now) > 0.005 ? ` (before: ${Math.round(100 * commonBefore)}%)` : "";
  const result = was > 0 ? `Shared ${what}: ${fromTo(was, now).replaceAll(" ", "\u00a0")} of attention${compared}.` : `No ${what} are shared here.`;
  return [h("span", {}, result), " ", h("button", { type: "button", class: "next", id: "next", onclick: act }, `Next: ${label}`)];
}

let shown = ""; // what stands there: it is not written again and again
function show() {
  const over = isOver() && !runner.isPlaying(), key = over ? `${app.film?.number}|${app.film?.version}|${ghost()?.film.number}` : currentQuestion;
  if (key !== shown) {
    shown = key;
    question.replaceChildren(...(over ? answer() : [maths(currentQuestion.replaceAll("-", "\u2011"))])); // no line ends at a hyphen
    question.dataset.is = over ? "answer" : "question";
  }
  const playing = runner.isPlaying();
  button.textContent = playing ? "❚❚ Pause" : "▶ Watch";
  button.title = playing ? "Pause (space)" : "Play the run from step 0";
}

function ask() {
  const preset = app.catalogue?.presets.find((p) => p.name === app.preset);
  currentQuestion = preset?.question ?? (app.setup?.classes.text === undefined ? ANY : OWN);
  show();
}

function watch() {
  if (runner.isPlaying()) return runner.stop();
  runner.seekStep(0);
  runner.play();
}

const magnify = h("button", { type: "button", id: "movement", class: "small", "aria-pressed": "false", title: `How far attention has moved since step 0, ${TIMES} × as large`, onclick: () => { app.options.movement = !app.options.movement; emit("options"); } }, `movement × ${TIMES}`);
const movementText = h("span", { role: "status" }), movementNote = h("div", { id: "movement-note", hidden: true }, movementText, magnify);

/** Whether the run has been watched long enough and attention has gone nowhere. */
const hardlyMoves = () => Boolean(app.film && app.film.lastStep >= Math.min(MOVEMENT_STEPS, app.film.run.steps) && app.film.moved < HARDLY);

function showMovement() {
  const offered = hardlyMoves(), film = app.film;
  if (!offered && app.options.movement && film && film.lastStep > 0) { app.options.movement = false; emit("options"); return; }
  movementNote.hidden = !offered;
  magnify.setAttribute("aria-pressed", String(app.options.movement));
  if (!offered || !film) return;
  const { applies, assumptions } = film.run.theory, met = applies && assumptions.length > 0 && assumptions.every((a) => a.met || a.weaker);
  magnify.hidden = film.moved === 0;
  if (film.moved === 0) { movementText.replaceChildren(maths(film.run.setup.eta_z === 0 ? "Attention is frozen here: η_Z is 0, and no token's share changes." : "Attention has not moved at all so far.")); return; }
  movementText.textContent = `${met ? "Here the theorems apply and attention barely moves" : "Attention barely moves here"}: no token's share has changed by more than ${short(film.moved)}.`;
}

/** The page holds the question of the first run until presets are read. */
export function start() {
  currentQuestion = location.hash ? ANY : question.dataset.first ?? "";
  show();
  on("setup run", () => { if (app.catalogue) ask(); });
  on("state cursor frames ghost", show);
  $("headline").prepend(movementNote);
  on("run frames options state", showMovement);
  button.addEventListener("click", watch);
}

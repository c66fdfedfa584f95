// Over the stage: the question that a set-up asks; once the run has been watched to its end, what came of it, computed
// from the run, and what to try next.

import { $, h, maths } from "../page/dom.js";
import { app, frameIndex, ghost, on } from "../app.js";
import { fromTo } from "../draw/format.js";
import * as runner from "../compute/runner.js";
import { take } from "./setup.js";
import { openWords } from "./words.js";

const button = $("watch"), question = $("question");
const OWN = "Which of your words does it learn to look at?", ANY = "Where does attention go with these settings?";
const FASTER = 10; // times as fast a decoder, where that is the next thing to try
const FAST = 10; // η_Y / η_Z from which on the decoder is the fast one
let asked = ""; // the question in force

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
  const other = before && before.lastStep === film.lastStep ? before.common(before.length - 1) : null;
  const [label, act] = next();
  const compared = other !== null && Math.abs(other - now) > 0.005 ? ` (before: ${Math.round(100 * other)}%)` : "";
  const result = was > 0 ? `Shared ${what}: ${fromTo(was, now)} of attention${compared}.` : `No ${what} are shared here.`;
  return [h("span", {}, result), " ", h("button", { type: "button", class: "next", id: "next", onclick: act }, `Next: ${label}`)];
}

let shown = ""; // what stands there: it is not written again and again
function show() {
  const over = isOver() && !runner.isPlaying(), key = over ? `${app.film?.number}|${app.film?.version}|${ghost()?.film.number}` : asked;
  if (key !== shown) {
    shown = key;
    question.replaceChildren(...(over ? answer() : [maths(asked.replaceAll("-", "\u2011"))])); // no line ends at a hyphen
    question.dataset.is = over ? "answer" : "question";
  }
  const playing = runner.isPlaying();
  button.textContent = playing ? "❚❚ Pause" : "▶ Watch";
  button.title = playing ? "Pause (space)" : "Play the run from step 0";
}

function ask() {
  const preset = app.catalogue?.presets.find((p) => p.name === app.preset);
  asked = preset?.question ?? (app.setup?.classes.text === undefined ? ANY : OWN);
  show();
}

function watch() {
  if (runner.isPlaying()) return runner.stop();
  runner.seekStep(0);
  runner.play();
}

/** Before the server has said what there is, the question of the first run stands in the page. */
export function start() {
  asked = location.hash ? ANY : question.dataset.first ?? "";
  show();
  on("setup run", () => { if (app.catalogue) ask(); });
  on("state cursor frames ghost", show);
  button.addEventListener("click", watch);
}

// Over the stage: the question that a preset asks, and a button that shows the answer happening.

import { $ } from "../page/dom.js";
import { app, on } from "../app.js";
import * as runner from "../server/runner.js";

const row = $("headline"), button = $("watch");

const OWN = "Which of your words does it learn to look at?";
const show = () => ask(app.catalogue.presets.find((p) => p.name === app.preset)?.question ?? (app.setup.classes.text === undefined ? "" : OWN));

/** @param {string} question */
function ask(question) {
  $("question").textContent = question.replaceAll("-", "\u2011"); // which no line ends at
  row.hidden = !question;
  label();
}

function label() {
  const playing = runner.isPlaying();
  button.textContent = playing ? "❚❚ Pause" : "▶ Watch";
  button.title = playing ? "Pause (space)" : "Play the run from step 0";
}

function watch() {
  if (runner.isPlaying()) return runner.stop();
  runner.seekStep(0);
  runner.play();
}

/** Before the server has said what there is, the question of the first run stands in the page. */
export function start() {
  if (!location.hash) ask($("question").dataset.first ?? "");
  on("setup run", show);
  on("state cursor", label);
  button.addEventListener("click", watch);
}

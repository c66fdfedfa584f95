// Over the stage: the question that a preset asks, and a button that shows the answer happening.

import { $ } from "../page/dom.js";
import { app, on } from "../app.js";
import * as runner from "../server/runner.js";

const row = $("headline"), button = $("watch");

function show() {
  const question = app.catalogue?.presets.find((p) => p.name === app.preset)?.question ?? "";
  $("question").textContent = question;
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

export function start() {
  on("setup run", show);
  on("state cursor", label);
  button.addEventListener("click", watch);
}

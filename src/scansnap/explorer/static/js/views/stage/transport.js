// Play, pause, step, pace, and the slider that goes through the run, which is a film.

import { $, h } from "../../page/dom.js";
import { app, on, frameIndex, atEdge, timeAxis } from "../../app.js";
import { short, whole } from "../../draw/format.js";
import * as runner from "../../compute/runner.js";

/** @import { Pace } from "../../app.js" */

/** @type {Pace[]} */
const SPEEDS = ["log", 1, 3, 10, 30, 100, 300, 1000, 3000, 10000, "max"];
const RESOLUTION = 2000;
/** @type {HTMLInputElement} */
const scrub = $("scrub");
/** @type {HTMLSelectElement} */
const speed = $("speed");
const clock = $("clock");
let dirty = true, dragging = false;

const icon = (/** @type {string} */ path) => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const p = document.createElementNS("http://www.w3.org/2000/svg", "path");
  p.setAttribute("d", path);
  svg.append(p);
  return svg;
};
const PLAY = "M6 3.5v13l11-6.5z", PAUSE = "M5 3.5h3.6v13H5zM11.4 3.5H15v13h-3.6z", STEP = "M4 3.5v13l9-6.5zM14 3.5h2.4v13H14z",
  RESET = "M10 3.2a6.8 6.8 0 1 1-6.6 8.4h2.1A4.8 4.8 0 1 0 6.3 7H9v2H3V3h2v2.4A6.8 6.8 0 0 1 10 3.2z";

const end = () => timeAxis(Math.max(1, app.film?.run.steps ?? 1));

function drawMarks() {
  const film = app.film, box = $("scrub-marks");
  if (!film) return;
  const theory = film.run.theory;
  /** @type {[string, unknown, string][]} */
  const at = film.marks.map((m) => ["rate", m.step, "rates changed"]);
  if (theory.applies && app.options.theory) at.push(["t", theory.t_scan, "t₀′"], ["t", theory.t_snap, "t₀"]);
  box.replaceChildren(...at.flatMap(([kind, s, title]) => {
    if (typeof s !== "number" || s > film.run.steps) return [];
    const i = document.createElement("i");
    i.className = kind;
    i.title = title;
    i.style.left = `${(100 * timeAxis(s)) / end()}%`;
    return [i];
  }));
}

export function frame() {
  if (!dirty) return;
  dirty = false;
  const { state, steps, rate } = app.state, playing = runner.isPlaying(), i = frameIndex(), step = i >= 0 ? app.film?.steps[i] ?? 0 : 0;
  const button = $("play");
  if (button.dataset.is !== String(playing)) {
    button.dataset.is = String(playing);
    button.replaceChildren(icon(playing ? PAUSE : PLAY));
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
  }
  const word = state === "failed" ? ", failed" : state !== "running" ? "" : `, computing${rate ? ` ${short(rate)}/s` : ""}`;
  const [now, rest] = clock.children;
  now.textContent = whole(step);
  rest.textContent = `of ${whole(steps)}${word}`;
  clock.dataset.state = state;
  scrub.disabled = !app.film?.length;
  if (app.film?.length) {
    scrub.max = String(RESOLUTION);
    if (!dragging) scrub.value = String(Math.round((RESOLUTION * timeAxis(step)) / end()));
    scrub.setAttribute("aria-valuetext", `step ${step} of ${steps}`);
  }
  $("extend").style.visibility = state === "done" && atEdge() ? "visible" : "hidden";
}

export function start() {
  $("reset").append(icon(RESET));
  $("step").append(icon(STEP));
  const acts = { play: runner.toggle, step: runner.step, reset: runner.reset, extend: runner.extend };
  for (const [id, act] of Object.entries(acts)) {
    $(id).addEventListener("click", (event) => {
      act();
      if (event.detail) $(id).blur(); // a click of the mouse, not of the keyboard: space is for the film again
    });
  }
  scrub.addEventListener("pointerdown", () => { dragging = true; runner.pause(); });
  for (const over of ["pointerup", "pointercancel", "change"]) scrub.addEventListener(over, () => { dragging = false; dirty = true; }); // back to the frame on screen
  scrub.addEventListener("input", () => {
    if (!app.film?.length) return;
    const at = (Number(scrub.value) / RESOLUTION) * end(), step = app.scale === "log" ? Math.exp(at) - 1 + 1e-6 : at;
    runner.seekStep(step < app.film.lastStep ? app.film.steps[app.film.at(step)] : step); // one still on its way is waited for
  });
  speed.append(...SPEEDS.map((s) => h("option", { value: String(s) }, s === "log" ? "ln t, 12 s" : s === "max" ? "max" : `${whole(s)}/s`)));
  speed.addEventListener("change", () => { runner.speed(SPEEDS[speed.selectedIndex]); speed.blur(); });
  on("speed", showSpeed);
  on("frames state cursor run scale marks options", () => (dirty = true));
  on("run marks state scale options", drawMarks);
  showSpeed();
}

function showSpeed() {
  const now = app.speed;
  speed.selectedIndex = SPEEDS.findIndex((s) => s === now || (typeof now === "number" && (s === "max" || (typeof s === "number" && s >= now))));
}

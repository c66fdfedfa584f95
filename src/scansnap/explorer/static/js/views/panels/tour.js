// The guided tour: each scene a set-up with commentary, a question, and a change that answers it.

import { $, h, maths } from "../../page/dom.js";
import { app, emit } from "../../app.js";
import { remember } from "../../address.js";
import { pinSetup, unpin } from "../stage/compare.js";
import * as runner from "../../compute/runner.js";
import { take } from "./setup.js";
import * as tabs from "../../page/tabs.js";

/** @import { RateChange, Scene, Setup } from "../../messages.js" */

const panel = $("panel-tour");
/** @type {Scene[]} */
let scenes = [];
let at = -1;
const TRY = 8; // seconds to the end of the run that answers a question

export function start() {
  panel.append(h("p", { class: "lead" }, "Loading the tour."));
}

export function load() {
  if (scenes.length) return;
  scenes = app.catalogue.scenes;
  overview();
}

/** On a phone the words lie under the stage: it comes into view with them. */
function showStage() {
  if (getComputedStyle(panel).position === "fixed") $("stage").scrollIntoView();
}

/** On a phone the tour lies over the page; everywhere it can be left. */
const leave = () => h("button", { type: "button", class: "icon leave", id: "tour-close", "aria-label": "Close the tour", title: "Close the tour (t)", onclick: () => { at = -1; highlight([]); tabs.pick("setup"); } }, "×");

function overview() {
  showStage();
  panel.replaceChildren(leave(),
    h("p", { class: "lead" }, `${scenes.length} short scenes, in the order in which training goes. Each runs by itself and ends with a question for you.`),
    h("ol", { class: "scenes" }, scenes.map((s, i) => h("li", {}, h("button", { type: "button", onclick: () => go(i) }, maths(s.title))))));
}

/**
 * Opens scene i, or the nearest there is: its set-up, its speed, its view; `quiet` shows the words only.
 * @param {number} i
 */
export async function go(i, quiet = false) {
  load();
  if (!scenes.length) return;
  at = Math.max(0, Math.min(scenes.length - 1, Math.round(i)));
  const s = scenes[at];
  remember("scene", at);
  draw(s);
  highlight(s.watch);
  if (quiet) return;
  emit("watch", s.watch);
  if (s.overlay) pinSetup(s.overlay); else unpin();
  await play(s.setup, [], 0, s.until, s.seconds);
}

/**
 * A run of a scene, played where there is something to see.
 * @param {Setup} setup
 * @param {RateChange[]} marks
 * @param {number} from
 * @param {number} to
 * @param {number} seconds
 */
const play = (setup, marks, from, to, seconds) => take(setup, { then: () => {
  runner.film(app.setup, { marks });
  runner.playSteps(from, to, seconds);
} });

/** @param {Scene} s */
function draw(s) {
  const answer = h("div", { class: "answer", hidden: true }, h("p", {}, maths(s.answer)));
  const reveal = h("button", { type: "button", id: "tour-answer", onclick: () => { answer.hidden = false; reveal.hidden = true; answer.scrollIntoView({ block: "nearest" }); } }, "Answer");
  const onward = at < scenes.length - 1 ? h("button", { type: "button", class: "primary", id: "tour-next", onclick: () => go(at + 1) }, "Next") : h("button", { type: "button", onclick: () => { at = -1; highlight([]); overview(); } }, "All scenes");
  panel.replaceChildren(leave(),
    h("div", { class: "dots", role: "group", "aria-label": "Scenes" }, scenes.map((x, i) => h("button", { type: "button", "aria-label": `Scene ${i + 1}: ${x.title}`, "aria-current": i === at ? "step" : null, onclick: () => go(i) }))),
    h("p", { class: "scene-number" }, `Scene ${at + 1} of ${scenes.length}`),
    h("h2", {}, maths(s.title.replace(/^\d+ · /, ""))),
    ...s.commentary.split("\n\n").map((t) => h("p", { class: "prose" }, maths(t))),
    h("div", { class: "now" }, h("h3", {}, "Now you"), h("p", {}, maths(s.question)),
      h("div", { class: "buttons" }, Object.keys(s.try).length ? h("button", { type: "button", id: "tour-try", onclick: () => attempt(s) }, "Try it") : null, reveal), answer),
    h("div", { class: "buttons walk" },
      h("button", { type: "button", disabled: at === 0, onclick: () => go(at - 1) }, "Back"),
      h("button", { type: "button", onclick: () => go(at) }, "Again"), onward));
  panel.scrollTop = 0;
  showStage();
}

/**
 * Makes the change: in the middle of the scene's own run, or in a new one, with what the scene showed pinned.
 * @param {Scene} s
 */
async function attempt(s) {
  pinSetup(s.setup);
  const changed = { ...s.setup, ...s.try };
  if (s.at === null) return play(changed, [], 0, changed.steps, TRY);
  return play(s.setup, [{ step: s.at, eta_y: changed.eta_y, eta_z: changed.eta_z }], s.at, changed.steps, TRY);
}

/** @param {string[]} views */
export function highlight(views) {
  for (const el of document.querySelectorAll(".watched")) el.classList.remove("watched");
  for (const view of views) document.querySelectorAll(`[data-view="${view === "heatmap" ? "attention" : view}"]`).forEach((el) => el.classList.add("watched"));
}

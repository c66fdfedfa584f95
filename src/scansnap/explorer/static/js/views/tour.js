// The guided tour: scenes from the server, each a set-up with commentary, a question, and a change that answers it.

import * as api from "../server/api.js";
import { $, h, maths, said } from "../page/dom.js";
import { app, emit, on } from "../app.js";
import { remember } from "../address.js";
import { pinSetup, unpin } from "./compare.js";
import * as runner from "../server/runner.js";
import { take } from "./setup.js";

/** @import { Scene } from "../messages.js" */

const panel = $("panel-tour");
/** @type {Scene[]} */
let scenes = [];
let at = -1;
/** @type {number | null} */
let until = null; // where the scene on its way ends
/** @type {number | null} */
let stopAt = null; // where the one on screen does

export function start() {
  on("run", () => { stopAt = until; until = null; });
  on("frames", () => { // a scene pauses where there is something to see
    if (stopAt !== null && app.state.step >= stopAt && runner.isRunning()) { stopAt = null; runner.pause(); }
  });
  panel.append(h("p", { class: "lead" }, "Loading the tour."));
}

export async function load() {
  if (scenes.length) return;
  try { scenes = (await api.tour()).scenes; } catch (e) { panel.replaceChildren(h("p", { class: "refusal" }, said(e))); return; }
  overview();
}

function overview() {
  panel.replaceChildren(
    h("p", { class: "lead" }, `${scenes.length} short scenes, in the order in which training goes. Each runs by itself and ends with a question for you.`),
    h("ol", { class: "scenes" }, scenes.map((s, i) => h("li", {}, h("button", { type: "button", onclick: () => go(i) }, maths(s.title))))));
}

/**
 * Opens scene i: its set-up, its speed, its view; `quiet` shows the words only.
 * @param {number} i
 */
export async function go(i, quiet = false) {
  await load();
  if (!scenes[i]) return;
  at = i;
  const s = scenes[i];
  remember("scene", i);
  draw(s);
  highlight(s.watch);
  if (quiet) return;
  emit("watch", s.watch);
  app.speed = s.speed;
  emit("speed");
  if (s.overlay) pinSetup(s.overlay); else unpin();
  until = s.until;
  stopAt = null;
  await take(s.setup, { play: true });
}

/** @param {Scene} s */
function draw(s) {
  const answer = h("div", { class: "answer", hidden: true }, h("p", {}, maths(s.answer)));
  const reveal = h("button", { type: "button", id: "tour-answer", onclick: () => { answer.hidden = false; reveal.hidden = true; } }, "Answer");
  const onward = at < scenes.length - 1 ? h("button", { type: "button", class: "primary", id: "tour-next", onclick: () => go(at + 1) }, "Next") : h("button", { type: "button", onclick: () => { at = -1; highlight([]); overview(); } }, "All scenes");
  panel.replaceChildren(
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
}

/**
 * Keeps what the scene showed as the pinned run and makes the change.
 * @param {Scene} s
 */
async function attempt(s) {
  if (app.setup0) pinSetup(app.setup0);
  until = stopAt = null;
  await take({ ...app.setup, ...s.try }, { play: true });
}

/** @param {string[]} views */
export function highlight(views) {
  for (const el of document.querySelectorAll(".watched")) el.classList.remove("watched");
  for (const view of views) document.querySelectorAll(`[data-view="${view === "heatmap" ? "attention" : view}"]`).forEach((el) => el.classList.add("watched"));
}

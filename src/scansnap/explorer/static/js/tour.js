// The guided tour: scenes from the server, each a set-up with commentary, a question, and a change that answers it.

import * as api from "./api.js";
import { $, h, maths } from "./dom.js";
import { app, emit, on } from "./app.js";
import { remember } from "./address.js";
import { pinSetup, unpin } from "./compare.js";
import * as runner from "./runner.js";
import { take } from "./setup.js";

const panel = $("panel-tour");
let scenes = null, at = -1, until = null, stopAt = null; // where the scene on its way ends, where the one on screen does

export async function start() {
  on("run", () => { stopAt = until; until = null; });
  on("frames", () => { // a scene pauses where there is something to see
    if (stopAt !== null && app.state.step >= stopAt && runner.isRunning()) { stopAt = null; runner.pause(); }
  });
  panel.append(h("p", { class: "lead" }, "Loading the tour."));
}

export async function load() {
  if (scenes) return;
  try { scenes = (await api.tour()).scenes; } catch (e) { panel.replaceChildren(h("p", { class: "refusal" }, e.message)); return; }
  overview();
}

function overview() {
  panel.replaceChildren(
    h("p", { class: "lead" }, `${scenes.length} short scenes, in the order in which training goes. Each runs by itself and ends with a question for you.`),
    h("ol", { class: "scenes" }, scenes.map((s, i) => h("li", {}, h("button", { type: "button", onclick: () => go(i) }, maths(s.title))))));
}

export const current = () => at;

/** Opens scene i: its set-up, its speed, its view; `quiet` shows the words only. */
export async function go(i, quiet = false) {
  await load();
  if (!scenes?.[i]) return;
  at = i;
  const s = scenes[i];
  remember("scene", i);
  draw(s);
  highlight(s.watch);
  if (quiet) return;
  emit("watch", s.watch);
  app.speed = s.speed ?? 100;
  emit("speed");
  if (s.overlay) pinSetup(s.overlay); else unpin();
  until = s.until ?? null;
  stopAt = null;
  await take(s.setup, { play: true });
}

function draw(s) {
  const answer = h("div", { class: "answer", hidden: true }, h("p", {}, maths(s.answer)));
  const tries = s.try && Object.keys(s.try).length;
  panel.replaceChildren(
    h("div", { class: "dots", role: "group", "aria-label": "Scenes" }, scenes.map((x, i) => h("button", { type: "button", "aria-label": `Scene ${i + 1}: ${x.title}`, "aria-current": i === at ? "step" : null, onclick: () => go(i) }))),
    h("p", { class: "scene-number" }, `Scene ${at + 1} of ${scenes.length}`),
    h("h2", {}, maths(bare(s.title))),
    ...String(s.commentary).split("\n\n").map((t) => h("p", { class: "prose" }, maths(t))),
    h("div", { class: "now" }, h("h3", {}, "Now you"), h("p", {}, maths(s.question)),
      h("div", { class: "buttons" },
        tries ? h("button", { type: "button", id: "tour-try", onclick: () => attempt(s) }, "Try it") : null,
        h("button", { type: "button", id: "tour-answer", onclick: (e) => { answer.hidden = false; e.target.hidden = true; } }, "Answer")), answer),
    h("div", { class: "buttons walk" },
      h("button", { type: "button", disabled: at === 0, onclick: () => go(at - 1) }, "Back"),
      h("button", { type: "button", onclick: () => go(at) }, "Again"),
      at < scenes.length - 1 ? h("button", { type: "button", class: "primary", id: "tour-next", onclick: () => go(at + 1) }, "Next") : h("button", { type: "button", onclick: () => { at = -1; highlight([]); overview(); } }, "All scenes")));
  panel.scrollTop = 0;
}

/** Keeps what the scene showed as the pinned run and makes the change. */
async function attempt(s) {
  if (app.setup0) pinSetup(app.setup0);
  until = stopAt = null;
  await take({ ...app.setup, ...s.try }, { play: true });
}

export function highlight(views) {
  for (const el of document.querySelectorAll(".watched")) el.classList.remove("watched");
  for (const name of views ?? []) document.querySelectorAll(`[data-view="${name === "heatmap" ? "attention" : name}"]`).forEach((el) => el.classList.add("watched"));
}

const bare = (title) => title.replace(/^\d+ · /, "");

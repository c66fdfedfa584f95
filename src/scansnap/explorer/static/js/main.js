// Puts the page together: paints at once, reads what there is, then starts the first run.

import * as address from "./address.js";
import { catalogue } from "./compute/engine.js";
import { app, emit, on } from "./app.js";
import * as chain from "./views/panels/chain.js";
import * as claims from "./views/panels/claims.js";
import * as compare from "./views/stage/compare.js";
import * as curves from "./views/curves/curves.js";
import { $, h } from "./page/dom.js";
import * as films from "./compute/films.js";
import * as exporting from "./views/dialogs/export.js";
import { name } from "./draw/film.js";
import * as headline from "./views/stage/headline.js";
import * as keys from "./keys.js";
import * as lecture from "./views/dialogs/lecture.js";
import * as lens from "./views/panels/lens.js";
import * as level from "./page/level.js";
import * as map from "./views/stage/map.js";
import * as probe from "./views/dialogs/probe.js";
import * as predict from "./compute/predict.js";
import * as runner from "./compute/runner.js";
import * as sentence from "./views/panels/sentence.js";
import * as setup from "./views/panels/setup.js";
import * as stage from "./views/stage/stage.js";
import * as tabs from "./page/tabs.js";
import * as theme from "./page/theme.js";
import * as tour from "./views/panels/tour.js";
import * as transport from "./views/stage/transport.js";
import * as welcome from "./views/dialogs/welcome.js";
import * as ytable from "./views/panels/ytable.js";

/** @typedef {typeof app.scale} Scale */

function presets() {
  /** @type {HTMLSelectElement} */
  const select = $("preset");
  select.replaceChildren(h("option", { value: "" }, "Custom set-up"), ...app.catalogue.presets.map((p) => h("option", { value: p.name }, p.title)));
  select.addEventListener("change", () => {
    const preset = app.catalogue.presets.find((p) => p.name === select.value);
    if (preset) { tour.highlight([]); focus(-1); setup.take(preset.setup, { preset: preset.name, play: true }); }
  });
  on("setup run", () => {
    select.value = app.preset ?? "";
  });
}

/** @type {HTMLSelectElement} */
const focusSelect = $("focus");
const scaleButtons = /** @type {HTMLElement[]} */ ([...$("scale").children]);

/** @param {number} k */
function focus(k) {
  const n = app.film?.run.classes.n_classes ?? 0;
  app.focus = k < -1 ? n - 1 : k >= n ? -1 : k;
  focusSelect.value = String(app.focus);
  emit("focus");
  address.write();
}

/** @param {Scale} value */
function scale(value) {
  app.scale = value;
  for (const b of scaleButtons) { const is = b.dataset.value === value; b.setAttribute("aria-checked", String(is)); b.tabIndex = is ? 0 : -1; }
  emit("scale");
  address.write();
}

function classList() {
  if (!app.film) return;
  const { classes } = app.film.run;
  focusSelect.replaceChildren(h("option", { value: -1 }, "all classes"), ...classes.classes.map((c, k) => h("option", { value: k }, `${k}: ${name(classes, c.query)} → ${name(classes, c.next_token)}`)));
  if (app.focus >= classes.n_classes) app.focus = -1;
  focus(app.focus);
}

function wire() {
  focusSelect.addEventListener("change", () => focus(Number(focusSelect.value)));
  $("class-prev").addEventListener("click", () => focus(app.focus - 1));
  $("class-next").addEventListener("click", () => focus(app.focus + 1));
  for (const b of scaleButtons) b.addEventListener("click", () => scale(b.dataset.value === "log" ? "log" : "linear"));
  $("scale").addEventListener("keydown", (e) => { if (e.key.startsWith("Arrow")) { e.preventDefault(); scale(app.scale === "log" ? "linear" : "log"); } });
  on("focus-wish", focus);
  on("seek", runner.seek);
  on("run", classList);
  on("frames", () => ($("wait").hidden = true));
  on("classes-made", () => { setup.show(); setup.run(true); });
  on("setup run cursor state pinned marks options bar-shown", address.write);
  on("watch", (/** @type {string[]} */ views) => { const tab = ["claims", "y"].find((v) => views[0] === v); tabs.pick(tab ?? "curves"); });
  tabs.onPick((side, tab) => {
    if (side === "right") { curves.visible(tab === "curves"); ytable.visible(tab === "y"); claims.visible(tab === "claims"); lens.visible(tab === "lens"); chain.visible(tab === "chain"); }
    if (tab === "tour") tour.load();
    if (tab === "setup") tour.highlight([]);
  });
}

/** Takes the state in the address over; false if there is none. */
async function fromAddress() {
  const state = address.read();
  if (!state) return false;
  if (state.scale === "linear" || state.scale === "log") scale(state.scale);
  if (state.focus !== null) app.focus = state.focus;
  if (state.bar) app.bar = state.bar;
  if (state.speed !== null) { app.speed = state.speed; emit("speed"); }
  if (state.flow === null) delete app.chosen.flow;
  else app.options.flow = app.chosen.flow = state.flow;
  for (const tab of [state.right, state.left]) if (tab) tabs.pick(tab);
  if (state.scene !== null && !state.left) tabs.pick("tour");
  if (state.scene !== null) await tour.go(state.scene, Boolean(state.setup));
  if (state.pinned) compare.pinSetup(state.pinned, state.pinnedMarks); else if (app.pinned && state.scene === null) compare.unpin();
  if (!state.setup) return state.scene !== null;
  const at = state.step ?? state.marks.at(-1)?.step ?? null;
  return setup.take(state.setup, { preset: state.preset, play: false, then: at === null && !state.marks.length ? null : () => runner.beginAt(app.setup, state.marks, at ?? 0) });
}

/** @param {number} now */
function loop(now) {
  stage.frame();
  transport.frame();
  ytable.frame();
  curves.frame(now);
  requestAnimationFrame(loop);
}

async function begin() {
  app.catalogue = catalogue;
  theme.start();
  tabs.start();
  level.start();
  wire();
  for (const part of [setup, headline, sentence, chain, stage, transport, curves, ytable, claims, compare, exporting, predict, map, probe, tour, lecture, welcome]) part.start();
  requestAnimationFrame(loop);
  $("probe").hidden = !app.catalogue.lab?.probe;
  setup.build();
  presets();
  keys.start({ focus, scale });
  const first = app.catalogue.presets[0];
  app.setup = structuredClone(app.catalogue.default);
  if (!(await fromAddress()) && !films.wanted()) {
    const why = setup.refusal;
    await setup.take(app.catalogue.default, { preset: first?.name, play: false });
    if (why) setup.showRefusal("address", `This is the usual run: what the address asks for cannot be run. ${why}`);
  }
  address.onForeignChange(fromAddress);
  document.documentElement.dataset.ready = "yes";
}

begin();

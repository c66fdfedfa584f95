// Puts the page together: paints at once, then asks the server what there is, then starts the first run.

import * as address from "./address.js";
import * as api from "./api.js";
import { app, emit, on } from "./app.js";
import * as claims from "./claims.js";
import * as compare from "./compare.js";
import * as curves from "./curves.js";
import { $, h } from "./dom.js";
import * as exporting from "./export.js";
import * as keys from "./keys.js";
import * as lens from "./lens.js";
import * as predict from "./predict.js";
import * as runner from "./runner.js";
import * as setup from "./setup.js";
import * as stage from "./stage.js";
import * as tabs from "./tabs.js";
import * as theme from "./theme.js";
import * as tour from "./tour.js";
import * as transport from "./transport.js";
import * as ytable from "./ytable.js";

const LINK = { connecting: "connecting", open: "connected", lost: "connection lost, trying again", back: "connected again" };

function presets() {
  const select = $("preset");
  select.replaceChildren(h("option", { value: "" }, "Custom set-up"), ...app.catalogue.presets.map((p) => h("option", { value: p.name }, p.title)));
  select.addEventListener("change", () => {
    const preset = app.catalogue.presets.find((p) => p.name === select.value);
    if (preset) { tour.highlight([]); focus(-1); setup.take(preset.setup, { preset: preset.name, play: true }); }
  });
  on("setup run", () => {
    select.value = app.preset ?? "";
    $("commentary").textContent = app.catalogue.presets.find((p) => p.name === app.preset)?.commentary ?? "";
  });
}

function focus(k) {
  const n = app.film?.run.classes.n_classes ?? 0;
  app.focus = k < -1 ? n - 1 : k >= n ? -1 : k;
  $("focus").value = app.focus;
  emit("focus");
  address.write();
}

function scale(value) {
  app.scale = value;
  for (const b of $("scale").children) { const is = b.dataset.value === value; b.setAttribute("aria-checked", String(is)); b.tabIndex = is ? 0 : -1; }
  emit("scale");
  address.write();
}

function classList() {
  const { classes } = app.film.run, name = (t) => classes.words?.[t] ?? t;
  $("focus").replaceChildren(h("option", { value: -1 }, "all classes"), ...classes.classes.map((c, k) => h("option", { value: k }, `${k}: ${name(c.query)} → ${name(c.next_token)}`)));
  if (app.focus >= classes.n_classes) app.focus = -1;
  focus(app.focus);
}

function wire() {
  $("focus").addEventListener("change", (e) => focus(Number(e.target.value)));
  $("class-prev").addEventListener("click", () => focus(app.focus - 1));
  $("class-next").addEventListener("click", () => focus(app.focus + 1));
  for (const b of $("scale").children) b.addEventListener("click", () => scale(b.dataset.value));
  $("scale").addEventListener("keydown", (e) => { if (e.key.startsWith("Arrow")) { e.preventDefault(); scale(app.scale === "log" ? "linear" : "log"); } });
  on("focus-wish", focus);
  on("seek", runner.seek);
  on("run", classList);
  on("frames", () => ($("wait").hidden = true));
  on("classes-made", () => { setup.show(); setup.run(true); });
  on("setup run cursor state pinned marks options", address.write);
  on("link", (status) => {
    const el = $("link");
    el.textContent = LINK[status];
    el.dataset.status = status;
  });
  on("watch", (views) => { const tab = ["claims", "y"].find((v) => views?.[0] === v); tabs.pick(tab ?? "curves"); });
  tabs.onPick((side, name) => {
    if (side === "right") { curves.visible(name === "curves"); ytable.visible(name === "y"); claims.visible(name === "claims"); lens.visible(name === "lens"); }
    if (name === "tour") tour.load();
    if (name === "setup") tour.highlight([]);
  });
}

/** Takes the state in the address over; false if there is none. */
async function fromAddress() {
  const said = address.read();
  if (!said) return false;
  if (said.scale === "linear" || said.scale === "log") scale(said.scale);
  if (said.focus !== null) app.focus = said.focus;
  if (said.speed !== null) { app.speed = said.speed; emit("speed"); }
  app.options.flow = said.flow;
  $("show-flow").checked = said.flow;
  for (const side of ["right", "left"]) if (said[side]) tabs.pick(said[side]);
  if (said.scene !== null) await tour.go(said.scene, Boolean(said.setup));
  if (said.pinned) compare.pinSetup(said.pinned); else if (app.pinned && said.scene === null) compare.unpin();
  if (!said.setup) return said.scene !== null;
  const steps = said.step !== null || said.marks.length;
  return setup.take(said.setup, { preset: said.preset, play: false, then: steps ? () => runner.beginAt(app.setup, said.marks, said.step ?? said.marks.at(-1).step) : null });
}

function loop(now) {
  stage.frame();
  transport.frame();
  ytable.frame();
  curves.frame(now);
  requestAnimationFrame(loop);
}

async function begin() {
  theme.start();
  tabs.start();
  wire();
  for (const part of [setup, stage, transport, curves, ytable, claims, compare, exporting, predict, tour]) part.start();
  requestAnimationFrame(loop);
  try {
    app.catalogue = await api.catalogue();
  } catch (e) {
    $("link").textContent = e.message;
    setTimeout(() => location.reload(), 3000);
    return;
  }
  setup.build();
  presets();
  keys.start({ focus, scale });
  runner.connect();
  const first = app.catalogue.presets[0];
  app.setup = structuredClone(app.catalogue.default);
  if (!(await fromAddress()) && !app.film) await setup.take(app.catalogue.default, { preset: first?.name, play: false });
  address.onForeignChange(fromAddress);
  document.documentElement.dataset.ready = "yes";
  (window.requestIdleCallback ?? setTimeout)(() => curves.load());
}

begin();

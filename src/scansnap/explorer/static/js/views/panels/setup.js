// The set-up panel: data, rates, sampling, optimiser, model. Every change is checked before it runs.

import * as api from "../../compute/api.js";
import { fieldOf } from "../../compute/engine.js";
import { $, debounce, errorMessage, h, maths, refuse } from "../../page/dom.js";
import { app, emit, on } from "../../app.js";
import { makeControl } from "../../page/control.js";
import { short } from "../../draw/format.js";
import * as runner from "../../compute/runner.js";
import { openEditor } from "../dialogs/weights.js";
import { openWords } from "../dialogs/words.js";

/** @import { SetupSummary, Setup } from "../../messages.js" */
/** @import { Control } from "../../page/control.js" */

/** What the two rates are about, in words. @type {Record<string, string>} */
const ASKS = { eta_z: "How fast may attention learn?", eta_y: "How fast may the decoder learn?" };
/** @type {[string, string[] | null, boolean][]} */
const GROUPS = [
  ["Rates", ["eta_z", "eta_y"], true],
  ["Sequences", ["context", "batch_size", "seed"], true],
  ["Optimiser", ["optimizer", "momentum"], true],
  ["Model", ["init", "norm", "residual"], true],
  ["More", null, false], // whatever is left
];

const panel = $("panel-setup"), general = h("p", { class: "refusal", role: "alert", hidden: true }), ratio = h("p", { class: "ratio theory", "aria-live": "polite" });
const classRefusal = h("p", { class: "refusal", role: "alert", hidden: true, id: "classes-refusal" }), presetSettings = h("div", { class: "preset-settings theory" }), facts = h("p", { class: "facts theory" }), commentary = h("p", { class: "says", id: "commentary" });
const classSelect = h("select", { id: "c-classes", "aria-describedby": "classes-explain classes-refusal", onchange: () => pickClasses(classSelect.value) });
/** @type {Map<string, Control>} */
const controls = new Map();
/** @type {Map<string, Control>} */
let classRows = new Map();
let isDragging = false; // a slider is being dragged
let pending = false; // a change waits for its check, and so must what comes after it
/** @type {import("../../messages.js").Catalogue["presets"][number] | null} */
let last = null; // the preset on screen, or the one before
let note = ""; // what of a file the page does not show
/** Why the last set-up was not run; empty if it was. */
export let refusal = "";

export function start() {
  on("setup-shown", show);
  on("refused", (m) => showRefusal(m.field, m.message));
  on("run state", showFacts);
  on("setup run", showCommentary);
}

/** Builds the panel from the list of controls. */
export function build() {
  const all = new Map(app.catalogue.controls.map((c) => [c.name, c])), placed = new Set(GROUPS.flatMap(([, names]) => names ?? []));
  panel.append(general);
  for (const [title, names, open] of GROUPS) {
    const list = names ?? [...all.keys()].filter((n) => !placed.has(n));
    const body = list.flatMap((n) => {
      const described = all.get(n);
      if (!described) return [];
      const control = makeControl(described, (v, dragging) => change(n, v, dragging));
      controls.set(n, control);
      if (ASKS[n]) control.el.prepend(h("p", { class: "ask explore" }, ASKS[n]));
      return [control.el];
    });
    if (title === "Rates") body.push(ratio, fromHere());
    const basic = title === "Rates" ? "" : "theory";
    panel.append(open ? h("fieldset", { class: basic }, h("legend", {}, title), body) : h("details", { class: basic }, h("summary", {}, title), body));
    if (title === "Rates") panel.append(dataGroup());
  }
  panel.append(commentary);
}

function dataGroup() {
  classSelect.append(...app.catalogue.class_presets.map((p) => h("option", { value: p.name }, p.title)), h("option", { value: "custom" }, "Custom"));
  return h("fieldset", {}, h("legend", { class: "theory" }, "Data"), h("legend", { class: "explore" }, "Words"),
    h("div", { class: "control theory", "data-name": "classes" },
      h("div", { class: "row" }, h("label", { htmlFor: "c-classes" }, "Classes"), classSelect),
      h("p", { class: "explain", id: "classes-explain" }), h("p", { class: "facts", id: "classes-note" }), classRefusal),
    presetSettings, facts,
    h("div", { class: "buttons" },
      h("button", { type: "button", id: "own-words", onclick: openWords }, "Your own words"),
      h("button", { type: "button", id: "edit-weights", class: "theory", onclick: () => openEditor("bars") }, "Edit weights"),
      h("button", { type: "button", id: "paste-toml", class: "theory", onclick: () => openEditor("toml") }, "Paste TOML")));
}

/** @param {string} name */
function pickClasses(name) {
  if (name === "custom") return openEditor("bars");
  change("classes", { preset: name });
  showClasses();
}

/** The controls say what app.setup says. */
export function show() {
  for (const [name, control] of controls) if (name in app.setup) control.show(app.setup[name]);
  showClasses();
  showRatio();
}

function showClasses() {
  const classes = app.setup.classes, preset = app.catalogue.class_presets.find((p) => p.name === classes.preset);
  classSelect.value = preset ? preset.name : "custom";
  $("classes-explain").textContent = preset?.explain ?? (classes.toml !== undefined ? "From the TOML you pasted." : classes.text !== undefined ? "Counted in the text you pasted." : "Weights of your own.");
  $("classes-note").textContent = note;
  classRows = new Map();
  presetSettings.replaceChildren(...(preset?.settings ?? []).map((setting) => {
    const control = makeControl(setting, (v, dragging) => change("classes", { ...app.setup.classes, [setting.name]: v }, dragging), "k");
    control.show(classes[setting.name] ?? setting.default);
    classRows.set(setting.name, control);
    return control.el;
  }));
}

function showRatio() {
  const { eta_y, eta_z, momentum } = app.setup;
  const text = typeof eta_y === "number" && typeof eta_z === "number" && eta_z > 0 ? short(eta_y / eta_z) : "–";
  ratio.replaceChildren(h("b", {}, maths("η_Y / η_Z"), ` = ${text}`), app.setup.optimizer === "sgd" && momentum > 0 ? h("span", {}, `with momentum both act ${short(1 / (1 - momentum))} × as fast`) : "");
}

/** What a preset shows; of another set-up, what it differs in from the preset before. Its room stays, so that nothing moves. */
function showCommentary() {
  const preset = app.catalogue.presets.find((p) => p.name === app.preset);
  if (preset) last = preset;
  const changed = last ? Object.entries({ ...defaults(), ...last.setup }).filter(([k, v]) => JSON.stringify(app.setup[k]) !== JSON.stringify(v)).map(([k]) => app.catalogue.controls.find((c) => c.name === k)?.label.toLowerCase() ?? k) : [];
  const from = last;
  commentary.style.minHeight = `${Math.max(commentary.offsetHeight, parseFloat(commentary.style.minHeight) || 0)}px`;
  commentary.replaceChildren(...(preset ? [preset.commentary] : from ? [`Changed from “${from.title}”: ${changed.join(", ")}. `, h("button", { type: "button", class: "small", id: "back-to-preset", onclick: () => take(from.setup, { preset: from.name, play: false }) }, "Change back")] : []));
}

function showFacts() {
  const film = app.film;
  if (!film) return;
  const { classes, theory } = film.run, c = classes;
  facts.replaceChildren(`K = ${c.n_classes} classes, M = ${c.vocab_size} tokens, ${c.queries.length} ${c.queries.length === 1 ? "query" : "queries"}, ${c.common.length} common`);
  facts.title = theory.clock;
}

/** Whether a change of the rates makes a new run, or acts in the middle of this one. */
function fromHere() {
  const input = h("input", { type: "checkbox", id: "from-here", checked: app.fromHere, onchange: () => (app.fromHere = input.checked) });
  return h("label", { class: "fromhere theory", title: "A change of the rates is marked at the step on screen; without this it holds from step 0" }, input, "change rates in mid-run, at the step on screen");
}

/**
 * Changes one value and computes the run; with `dragging` more values will follow.
 * @param {string} name
 * @param {any} value
 */
function change(name, value, dragging = false) {
  isDragging = dragging;
  app.setup = { ...app.setup, [name]: value };
  app.preset = matching();
  showRatio();
  const described = app.catalogue.controls.find((c) => c.name === name), under = app.film && !pending;
  if (described?.live && under && typeof value === "number" && value >= Number(described.least) && value <= Number(described.most)) {
    controls.get(name)?.refuse("");
    runner.rates(dragging);
    emit("setup");
    return;
  }
  pending = true;
  apply();
}

/** The preset that the set-up is that of: in what the preset says, and as usual in all the rest. */
export function matching() {
  const is = (/** @type {{setup: Setup}} */ preset) => Object.entries({ ...defaults(), ...preset.setup }).every(([k, v]) => JSON.stringify(app.setup[k]) === JSON.stringify(v));
  const all = app.catalogue.presets.filter(is);
  return (all.find((p) => p.name === app.preset) ?? all[0])?.name ?? null;
}

const defaults = () => Object.fromEntries(app.catalogue.controls.map((c) => [c.name, c.default]));

const apply = debounce(() => run(false), 120);

/**
 * Has the set-up checked and, if it may be, run.
 * @param {boolean} play
 * @param {((answer: SetupSummary) => void) | null} then  instead of a run from step 0
 */
export async function run(play, then = null) {
  try {
    const answer = api.check(app.setup);
    clearRefusals();
    app.setup = answer.setup;
    note = answer.note;
    app.preset = matching();
    show();
    emit("checked", answer);
    emit("setup");
    if (then) then(answer); else runner.film(app.setup, { play, preview: isDragging });
    return true;
  } catch (e) {
    clearRefusals();
    showRefusal(fieldOf(e), errorMessage(e));
    return false;
  } finally {
    pending = false;
  }
}

function clearRefusals() {
  refusal = "";
  for (const control of [...controls.values(), ...classRows.values()]) control.refuse("");
  refuse(classRefusal, "");
  refuse(general, "");
}

/**
 * The message next to the control it is about; the control comes into view.
 * @param {string} field
 * @param {string} message
 */
export function showRefusal(field, message) {
  refusal = message;
  const row = controls.get(field) ?? classRows.get(field);
  if (row) {
    row.refuse(message);
    const more = row.el.closest("details");
    if (more) more.open = true;
    row.el.scrollIntoView({ block: "nearest" });
  } else if (field.startsWith("class")) refuse(classRefusal, message);
  else { refuse(general, message); general.scrollIntoView({ block: "nearest" }); }
}

/**
 * Replaces the whole set-up.
 * @param {Setup} setup
 * @param {{preset?: string | null, play?: boolean, then?: ((answer: SetupSummary) => void) | null}} how
 */
export function take(setup, { preset = null, play = true, then = null } = {}) {
  app.setup = structuredClone(setup);
  if (!("toml" in (setup.classes ?? {}))) app.setup = { ...defaults(), ...app.setup };
  app.preset = preset;
  return run(play, then);
}

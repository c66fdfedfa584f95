// The editor of custom classes: weights as bars to drag (or arrow keys), tokens and classes to add; or TOML to paste.

import { $, errorMessage, h, refuse } from "../../page/dom.js";
import { app, emit } from "../../app.js";
import * as api from "../../compute/api.js";
import { short } from "../../draw/format.js";
import { readNumber } from "../../page/control.js";
import { modal } from "../../page/popup.js";

/** @import { Bars, BarsOfClass, ClassesSummary } from "../../messages.js" */
/** @typedef {"bars" | "toml"} Way */

const refusal = h("p", { class: "refusal", role: "alert", hidden: true }), body = h("div", { class: "editor" });
const tomlText = h("textarea", { id: "toml-text", spellcheck: "false", rows: 16, "aria-label": "TOML of classes or of a whole run" });
/** @type {Bars} */
let bars = { vocab_size: 1, classes: [] }; // the classes being edited
let at = 0; // the class on screen
/** @type {Way} */
let chosen = "bars";

/**
 * The bars of the set-up as it runs: tokens with weights relative to the largest of the class.
 * @param {ClassesSummary} classes
 * @returns {Bars}
 */
function fromRun(classes) {
  return {
    vocab_size: classes.vocab_size, words: classes.words,
    classes: classes.classes.map((c) => {
      const top = Math.max(...c.p);
      return { query: c.query, next_token: c.next_token, p_class: c.p_class, tokens: [...c.tokens], weights: c.p.map((p) => Number((p / top).toPrecision(4))) };
    }),
  };
}

/** @param {Way} way */
export function openEditor(way) {
  if (!app.film) return;
  bars = fromRun(app.film.run.classes);
  at = Math.max(0, app.focus);
  chosen = way;
  refuse(refusal, "");
  tomlText.value = "";
  const dialog = modal("Classes", body, [
    h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
    h("button", { type: "button", class: "primary", id: "use-classes", onclick: () => use(dialog) }, "Use these classes"),
  ]);
  dialog.classList.add("wide");
  draw();
  try { tomlText.value = api.toml(app.setup); } catch (e) { refuse(refusal, errorMessage(e)); }
}

/** @param {HTMLDialogElement} dialog */
function use(dialog) {
  const classes = chosen === "toml" ? { toml: tomlText.value } : { bars };
  // a run file gives defaults for everything else, so nothing else is sent beside it
  const setup = chosen === "toml" ? { classes } : { ...app.setup, classes };
  try {
    const answer = api.check(setup);
    app.setup = answer.setup;
    app.preset = null;
    dialog.close();
    emit("classes-made");
  } catch (e) { refuse(refusal, errorMessage(e)); }
}

/** What keys do to a weight. @type {Record<string, number>} */
const BY = { ArrowUp: 0.05, ArrowDown: -0.05, PageUp: 0.2, PageDown: -0.2 };

/** @type {(token: number) => string} */
const reads = (token) => bars.words?.[token] ?? String(token);

/**
 * The token somebody means: its number, or where there are words its word, a new one if need be. What is neither stays
 * as it was typed, to be refused in words.
 * @param {string} text
 * @returns {any}
 */
function tokenOf(text) {
  const t = text.trim(), known = Object.entries(bars.words ?? {}).find(([, word]) => word === t);
  if (known) return Number(known[0]);
  if (bars.words && t && !/^\d+$/.test(t)) { bars.words[bars.vocab_size] = t; return bars.vocab_size++; }
  if (!/^\d+$/.test(t)) return t;
  bars.vocab_size = Math.max(bars.vocab_size, Number(t) + 1);
  return Number(t);
}

const kindOf = (/** @type {number} */ token) => {
  const n = bars.classes.filter((c) => c.weights[c.tokens.indexOf(token)] > 0).length;
  return n < 2 ? "distinct" : n < bars.classes.length ? "several" : "common";
};

/**
 * Redraws the dialog; the focus stays where it was, or goes to what is named.
 * @param {string} [focus]  id of an element
 */
function draw(focus) {
  const before = focus ?? (body.contains(document.activeElement) ? document.activeElement?.id : "");
  fill();
  if (before) document.getElementById(before)?.focus();
}

const className = (/** @type {BarsOfClass} */ c) => `${reads(c.query)} → ${reads(c.next_token)}`;

function fill() {
  const tabs = h("div", { class: "seg", role: "radiogroup", "aria-label": "How to edit" }, /** @type {Way[]} */ (["bars", "toml"]).map((way) =>
    h("button", { type: "button", id: `way-${way}`, role: "radio", "aria-checked": String(chosen === way), onclick: () => { chosen = way; draw(); } }, way === "bars" ? "Draw weights" : "TOML")));
  if (chosen === "toml") {
    body.replaceChildren(tabs, h("p", { class: "explain" }, "A classes file or a whole run file, as scansnap run reads it. The set-up on screen is filled in to start from."), tomlText, refusal);
    tomlText.focus();
    return;
  }
  const c = bars.classes[at];
  /** @type {(label: string, key: "query" | "next_token" | "p_class") => HTMLElement} */
  const field = (label, key) => {
    const text = () => (key === "p_class" ? short(c[key]).replace(/\s/g, "") : reads(c[key]));
    const input = h("input", { type: "text", id: `class-${key}`, class: "field", value: text(), "aria-label": label, onchange: () => { // draws nothing anew: a click on a button may have ended the typing
      c[key] = key === "p_class" ? readNumber(input.value) : tokenOf(input.value);
      input.value = text();
      $(`class-${bars.classes.indexOf(c)}`).textContent = className(c);
    } });
    return h("label", {}, label, input);
  };
  body.replaceChildren(tabs,
    h("div", { class: "classbar", role: "group", "aria-label": "Class to edit" }, bars.classes.map((k, i) =>
      h("button", { type: "button", id: `class-${i}`, "aria-pressed": String(i === at), onclick: () => { at = i; draw(); } }, className(k)))),
    h("div", { class: "classbar" },
      h("button", { type: "button", id: "add-class", class: "add", onclick: () => addClass(c.query) }, "+ class, same query"),
      h("button", { type: "button", id: "add-query", class: "add", onclick: () => addClass(null) }, "+ class, new query"),
      bars.classes.length > 1 ? h("button", { type: "button", id: "remove-class", class: "add", onclick: () => { bars.classes.splice(at, 1); at = Math.max(0, at - 1); draw(bars.classes.length > 1 ? "remove-class" : "class-0"); } }, "remove class") : null),
    h("div", { class: "classfields" }, field("Query", "query"), field("Next token", "next_token"), field("Weight of the class", "p_class"),
      h("button", { type: "button", id: "add-common", onclick: () => addToken(bars.classes) }, "+ common token"),
      h("button", { type: "button", id: "add-distinct", onclick: () => addToken([c]) }, "+ distinct token")),
    h("div", { class: `bars ${bars.words ? "named" : ""}`, role: "group", "aria-label": "Weights of the tokens" }, c.tokens.map((token, j) => bar(c, token, j))),
    h("p", { class: "explain" }, "Drag a bar, or use the arrow keys on it. Weights need not sum to 1; Delete takes a token away. A token in several classes is common."),
    refusal);
}

/** @param {BarsOfClass[]} classes */
function addToken(classes) {
  const token = bars.vocab_size++;
  for (const c of classes) { c.tokens.push(token); c.weights.push(0.5); }
  draw();
}

/** @param {number | null} query */
function addClass(query) {
  const token = () => bars.vocab_size++, q = query ?? token(), common = bars.classes[at].tokens.filter((t) => kindOf(t) !== "distinct");
  const own = [token(), token(), token()];
  bars.classes.push({ query: q, next_token: token(), p_class: bars.classes[at].p_class, tokens: [...common, ...own], weights: [...common.map(() => 1), 0.4, 0.7, 1] });
  at = bars.classes.length - 1;
  draw();
}

/**
 * @param {BarsOfClass} c
 * @param {number} token
 * @param {number} j
 */
function bar(c, token, j) {
  const level = h("i", {}), what = bars.words?.[token] ?? `token ${token}`;
  const el = h("div", { class: `bar ${kindOf(token)}`, id: `weight-${j}`, role: "slider", tabindex: 0, "aria-label": `Weight of ${what}`, "aria-valuemin": 0, "aria-valuemax": 1 }, level, h("span", {}, reads(token)));
  const set = (/** @type {number} */ w) => {
    c.weights[j] = Number(Math.max(0, Math.min(1, w)).toPrecision(3));
    level.style.height = `calc((100% - var(--foot)) * ${c.weights[j]})`;
    el.setAttribute("aria-valuenow", String(c.weights[j]));
    el.title = `${what}: ${short(c.weights[j])}`;
  };
  set(c.weights[j]);
  const drag = (/** @type {PointerEvent} */ e) => { const b = el.getBoundingClientRect(), tall = b.height - 18; set(1 - (e.clientY - b.top) / tall); };
  el.addEventListener("pointerdown", (e) => { el.setPointerCapture(e.pointerId); drag(e); el.focus(); });
  el.addEventListener("pointermove", (e) => { if (el.hasPointerCapture(e.pointerId)) drag(e); });
  el.addEventListener("keydown", (e) => {
    const by = BY[e.key];
    if (by) set(c.weights[j] + by);
    else if (e.key === "Home") set(0);
    else if (e.key === "End") set(1);
    else if (e.key === "Delete") { c.tokens.splice(j, 1); c.weights.splice(j, 1); draw(`weight-${Math.min(j, c.tokens.length - 1)}`); }
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  return el;
}

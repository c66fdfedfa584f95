// One control: label, field, slider where it has ends, its line of explanation, and room for a refusal.

import { h, maths, refuse } from "./dom.js";
import { short } from "../draw/format.js";

/** @import { ControlSpec } from "../messages.js" */
/** @typedef {{el: HTMLElement, show: (value: any) => void, refuse: (message: string) => void}} Control */
/** @typedef {(value: any, dragging?: boolean) => void} Changed  `dragging`: the slider is still held, more will follow. */
/** @typedef {{id: string, describe: string, label: HTMLElement, box: HTMLElement, changed: Changed}} Parts */

const TICKS = 1000;

/**
 * Slider position of a value and back, logarithmic where the control says so.
 * @param {ControlSpec} control
 * @returns {{to: (v: number) => number, from: (t: number) => number}}
 */
function scaleOf({ low, high, log, kind }) {
  const tidy = (/** @type {number} */ x) => (kind === "integer" ? Math.round(x) : Number(x.toPrecision(x < 1 ? 2 : 3)));
  const a = Number(low), b = Number(high);
  if (log) {
    const from = Math.log(a), span = Math.log(b) - from;
    return { to: (v) => (v > 0 ? (TICKS * (Math.log(v) - from)) / span : 0), from: (t) => tidy(Math.exp(from + (t / TICKS) * span)) };
  }
  return { to: (v) => (TICKS * (v - a)) / (b - a), from: (t) => tidy(a + (t / TICKS) * (b - a)) };
}

/**
 * Makes a control; `changed(value)` is called with every new value.
 * @param {ControlSpec} control
 * @param {Changed} changed
 * @returns {Control}
 */
export function makeControl(control, changed, prefix = "c") {
  const id = `${prefix}-${control.name}`, describe = `${id}-explain ${id}-refusal`;
  const explain = h("p", { class: "explain", id: `${id}-explain` }, maths(control.explain));
  const refusal = h("p", { class: "refusal", id: `${id}-refusal`, role: "alert", hidden: true });
  const label = h("label", { htmlFor: id }, control.label, control.symbol ? h("i", {}, maths(control.symbol)) : null);
  const box = h("div", { class: `control ${control.kind}`, "data-name": control.name });
  /** @type {(value: any) => void} */
  let show;
  if (control.kind === "choice") {
    const select = h("select", { id, "aria-describedby": describe, onchange: () => changed(select.value) },
      (control.options ?? []).map((o) => h("option", { value: o }, o)));
    box.append(h("div", { class: "row" }, label, select));
    show = (v) => { if (typeof v === "string") select.value = v; };
  } else if (control.kind === "flag") {
    const input = h("input", { id, type: "checkbox", "aria-describedby": describe, onchange: () => changed(input.checked) });
    box.append(h("div", { class: "row" }, label, input));
    show = (v) => (input.checked = v);
  } else {
    show = number(control, { id, describe, label, box, changed });
  }
  box.append(h("div", { class: "notes" }, explain, refusal));
  return {
    el: box, show,
    refuse(message) { refuse(refusal, message); box.classList.toggle("refused", Boolean(message)); },
  };
}

/**
 * A typed number, with a point or a comma as decimal sign and spaces between thousands; NaN if it is none.
 * @param {string} text
 */
export function readNumber(text) {
  const plain = text.replace(/\s/g, "").replace("−", "-");
  return plain ? Number(/^[^.,]*,[^.,]*$/.test(plain) ? plain.replace(",", ".") : plain) : NaN;
}

/**
 * Reads what was typed: a number, a word such as ∞, a list, or the text itself, which is then refused in words.
 * @param {ControlSpec} control
 * @param {string} text
 */
function parse(control, text) {
  const t = text.trim();
  for (const [value, reads] of Object.entries(control.words)) if (t === reads || t === value) return value === "none" ? null : value;
  if (control.name === "distinct_weights") return t.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (control.kind === "text") return t;
  const x = readNumber(t);
  return Number.isFinite(x) ? x : t;
}

/**
 * A field for numbers or texts, with buttons for words and a slider; returns what shows a value.
 * @param {ControlSpec} control
 * @param {Parts} parts
 */
function number(control, { id, describe, label, box, changed }) {
  const reads = (/** @type {any} */ v) => (v === null || v === undefined ? control.words.none ?? "" : control.words[v] ?? (Array.isArray(v) ? v.join(", ") : String(v)));
  const field = h("input", {
    id, type: "text", inputMode: control.kind === "text" ? "text" : "decimal", spellcheck: "false", autocomplete: "off",
    "aria-describedby": describe, class: "field", list: control.name === "init" ? `${id}-list` : undefined,
    onchange: () => { const v = parse(control, field.value); showSlider(v); changed(v); },
    onkeydown: (/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter") field.blur(); }, // done typing: the keyboard steers the run again
  });
  const row = h("div", { class: "row" }, label, field);
  for (const [value, text] of Object.entries(control.words)) {
    row.append(h("button", { type: "button", class: "word", title: `${control.label}: ${text}`, onclick: () => { const v = value === "none" ? null : value; show(v); changed(v); } }, text));
  }
  box.append(row);
  if (control.name === "init") box.append(h("datalist", { id: `${id}-list` }, ["zero", "uniform", "normal(0.1)"].map((o) => h("option", { value: o }))));
  /** @type {(value: any) => void} */
  let showSlider = () => {};
  if (control.low !== null && control.high !== null && control.kind !== "text") {
    const scale = scaleOf(control);
    let isDragging = false;
    const release = () => { if (isDragging) { isDragging = false; changed(scale.from(Number(slider.value))); } };
    const slider = h("input", {
      type: "range", min: 0, max: TICKS, step: 1, "aria-label": `${control.label} slider`, class: "slider",
      oninput: () => { const v = scale.from(Number(slider.value)); isDragging = true; field.value = reads(v); slider.setAttribute("aria-valuetext", short(v)); changed(v, true); },
      onchange: release, onpointerup: release, // dragged back to where it was, it does not change
    });
    showSlider = (v) => {
      const is = typeof v === "number";
      slider.classList.toggle("off", !is);
      if (is) slider.value = String(scale.to(v));
      slider.setAttribute("aria-valuetext", is ? short(v) : reads(v));
    };
    box.append(slider);
  }
  const show = (/** @type {any} */ v) => { field.value = reads(v); showSlider(v); };
  return show;
}

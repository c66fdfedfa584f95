// The text lens: what a trained text model attends to, and votes for, at a query word.

import * as api from "../server/api.js";
import { colours } from "../draw/colours.js";
import { $, h, refuse, said } from "../page/dom.js";
import { short } from "../draw/format.js";
import { penFor } from "../draw/pen.js";

/** @import { Attended, EntropyAt, LensSaid, TextModel, Vote } from "../messages.js" */

const panel = $("panel-lens"), result = h("div", { class: "lens" }), refusal = h("p", { class: "refusal", role: "alert", hidden: true });
let loaded = false, model = "";

/** @param {boolean} is */
export async function visible(is) {
  if (!is || loaded) return;
  loaded = true;
  try { show((await api.lensModels()).models); } catch (e) { panel.replaceChildren(h("p", { class: "refusal" }, said(e))); loaded = false; }
}

/** @param {TextModel[]} models */
function show(models) {
  if (!models.length) {
    panel.replaceChildren(h("div", { class: "empty" }, h("h2", {}, "No text model here yet"),
      h("p", {}, "Train one on any text, then open the explorer on its folder:"),
      h("pre", {}, "scansnap text --help\nscansnap serve --folder DIR"),
      h("p", {}, "Then choose a word here and see which words it attends to, what they vote for, and how its attention narrowed during training."),
      h("button", { type: "button", onclick: () => { loaded = false; visible(true); } }, "Look again")));
    return;
  }
  model = models[0].name;
  const input = h("input", { id: "lens-query", class: "field", type: "text", value: "the", spellcheck: "false", autocomplete: "off", onchange: () => look(input.value) });
  const select = h("select", { id: "lens-model", onchange: () => { model = select.value; look(input.value); } }, models.map((m) => h("option", { value: m.name }, m.title || m.name)));
  panel.replaceChildren(
    h("form", { class: "lensform", onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); look(input.value); } }, h("label", {}, "Model", select), h("label", {}, "Query word", input), h("button", { type: "submit", class: "primary" }, "Look")),
    refusal, result);
  look(input.value);
}

/** @param {string} query */
async function look(query) {
  try {
    const answer = await api.lens(model, query.trim());
    refuse(refusal, "");
    draw(answer);
  } catch (e) { refuse(refusal, said(e)); }
}

/**
 * A word, how strongly training made the query look at it, and what it votes for in turn.
 * @param {Attended[]} list
 */
function attended(list) {
  const top = Math.max(...list.map((r) => Math.abs(Number(r.z))), 1e-12);
  return h("ul", { class: "words" }, list.slice(0, 12).map((r) => {
    const z = Number(r.z), bar = h("i", { class: z < 0 ? "less" : "" });
    bar.style.width = `${(100 * Math.abs(z)) / top}%`;
    const votes = r.votes.slice(0, 4).map((v) => v.word).join("  ");
    return h("li", { title: `${r.word}: z = ${short(r.z)}, ${short(r.attention)} of all attention` },
      h("span", {}, r.word), h("div", {}, bar), h("em", {}, short(r.z)), h("span", { class: "votes" }, votes));
  }));
}

/** @param {Vote[]} list */
function predicted(list) {
  return h("p", { class: "next" }, list.slice(0, 8).flatMap((r) => [h("b", {}, r.word), ` ${(100 * Number(r.vote)).toFixed(1)}%  `]));
}

/** @param {LensSaid} answer */
function draw(answer) {
  const over = answer.entropy_over_training, canvas = h("canvas", { class: "mini", role: "img", "aria-label": "Entropy of attention over training" }), long = over.length > 1;
  result.replaceChildren(
    h("p", { class: "lead" }, `“${answer.query}” attends with an entropy of ${short(answer.entropy)} nats.`),
    h("h3", {}, "It looks at (logit z), and these words vote for"), attended(answer.attended),
    h("h3", {}, "Next word, in an average context"), predicted(answer.votes),
    ...(long ? [h("h3", {}, "Entropy over training"), canvas] : []));
  if (long) requestAnimationFrame(() => history(canvas, over));
}

/**
 * Entropy over training as a small plot.
 * @param {HTMLCanvasElement} canvas
 * @param {EntropyAt[]} over
 */
function history(canvas, over) {
  const c = colours(), pen = penFor(canvas, canvas), top = Math.max(...over.map((p) => Number(p.entropy))), end = Math.max(...over.map((p) => p.step), 1);
  /** @type {[number, number][]} */
  const at = over.map((p) => [30 + ((pen.width - 38) * p.step) / end, 8 + (pen.height - 28) * (1 - Number(p.entropy) / (top || 1))]);
  pen.line(30, pen.height - 20, pen.width - 8, pen.height - 20, c.line);
  pen.path(at, c.ink, 2);
  pen.text(26, 14, short(top), { fill: c.muted, size: 10, align: "right" });
  pen.text(26, pen.height - 18, "0", { fill: c.muted, size: 10, align: "right" });
  pen.text(pen.width - 8, pen.height - 5, `step ${short(end)}`, { fill: c.muted, size: 10, align: "right" });
}

// The text lens: what a trained text model attends to, and votes for, at a query word.

import * as lab from "../../compute/lab.js";
import { app } from "../../app.js";
import { colours } from "../../draw/colours.js";
import { $, errorMessage, h, refuse, toast } from "../../page/dom.js";
import { short, tick, ticks, whole } from "../../draw/format.js";
import { penFor, widthOf } from "../../draw/pen.js";

/** @import { Attended, EntropyAt, LensAnswer, TextModel, Vote } from "../../messages.js" */

const panel = $("panel-lens"), result = h("div", { class: "lens" }), refusal = h("p", { class: "refusal", role: "alert", hidden: true });
let loaded = false, model = "";
/** @type {{model: string, query: string} | null} */
let request = null; // the latest question

/** @param {boolean} is */
export async function visible(is) {
  if (!is || loaded) return;
  loaded = true;
  try { show(app.catalogue.lab?.lens ? (await lab.lensModels()).models : []); } catch (e) { panel.replaceChildren(h("p", { class: "refusal" }, errorMessage(e))); loaded = false; }
}

/** @param {TextModel[]} models */
function show(models) {
  if (!models.length) {
    panel.replaceChildren(h("div", { class: "empty" }, h("h2", {}, "No text model here yet"),
      h("p", {}, "Train one; without --data it reads the docstrings of Python's standard library, which are on every machine:"),
      command("scansnap text train --out models/yz.safetensors"),
      h("p", {}, "Then open the explorer on its folder:"),
      command("scansnap explorer --folder models"),
      h("p", {}, "Then choose a word here and see which words it attends to, what they vote for, and how its attention narrowed during training."),
      h("button", { type: "button", onclick: () => { loaded = false; visible(true); } }, "Look again")));
    return;
  }
  model = models[0].name;
  const input = h("input", { id: "lens-query", class: "field", type: "text", value: "the", spellcheck: "false", autocomplete: "off" });
  const select = h("select", { id: "lens-model", onchange: () => { model = select.value; look(input.value); } }, models.map((m) => h("option", { value: m.name }, m.title || m.name)));
  panel.replaceChildren(
    h("form", { class: "lensform", onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); look(input.value); } }, h("label", {}, "Model", select), h("label", {}, "Query word", input), h("button", { type: "submit", class: "primary" }, "Look")),
    refusal, result);
  look(input.value);
}

/**
 * A command with a button that copies it.
 * @param {string} text
 */
function command(text) {
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); toast("The command is on the clipboard."); } catch { getSelection()?.selectAllChildren(line); }
  };
  const line = h("pre", {}, text);
  return h("div", { class: "command" }, line, h("button", { type: "button", class: "small", "aria-label": `Copy: ${text}`, onclick: copy }, "Copy"));
}

/** @param {string} query */
async function look(query) {
  const mine = (request = { model, query });
  result.classList.add("waiting");
  try {
    const answer = await lab.lens(model, query.trim());
    if (mine !== request) return; // something else was asked for meanwhile
    refuse(refusal, "");
    draw(answer);
  } catch (e) {
    if (mine !== request) return;
    refuse(refusal, errorMessage(e));
    result.replaceChildren(); // what stood there answered another question
  }
  result.classList.remove("waiting");
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

/** @param {LensAnswer} answer */
function draw(answer) {
  const over = answer.entropy_over_training, canvas = h("canvas", { class: "mini", role: "img", "aria-label": "Mean entropy of attention over training, of all words" }), long = over.length > 1, end = over[over.length - 1];
  result.replaceChildren(
    h("p", { class: "lead", id: "lens-entropy" }, `“${answer.query}” spreads its attention with an entropy of ${short(answer.entropy)} nats over the words of an average text; before training it was ${short(answer.uniform_entropy)}.`),
    h("h3", {}, "It looks at (logit z), and these words vote for"), attended(answer.attended),
    h("h3", {}, "Next word, in an average context"), predicted(answer.votes),
    ...(long ? [h("h3", {}, "All words together, over training"),
      h("p", { class: "explain", id: "lens-over" }, `Entropy within windows of the validation text, mean over all their positions: ${short(over[0].entropy)} at step ${whole(over[0].step)}, ${short(end.entropy)} at step ${whole(end.step)}. It is the same for every word, and below the number above, since a window has fewer words to spread over.`), canvas] : []));
  if (long) requestAnimationFrame(() => history(canvas, over));
}

/**
 * Entropy over training as a small plot.
 * @param {HTMLCanvasElement} canvas
 * @param {EntropyAt[]} over
 */
function history(canvas, over) {
  const c = colours(), pen = penFor(canvas, canvas), top = Math.max(...over.map((p) => Number(p.entropy)), 1e-9), end = Math.max(...over.map((p) => p.step), 1), small = { fill: c.muted, size: 10 };
  const marks = ticks(0, top, 3), texts = marks.map((v) => tick(v, marks[1] - marks[0])), left = Math.max(...texts.map((t) => widthOf(t, small))) + 8, hh = pen.height - 28, up = (/** @type {number} */ v) => 8 + hh * (1 - v / top);
  /** @type {[number, number][]} */
  const at = over.map((p) => [left + ((pen.width - left - 8) * p.step) / end, up(Number(p.entropy))]);
  marks.forEach((v, i) => { pen.line(left, up(v), pen.width - 8, up(v), c.line); pen.label(left - 5, up(v) + 3.5, texts[i], { ...small, align: "right" }); });
  pen.path(at, c.ink, 2);
  pen.label(pen.width - 8, pen.height - 5, `step ${whole(end)}`, { ...small, align: "right" });
  pen.label(left, pen.height - 5, "nats, mean over positions", small);
}

// An input and its output: a sentence of the class in focus, where the model looks, and how likely it finds each next word.

import { $, h, throttle } from "../../page/dom.js";
import { app, frameIndex, on } from "../../app.js";
import { level } from "../../page/level.js";
import { REACH, name, word } from "../../draw/film.js";
import { percent, whole } from "../../draw/format.js";
import { draw, read } from "../../draw/sentence.js";
import { askTable } from "../../compute/runner.js";

/** @import { Film } from "../../draw/film.js" */
/** @import { Example, Table } from "../../draw/sentence.js" */

const SIZE = 256, NEXT = 3; // next words that are listed
const box = h("section", { class: "example explore", id: "example", "aria-label": "An example sentence and the next word" });
const title = h("h3", {}), another = h("button", { type: "button", class: "small", id: "another", onclick: () => { number++; show(); } }, "Another");
const input = h("p", { class: "examplewords", id: "example-sentence" }), output = h("ul", { class: "nextwords", id: "example-next", "aria-live": "off" });
/** @type {Table | null} */
let table = null;
let number = 0;

/** The class of the sentence: the one in focus, or the first. */
const classOf = () => Math.max(0, app.focus);

/**
 * The words of a sentence, shaded by attention, and where the next word goes.
 * @param {Film} film
 * @param {number} k
 * @param {Example} example
 */
export function words(film, k, { tokens, attention }) {
  const { classes } = film.run, own = classes.classes[k], most = Math.max(...attention);
  return [...tokens.map((t, j) => {
    const el = h("span", { class: `word ${film.reach(k, t)}`, title: `${word(classes, t)}, ${REACH[film.reach(k, t)]}: ${percent(attention[j])} of the attention` }, name(classes, t));
    el.style.setProperty("--share", String(attention[j] / most));
    return [el, " "];
  }).flat(), h("span", { class: "ending" }, h("span", { class: "word last" }, name(classes, own.query)), h("span", { class: "gap", "aria-label": "next word" }, "?"))];
}

/**
 * The likeliest next words; the right one is always among them.
 * @param {Film} film
 * @param {number} k
 * @param {Example} example
 */
export function nextWords(film, k, { next }) {
  const { classes } = film.run, right = classes.classes[k].next_token, own = next.filter((n) => n.token === right);
  const others = next.filter((n) => n.token !== right && n.token >= 0).sort((a, b) => b.p - a.p).slice(0, NEXT - 1), listed = [...own, ...others].sort((a, b) => b.p - a.p);
  const rest = Math.max(0, 1 - listed.reduce((s, n) => s + n.p, 0));
  return [...listed, { token: -1, p: rest }].map(({ token, p }) => {
    const bar = h("i", { class: token === right ? "target" : "" });
    bar.style.width = `${100 * p}%`;
    return h("li", { "data-p": p }, h("b", {}, token < 0 ? "all others" : name(classes, token)), h("div", {}, bar), h("em", {}, percent(p)));
  });
}

const ask = throttle(() => { if (level() === "explore" && app.film?.length) askTable(SIZE, app.film.steps[frameIndex()]); }, 150);

const show = throttle(() => {
  const film = app.film, i = frameIndex();
  if (!film?.length || i < 0 || level() !== "explore" || !film.run.classes.classes[classOf()]) return;
  const k = classOf(), fits = table && film.steps[film.at(table.step)] === table.step ? table : null, example = read(film, fits, i, k, draw(film, k, number));
  title.textContent = film.run.classes.words ? "An example sentence" : "An example sequence";
  input.replaceChildren(...words(film, k, example));
  if (example.next.length) output.replaceChildren(...nextWords(film, k, example));
  else if (!fits) output.replaceChildren(h("li", { class: "later" }, "Waiting for the decoder."));
  else output.replaceChildren(h("li", { class: "later" }, "The next word is worked out for one head without a residual connection only."));
  output.setAttribute("aria-label", `Next word at step ${whole(fits?.step ?? film.steps[i])}`);
}, 100);

export function start() {
  box.append(h("header", {}, title, another), input, output);
  $("panel-curves").prepend(box);
  on("table", (message) => { table = message; show(); });
  on("run", () => { table = null; });
  on("run frames cursor state focus level", () => { ask(); show(); });
}

// The first visit: one class in words, a question that a click answers, the reveal, and one slider. Then the page.

import { $, h } from "../../page/dom.js";
import { app, on } from "../../app.js";
import { name } from "../../draw/film.js";
import { percent, short } from "../../draw/format.js";
import { draw, read } from "../../draw/sentence.js";
import { Show } from "../../lecture/show.js";
import { askTable } from "../../compute/runner.js";
import { nextWords, words } from "../panels/sentence.js";

/** @import { Beat, Deck } from "../../messages.js" */
/** @import { Film } from "../../draw/film.js" */
/** @import { Table } from "../../draw/sentence.js" */

const KEY = "scansnap-visited", SIZE = 256;
const FROM = 0.01, TO = 10; // attention rates on the slider
/** @type {Show | null} */
let show = null;
/** @type {HTMLElement | null} */
let root = null;
/** @type {Table | null} */
let table = null;
/** @type {Film | null} */
let shown = null; // the film that is revealed
const input = h("p", { class: "examplewords" }), output = h("ul", { class: "nextwords" }), result = h("p", { class: "outcome", role: "status" });
const slider = h("input", { type: "range", id: "welcome-rate", min: 0, max: 100, value: 67, "aria-label": "How fast may attention learn?" });
const rate = h("output", {});

function isFirst() {
  try { return localStorage.getItem(KEY) === null; } catch { return false; }
}

const visited = () => { try { localStorage.setItem(KEY, "1"); } catch { /* storage may be off */ } };
const rateAt = (/** @type {number} */ x) => Number((FROM * (TO / FROM) ** (x / 100)).toPrecision(2));

/**
 * The beat: class 0 of a film, and what is asked of it.
 * @param {Film} film
 * @returns {Beat}
 */
function beatOf(film) {
  const { classes } = film.run, own = classes.classes[0], [last, next] = [own.query, own.next_token].map((t) => `“${name(classes, t)}”`);
  return {
    setup: film.run.setup, against: null, marks: [], from: 0, to: film.run.steps, seconds: 6, curve: "logits", theory: [],
    sentence: `The model has learned which words tell that ${next} follows ${last}.`,
    highlight: { classes: [0], views: [], tokens: [] },
    predict: { question: `Sentences end in ${last}, and then comes ${next}. Which word before will the model look at most?`, class: 0, by: "attention" },
  };
}

/** @param {Film} film */
function open(film) {
  visited();
  const skip = h("button", { type: "button", id: "welcome-skip", onclick: close }, "Skip"), go = h("button", { type: "button", class: "primary", id: "welcome-done", onclick: close }, "Explore it");
  const check = h("button", { type: "button", class: "primary", id: "welcome-reveal", onclick: () => show?.forward() }, "Show what it learns");
  const aside = h("section", { class: "first-side" }, h("h2", {}, "An example sentence, and the next word"), input, output,
    h("div", { class: "turns" }, h("div", { class: "asks" }, check),
      h("div", { class: "tries" }, h("label", { htmlFor: "welcome-rate" }, "How fast may attention learn? ", rate), slider, result, go)));
  root = h("div", { class: "lecture first", id: "welcome", role: "dialog", "aria-modal": "true", "aria-label": "Which word will it look at?", tabIndex: -1 });
  for (const el of document.body.children) if (el instanceof HTMLElement && !["tip", "toast"].includes(el.id)) el.inert = true;
  document.body.append(root);
  /** @type {Deck} */
  const deck = { name: "first", title: "Scan and Snap", author: "", beat: [beatOf(film)] };
  show = new Show(root, deck, async () => ({ film: app.film ?? film, against: null }), { tools: [skip], leave: close, reveal: "“Show what it learns” tells.", phase: (phase) => { if (root) follow(phase); } });
  root.querySelector(".views")?.append(aside);
  slider.addEventListener("input", () => { rate.textContent = short(rateAt(Number(slider.value))); });
  slider.addEventListener("change", change);
  rate.textContent = short(Number(film.run.setup.eta_z));
  slider.value = String((100 * Math.log(Number(film.run.setup.eta_z) / FROM)) / Math.log(TO / FROM));
  show.go(0);
  root.focus();
  tell();
}

/** @param {string} phase */
function follow(phase) {
  if (phase === "there" && app.film) shown = app.film;
  ask();
  tell();
}

const ask = () => { if (root && app.film) askTable(SIZE, root.dataset.phase === "there" ? app.film.lastStep : 0); };

/** The sentence, and what the model makes of it: before the reveal at step 0, then at the end. */
function tell() {
  const film = app.film;
  if (!root || !film?.length) return;
  const over = root.dataset.phase === "there", fits = table && film.steps[film.at(table.step)] === table.step && (over ? table.step === film.lastStep : table.step === 0) ? table : null;
  const example = read(film, fits, over ? film.length - 1 : 0, 0, draw(film, 0, 0));
  input.replaceChildren(...words(film, 0, example));
  if (example.next.length) output.replaceChildren(...nextWords(film, 0, example));
  if (!over || film.lastStep < film.run.steps) return;
  result.textContent = `With this rate, words that several contexts share go from ${percent(film.common(0))} of the attention to ${percent(film.common(film.length - 1))}.`;
}

/** Another rate is another run: through the field of the set-up, which checks it. */
function change() {
  const field = /** @type {HTMLInputElement | null} */ (document.getElementById("c-eta_z"));
  if (!field) return;
  field.value = String(rateAt(Number(slider.value)));
  field.dispatchEvent(new Event("change"));
}

/** Once the run of a new rate is complete, its end is shown. */
function renew() {
  const film = app.film;
  if (!root || !show || !film || app.state.state !== "done" || film.lastStep < app.state.steps) return;
  ask();
  if (shown && shown !== film) { shown = film; show.deck.beat = [beatOf(film)]; show.go(0, true); }
  tell();
}

export function close() {
  show?.end();
  show = null;
  root?.remove();
  root = null;
  for (const el of document.body.children) if (el instanceof HTMLElement) el.inert = false;
  $("watch").focus();
}

export function start() {
  document.addEventListener("keydown", (event) => {
    if (!root || event.target === slider) return;
    event.stopImmediatePropagation(); // the page behind hears nothing
    show?.key(event);
  }, true);
  on("theme", () => show?.theme());
  on("table", (message) => { table = message; tell(); });
  if (location.hash || !isFirst()) return visited();
  let begun = false;
  on("run frames state", () => {
    const film = app.film;
    if (!begun && film?.length && film.run.classes.words && film.lastStep >= film.run.steps) { begun = true; open(film); }
    renew();
  });
}

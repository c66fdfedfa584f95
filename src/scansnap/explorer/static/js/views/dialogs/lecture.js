// Lecture mode: the decks in this file, their runs computed beside the one on screen, and a file that opens with one.

import { $, h, maths, saveBlob } from "../../page/dom.js";
import { app, on } from "../../app.js";
import { Show } from "../../lecture/show.js";
import { makeFilm } from "../../compute/aside.js";
import { pageSource } from "../../compute/data.js";

/** @import { Film } from "../../draw/film.js" */
/** @import { Beat, Deck, RateChange, Setup } from "../../messages.js" */
/** @typedef {{key: string, setup: Setup, marks: RateChange[], done: (film: Film) => void, fail: (error: Error) => void}} Wish */

/** @type {Map<string, Promise<Film>>} */
const films = new Map(); // by set-up and changes of rates; kept, so that the same talk begins at once
/** @type {Wish[]} */
let queue = [];
/** @type {HTMLElement | null} */
let root = null;
/** @type {Show | null} */
let show = null;
/** @type {Element | null} */
let before = null; // what had the focus
let filled = false; // the lecture has the screen: leaving that leaves the lecture
/** @type {Promise<void>} */
let left = Promise.resolve(); // the lecture before has given the screen back, which takes a while

// --- runs -------------------------------------------------------------------------------------------------------------

/**
 * The film of a run; of several that are wanted the one asked for last comes first.
 * @param {Setup} setup
 * @param {RateChange[]} marks
 */
function film(setup, marks) {
  const key = JSON.stringify([setup, marks]), known = films.get(key);
  if (known) {
    const at = queue.findIndex((w) => w.key === key);
    if (at > 1) queue.splice(1, 0, ...queue.splice(at, 1)); // the one under way stays first
    return known;
  }
  const promise = new Promise((/** @type {(film: Film) => void} */ done, /** @type {(error: Error) => void} */ fail) => {
    queue.splice(1, 0, { key, setup, marks, done, fail });
    if (queue.length === 1) compute();
  });
  films.set(key, promise);
  promise.catch(() => films.delete(key));
  return promise;
}

/** The first of the queue, in a worker of its own. */
async function compute() {
  const wish = queue[0];
  if (!wish) return;
  const grown = (/** @type {Film} */ partial) => show?.waits(show.now ? "" : `Computing the run: step ${partial.lastStep} of ${partial.run.steps}`);
  try { wish.done(await makeFilm("lecture", wish.setup, wish.marks, grown)); } catch (error) { wish.fail(error instanceof Error ? error : new Error(String(error))); }
  queue = queue.filter((w) => w !== wish);
  compute();
}

/** @param {Beat} beat */
async function filmsOf(beat) {
  const [computed, against] = await Promise.all([film(beat.setup, marksOf(beat)), beat.against ? film(beat.against, []) : null]);
  return { film: computed, against };
}

const marksOf = (/** @type {Beat} */ beat) => beat.marks.map((m) => ({ step: m.step, eta_y: Number(m.eta_y), eta_z: Number(m.eta_z) }));

// --- the screen -------------------------------------------------------------------------------------------------------

export function start() {
  if (app.catalogue.lecture) { open(); give(app.catalogue.decks[0]); }
  $("lecture-open").addEventListener("click", open);
  on("theme", () => show?.theme());
  document.addEventListener("fullscreenchange", () => { if (root && filled && !document.fullscreenElement) close(); });
  document.addEventListener("keydown", (event) => {
    if (!root) return;
    event.stopImmediatePropagation(); // the page behind hears nothing
    if (show) { if (!show.key(event) && event.key === "f") close(); } else if (event.key === "Escape" || event.key === "f") close();
  }, true);
}

export function open() {
  if (root) return;
  before = document.activeElement;
  const box = (root = h("div", { class: "lecture", id: "lecture", role: "dialog", "aria-modal": "true", "aria-label": "Lecture", tabIndex: -1 }));
  for (const el of document.body.children) if (el instanceof HTMLElement && !["tip", "toast"].includes(el.id)) el.inert = true;
  document.body.append(box);
  box.focus();
  filled = false;
  if (navigator.userActivation?.isActive ?? true) fill(box); // where it is not allowed, the window is the screen
  const list = h("div", { class: "decks" }, h("h1", {}, "Give a lecture"));
  box.append(h("header", { class: "lecturehead" }, h("p", {}, "Forward: → or space. Back: ←. Leave: Esc."), h("nav", { class: "tools" }, leaving())), list);
  list.append(...app.catalogue.decks.map((deck) => h("button", { type: "button", class: "deck", "data-deck": deck.name, onclick: () => give(deck) }, h("b", {}, maths(deck.title)),
    h("span", {}, [deck.author, `${deck.beat.length} beats`, asks(deck)].filter(Boolean).join(", ")))));
  list.append(h("p", { class: "lead" }, "Your own: ", h("code", {}, "scansnap lecture my.toml --out lecture.html"), "."));
  /** @type {HTMLElement | null} */ (list.querySelector("button"))?.focus();
}

/**
 * Takes the screen for a lecture, after the one before has given it back; and gives it back if this one has ended since.
 * @param {HTMLElement} box
 */
async function fill(box) {
  await left;
  if (root !== box) return;
  await document.documentElement.requestFullscreen?.().catch(() => {});
  filled = root === box && document.fullscreenElement !== null;
  if (!root) empty();
}

const empty = () => { if (document.fullscreenElement) left = document.exitFullscreen().catch(() => {}); };

const leaving = () => h("button", { type: "button", class: "icon", "aria-label": "Leave the lecture", title: "Leave (Esc)", onclick: close }, "×");

/** @param {Deck} deck */
function asks(deck) {
  const n = deck.beat.filter((b) => b.predict).length;
  return n ? `${n} ${n === 1 ? "question" : "questions"} to the audience` : "";
}

/** @param {Deck} deck */
function give(deck) {
  if (!root) return;
  const save = h("button", { type: "button", id: "lecture-save", title: "This page as a file that opens with this lecture", onclick: () => exportDeck(deck) }, "Save as a file");
  show = new Show(root, deck, (i) => filmsOf(deck.beat[i]), { tools: [save, leaving()], leave: close });
  root.focus();
  for (const beat of [...deck.beat].reverse()) filmsOf(beat).catch(() => {}); // all of them, the first one first
  show.go(0);
}

export function close() {
  show?.end();
  show = null;
  root?.remove();
  root = null;
  for (const el of document.body.children) if (el instanceof HTMLElement) el.inert = false;
  empty();
  if (before instanceof HTMLElement) before.focus();
}

// --- the file ---------------------------------------------------------------------------------------------------------

/**
 * This page as a file that opens with a deck.
 * @param {Deck} deck
 */
function exportDeck(deck) {
  const { catalogue } = app, decks = [deck, ...catalogue.decks.filter((d) => d !== deck)];
  const page = pageSource({ catalogue: { ...catalogue, decks, lecture: true, lab: null } });
  saveBlob(new Blob([page], { type: "text/html" }), `${deck.name || "lecture"}.html`);
}

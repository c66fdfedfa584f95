// Lecture mode: the decks of this server, their runs computed beside the one on screen, and the file to take along.

import * as api from "../server/api.js";
import { $, h, maths, said, toast } from "../page/dom.js";
import { on } from "../app.js";
import { Film } from "../draw/film.js";
import { Show } from "../lecture/show.js";
import { Link } from "../server/socket.js";
import { saveBlob } from "./export.js";

/** @import { Beat, Deck, Lecture, MarkSaid, Setup } from "../messages.js" */
/** @typedef {{key: string, setup: Setup, marks: MarkSaid[], done: (film: Film) => void, fail: (error: Error) => void}} Wish */

const DATA = "/*__LECTURE_DATA__*/";
/** @type {Map<string, Promise<Film>>} */
const films = new Map(); // by set-up and changes of rates; kept, so that the same talk begins at once
/** @type {Wish[]} */
let queue = [];
/** @type {Link | null} */
let link = null;
/** @type {HTMLElement | null} */
let root = null;
/** @type {Show | null} */
let show = null;
/** @type {Element | null} */
let before = null; // what had the focus
let filled = false; // the lecture has the screen: leaving that leaves the lecture

// --- runs -------------------------------------------------------------------------------------------------------------

/**
 * The film of a run; of several that are wanted the one asked for last comes first.
 * @param {Setup} setup
 * @param {MarkSaid[]} marks
 */
function film(setup, marks) {
  const key = JSON.stringify([setup, marks]), known = films.get(key);
  if (known) {
    const at = queue.findIndex((w) => w.key === key);
    if (at > 1) queue.splice(1, 0, ...queue.splice(at, 1)); // the one under way stays first
    return known;
  }
  const made = new Promise((/** @type {(film: Film) => void} */ done, /** @type {(error: Error) => void} */ fail) => {
    queue.splice(1, 0, { key, setup, marks, done, fail });
    if (queue.length === 1) compute();
  });
  films.set(key, made);
  made.catch(() => films.delete(key));
  return made;
}

/** The first of the queue, on a connection of its own. */
function compute() {
  const wish = queue[0];
  if (!wish) { link?.end(); link = null; return; }
  /** @type {Film | null} */
  let made = null;
  let last = Infinity;
  const over = (/** @type {() => void} */ settle) => { queue = queue.filter((w) => w !== wish); settle(); mine.send({ op: "close" }); mine.end(); link = null; compute(); };
  const look = () => { const whole = made; if (whole && whole.lastStep >= last) over(() => wish.done(whole)); };
  const mine = (link = new Link({
    run: (m) => { made = new Film(m); mine.seen = () => made?.lastStep ?? -1; },
    mark: (m) => made?.marks.push({ step: m.step, eta_y: m.eta_y, eta_z: m.eta_z }),
    frames: (steps, values, floats) => { made?.add(steps, values, floats); if (made) show?.waits(show.now ? "" : `Computing the run: step ${made.lastStep} of ${made.run.steps}`); look(); },
    state: (m) => {
      if (m.state === "failed") over(() => wish.fail(new Error(`The run failed at step ${m.failed_step}: its numbers are no longer finite.`)));
      else if (m.state === "done") { last = m.step; look(); }
    },
    error: (m) => over(() => wish.fail(new Error(m.message))),
  }));
  mine.send({ op: "start", setup: wish.setup, marks: wish.marks, speed: "max", play: true });
}

/** @param {Beat} beat */
async function filmsOf(beat) {
  const [made, against] = await Promise.all([film(beat.setup, marksOf(beat)), beat.against ? film(beat.against, []) : null]);
  return { film: made, against };
}

const marksOf = (/** @type {Beat} */ beat) => beat.marks.map((m) => ({ step: m.step, eta_y: Number(m.eta_y), eta_z: Number(m.eta_z) }));

// --- the screen -------------------------------------------------------------------------------------------------------

export function start() {
  $("lecture-open").addEventListener("click", open);
  on("theme", () => show?.theme());
  document.addEventListener("fullscreenchange", () => { if (root && filled && !document.fullscreenElement) close(); });
  document.addEventListener("keydown", (event) => {
    if (!root) return;
    event.stopImmediatePropagation(); // the page behind hears nothing
    if (show) { if (!show.key(event) && event.key === "f") close(); } else if (event.key === "Escape" || event.key === "f") close();
  }, true);
}

export async function open() {
  if (root) return;
  before = document.activeElement;
  const box = (root = h("div", { class: "lecture", id: "lecture", role: "dialog", "aria-modal": "true", "aria-label": "Lecture", tabIndex: -1 }));
  for (const el of document.body.children) if (el instanceof HTMLElement && !["tip", "toast"].includes(el.id)) el.inert = true;
  document.body.append(box);
  box.focus();
  filled = false;
  document.documentElement.requestFullscreen?.().then(() => { filled = root === box; }, () => {}); // where it is not allowed, the window is the screen
  const list = h("div", { class: "decks" }, h("h1", {}, "Give a lecture"));
  box.append(h("header", { class: "lecturehead" }, h("p", {}, "Forward: → or space. Back: ←. Leave: Esc."), h("nav", { class: "tools" }, leaving())), list);
  try {
    const { decks } = await api.decks();
    if (root !== box) return;
    list.append(...decks.map((deck) => h("button", { type: "button", class: "deck", "data-deck": deck.name, onclick: () => give(deck) }, h("b", {}, maths(deck.title)),
      h("span", {}, [deck.author, `${deck.beat.length} beats`, asks(deck)].filter(Boolean).join(", ")))));
    list.append(h("p", { class: "lead" }, "Your own: ", h("code", {}, "scansnap serve --deck my.toml"), ", as docs/lecture.md tells."));
    /** @type {HTMLElement | null} */ (list.querySelector("button"))?.focus();
  } catch (error) { list.append(h("p", { class: "refusal", role: "alert" }, said(error))); }
}

const leaving = () => h("button", { type: "button", class: "icon", "aria-label": "Leave the lecture", title: "Leave (Esc)", onclick: close }, "×");

/** @param {Deck} deck */
function asks(deck) {
  const n = deck.beat.filter((b) => b.predict).length;
  return n ? `${n} ${n === 1 ? "question" : "questions"} to the audience` : "";
}

/** @param {Deck} deck */
function give(deck) {
  if (!root) return;
  const save = h("button", { type: "button", id: "lecture-save", title: "This lecture as one file that needs no server", onclick: () => exportDeck(deck, save) }, "Save as a file");
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
  if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
  if (before instanceof HTMLElement) before.focus();
}

// --- the file ---------------------------------------------------------------------------------------------------------

const base64 = (/** @type {ArrayBufferView} */ a) => {
  const all = new Uint8Array(a.buffer, a.byteOffset, a.byteLength), parts = [];
  for (let i = 0; i < all.length; i += 0x8000) parts.push(String.fromCharCode(...all.subarray(i, i + 0x8000)));
  return btoa(parts.join(""));
};

/** @param {Film} f */
function told(f) {
  const floats = f.run.layout.floats, data = new Float32Array(f.length * floats);
  f.frames.forEach((frame, i) => data.set(frame, i * floats));
  return { run: f.run, marks: f.marks, n: f.length, floats, steps: base64(Uint32Array.from(f.steps)), data: base64(data) };
}

/**
 * The deck with all its runs as one file; says how far it is.
 * @param {Deck} deck
 * @param {HTMLButtonElement} button
 */
async function exportDeck(deck, button) {
  const label = button.textContent;
  button.disabled = true;
  try {
    /** @type {Film[]} */
    const all = [];
    const place = (/** @type {Film | null} */ f) => { if (!f) return null; if (!all.includes(f)) all.push(f); return all.indexOf(f); };
    let done = 0;
    const beats = await Promise.all(deck.beat.map(async (beat) => {
      const made = await filmsOf(beat);
      button.textContent = `${++done} of ${deck.beat.length} beats`;
      return made;
    }));
    const runs = beats.map(({ film: own, against }) => [place(own), place(against)]);
    /** @type {Lecture} */
    const lecture = { deck, films: all.map(told), runs };
    const page = await api.lecturePage(), [head, tail] = page.split(DATA);
    saveBlob(new Blob([head, JSON.stringify(lecture).replaceAll("<", "\\u003c"), tail], { type: "text/html" }), `${deck.name || "lecture"}.html`);
  } catch (error) { toast(said(error)); }
  button.disabled = false;
  button.textContent = label;
}

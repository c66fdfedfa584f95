// The exported lecture: all its runs are in the file, and it needs nothing else.

import { Film } from "../draw/film.js";
import { h } from "../page/dom.js";
import { Show } from "./show.js";

/** @import { FilmSaid, Lecture } from "../messages.js" */

const bytes = (/** @type {string} */ text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;

/** @param {FilmSaid} told */
function filmOf(told) {
  const film = new Film(told.run);
  film.add(new Uint32Array(bytes(told.steps)), new Float32Array(bytes(told.data)), told.floats);
  film.marks = told.marks;
  return film;
}

function begin() {
  /** @type {Lecture} */
  const told = JSON.parse(document.getElementById("data")?.textContent ?? "");
  const root = /** @type {HTMLElement} */ (document.getElementById("lecture"));
  /** @type {Map<number, Film>} */
  const made = new Map();
  const film = (/** @type {number | null} */ i) => {
    if (i === null) return null;
    const known = made.get(i) ?? filmOf(/** @type {FilmSaid} */ (told.films[i]));
    made.set(i, known);
    return known;
  };
  const screen = () => { if (document.fullscreenElement) document.exitFullscreen(); else document.documentElement.requestFullscreen().catch(() => {}); };
  const tools = [h("button", { type: "button", title: "Full screen (f)", onclick: screen }, "Full screen")];
  const show = new Show(root, told.deck, async (beat) => {
    const [run, against] = told.runs[beat];
    return { film: /** @type {Film} */ (film(run)), against: film(against) };
  }, { tools });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", () => show.theme());
  document.addEventListener("keydown", (event) => {
    if (show.key(event)) return;
    if (event.key === "f") screen();
    if (event.key === "d") { const own = document.documentElement.dataset, dark = own.theme ? own.theme === "dark" : system.matches; own.theme = dark ? "light" : "dark"; show.theme(); }
  });
  document.title = told.deck.title;
  show.go(0);
  document.documentElement.dataset.ready = String(told.deck.beat.length);
}

begin();

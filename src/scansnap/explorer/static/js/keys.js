// The keyboard, and the overlay that tells of it.

import { $, h } from "./page/dom.js";
import { app } from "./app.js";
import { toggle as pin } from "./views/compare.js";
import { open as exportOpen, share } from "./views/export.js";
import { open as lecture } from "./views/lecture.js";
import { modal } from "./page/modal.js";
import * as runner from "./server/runner.js";
import * as tabs from "./page/tabs.js";
import { toggle as theme } from "./page/theme.js";

const KEYS = [
  ["space", "play or pause"], ["→", "next frame"], ["←", "previous frame"], ["Home, End", "first frame, newest frame"],
  ["s", "next frame"], ["r", "reset to step 0"], ["[ and ]", "previous, next class"], ["a", "all classes"],
  ["l", "log or linear time"], ["p", "pin this run, or unpin"], ["e", "export"], ["c", "copy the address"], ["d", "dark or light"],
  ["1 … 5", "curves, decoder, claims, text lens, chain"], ["t", "guided tour or set-up"], ["m", "map of the rates"], ["f", "lecture, full screen"], ["?", "this list"],
];

function help() {
  modal("Keyboard", h("dl", { class: "keys" }, KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
}

/** @param {{focus: (k: number) => void, scale: (value: "log" | "linear") => void}} page */
export function start({ focus, scale }) {
  $("help").addEventListener("click", help);
  /** @type {Record<string, () => void>} */
  const all = {
    " ": runner.toggle, ArrowRight: () => runner.move(1), ArrowLeft: () => runner.move(-1), Home: () => runner.seek(0), End: () => runner.seek(Infinity),
    s: runner.step, r: runner.reset, "[": () => focus(app.focus - 1), "]": () => focus(app.focus + 1), a: () => focus(-1),
    l: () => scale(app.scale === "log" ? "linear" : "log"), p: pin, e: exportOpen, c: share, d: theme, "?": help,
    1: () => tabs.pick("curves"), 2: () => tabs.pick("y"), 3: () => tabs.pick("claims"), 4: () => tabs.pick("lens"), 5: () => tabs.pick("chain"),
    m: () => { const map = /** @type {HTMLDetailsElement} */ ($("map")); map.open = !map.open; },
    t: () => tabs.pick($("panel-tour").hidden ? "tour" : "setup"), f: lecture,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const is = (/** @type {string} */ selector) => event.target instanceof Element && event.target.matches(selector);
    const typing = is("input[type=text], textarea, select"), slider = is("input[type=range]:not(#scrub), [role=slider], [role=tab], [role=radio]");
    if (typing || (slider && event.key.startsWith("Arrow")) || (slider && ["Home", "End"].includes(event.key))) return;
    if (event.key === " " && is("button, summary, input[type=checkbox]")) return;
    const act = all[event.key];
    if (!act || !app.film) return;
    event.preventDefault();
    act();
  });
}

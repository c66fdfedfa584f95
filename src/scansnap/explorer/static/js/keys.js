// The keyboard, and the overlay that tells of it.

import { $, h } from "./page/dom.js";
import { app } from "./app.js";
import { toggle as pin } from "./views/stage/compare.js";
import { open as exportOpen, share } from "./views/dialogs/export.js";
import { open as lecture } from "./views/dialogs/lecture.js";
import { modal } from "./page/popup.js";
import * as runner from "./compute/runner.js";
import * as tabs from "./page/tabs.js";
import { toggle as theme } from "./page/theme.js";

const KEYS = [
  ["space", "play or pause"], ["→", "next frame"], ["←", "previous frame"], ["Home, End", "first frame, newest frame"],
  ["s", "next frame"], ["r", "reset to step 0"], ["[ and ]", "previous, next class"], ["a", "all classes"],
  ["l", "log or linear time"], ["p", "pin this run, or unpin"], ["e", "export"], ["c", "share: copy the link"], ["d", "dark or light"],
  ["1 … 5", "the tabs on the right, in their order"], ["t", "guided tour or set-up"], ["m", "map of the rates"], ["f", "lecture, full screen"], ["?", "this list"],
];

const LETTERS = "scansnap-letters";
let letters = true;
try { letters = localStorage.getItem(LETTERS) !== "off"; } catch { /* storage may be off */ }

/** @param {boolean} is */
function setLetters(is) {
  letters = is;
  try { localStorage.setItem(LETTERS, is ? "on" : "off"); } catch { /* storage may be off */ }
}

/** The tabs on the right as they stand there. */
const rightTabs = () => /** @type {HTMLElement[]} */ ([...$("right-tabs").children]).filter((tab) => tab.checkVisibility());

function help() {
  const toggle = h("input", { type: "checkbox", id: "letters", checked: letters, onchange: () => setLetters(toggle.checked) });
  modal("Keyboard", h("div", {}, h("label", { class: "fromhere" }, toggle, "Single-key shortcuts (space, arrows, Home and End always work)"), h("dl", { class: "keys" }, KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]))));
}

/** @param {{focus: (k: number) => void, scale: (value: "log" | "linear") => void}} page */
export function start({ focus, scale }) {
  $("help").addEventListener("click", help);
  /** @type {Record<string, () => void>} */
  const all = {
    " ": runner.toggle, ArrowRight: () => runner.move(1), ArrowLeft: () => runner.move(-1), Home: () => runner.seek(0), End: () => runner.seek(Infinity),
    s: runner.step, r: runner.reset, "[": () => focus(app.focus - 1), "]": () => focus(app.focus + 1), a: () => focus(-1),
    l: () => scale(app.scale === "log" ? "linear" : "log"), p: pin, e: exportOpen, c: share, d: theme, "?": help,
    ...Object.fromEntries([1, 2, 3, 4, 5].map((n) => [n, () => { const tab = rightTabs()[n - 1]; if (tab) tabs.pick(tab.id.slice(4)); }])),
    m: () => { const map = /** @type {HTMLDetailsElement} */ ($("map")); map.open = !map.open; },
    t: () => tabs.pick($("panel-tour").hidden ? "tour" : "setup"), f: lecture,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const is = (/** @type {string} */ selector) => event.target instanceof Element && event.target.matches(selector);
    const typing = is("input[type=text], textarea, select"), slider = is("input[type=range]:not(#scrub), [role=slider], [role=tab], [role=radio]");
    if (typing || (slider && event.key.startsWith("Arrow")) || (slider && ["Home", "End"].includes(event.key))) return;
    if (event.key === " " && is("button, summary, input[type=checkbox]")) return;
    const act = letters || event.key === " " || event.key.length > 1 ? all[event.key] : undefined;
    if (!act || !app.film) return;
    event.preventDefault();
    act();
  });
}

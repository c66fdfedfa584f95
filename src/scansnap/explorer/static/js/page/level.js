// The two levels of the page: Explore has two rates, own words and the map; Theory has everything.

import { $ } from "./dom.js";
import { emit } from "../app.js";
import { remember } from "../address.js";
import { pick } from "./tabs.js";

/** @typedef {"explore" | "theory"} Level */

const buttons = /** @type {HTMLElement[]} */ ([...$("level").children]);
const root = document.documentElement;

/** @returns {Level} */
export const level = () => (root.dataset.level === "theory" ? "theory" : "explore");

/** @param {Level} to */
export function set(to) {
  if (root.dataset.level === to) return;
  root.dataset.level = to;
  for (const b of buttons) { const is = b.dataset.value === to; b.setAttribute("aria-checked", String(is)); b.tabIndex = is ? 0 : -1; }
  if (document.querySelector('#right-tabs .theory[aria-selected="true"]') && to === "explore") pick("curves");
  remember("level", to);
  emit("level");
}

/** An address that holds a state says its level, or is from a time when all was shown. */
function fromAddress() {
  const all = new URLSearchParams(location.hash.slice(1));
  set(all.get("level") === "explore" || ![...all.keys()].length ? "explore" : "theory");
}

export function start() {
  fromAddress();
  window.addEventListener("hashchange", fromAddress);
  for (const b of buttons) b.addEventListener("click", () => set(b.dataset.value === "theory" ? "theory" : "explore"));
  $("level").addEventListener("keydown", (e) => {
    if (!e.key.startsWith("Arrow")) return;
    e.preventDefault();
    set(level() === "theory" ? "explore" : "theory");
    buttons.find((b) => b.tabIndex === 0)?.focus();
  });
}

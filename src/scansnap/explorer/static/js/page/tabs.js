// Tabs with the keyboard behaviour screen readers expect.

import { $ } from "./dom.js";
import { remember } from "../address.js";

/** @typedef {"left" | "right"} Side */
/** @type {Record<string, {side: Side, tabs: HTMLElement[]}>} */
const groups = {}; // panel name → its tablist
/** @type {((side: Side, name: string) => void)[]} */
const listeners = [];

/** @param {(side: Side, name: string) => void} f */
export const onPick = (f) => listeners.push(f);

export function start() {
  for (const side of /** @type {Side[]} */ (["left", "right"])) {
    const list = $(`${side}-tabs`), tabs = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=tab]")]);
    for (const tab of tabs) {
      const name = tab.id.slice(4);
      groups[name] = { side, tabs };
      tab.addEventListener("click", () => pick(name));
    }
    list.addEventListener("keydown", (event) => {
      const at = tabs.findIndex((tab) => tab === document.activeElement), by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!by || at < 0) return;
      event.preventDefault();
      const next = tabs[(at + by + tabs.length) % tabs.length];
      next.focus();
      pick(next.id.slice(4));
    });
  }
}

/** @param {string} name */
export function pick(name) {
  const group = groups[name];
  if (!group) return;
  for (const tab of group.tabs) {
    const is = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    $(tab.getAttribute("aria-controls") ?? "").hidden = !is;
  }
  remember(group.side, name);
  for (const f of listeners) f(group.side, name);
}

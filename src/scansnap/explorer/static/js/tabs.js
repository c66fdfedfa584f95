// Tabs with the keyboard behaviour screen readers expect.

import { $ } from "./dom.js";
import { remember } from "./address.js";

const groups = {}; // panel name → its tablist
const listeners = [];

export const onPick = (f) => listeners.push(f);

export function start() {
  for (const side of ["left", "right"]) {
    const list = $(`${side}-tabs`), tabs = [...list.querySelectorAll("[role=tab]")];
    for (const tab of tabs) {
      const name = tab.id.slice(4);
      groups[name] = { side, tabs };
      tab.addEventListener("click", () => pick(name));
    }
    list.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement), by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by || at < 0) return;
      event.preventDefault();
      const next = tabs[(at + by + tabs.length) % tabs.length];
      next.focus();
      pick(next.id.slice(4));
    });
  }
}

export function pick(name) {
  const group = groups[name];
  if (!group) return;
  for (const tab of group.tabs) {
    const is = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !is;
  }
  remember(group.side, name);
  for (const f of listeners) f(group.side, name);
}

// The small box that follows the mouse.

import { $, h } from "./dom.js";

const el = $("tip");

export const tip = {
  /** @type {(event: MouseEvent, title: string, sub: string, lines: string[]) => void} */
  show(event, title, sub, lines) {
    el.replaceChildren(h("b", {}, title), h("span", {}, sub), ...lines.map((l) => h("div", {}, l)));
    el.hidden = false;
    const w = el.offsetWidth, hh = el.offsetHeight;
    el.style.left = `${Math.min(window.innerWidth - w - 8, event.clientX + 14)}px`;
    el.style.top = `${event.clientY + 18 + hh > window.innerHeight ? event.clientY - hh - 10 : event.clientY + 18}px`;
  },
  hide() { el.hidden = true; },
};

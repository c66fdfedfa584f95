// What lies over the page: the small box that follows the mouse, and dialogs.

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

/**
 * A dialog: title, body, buttons; Escape closes it, and focus returns.
 * @param {string} title
 * @param {HTMLElement} body
 * @param {HTMLElement[]} buttons
 */
export function modal(title, body, buttons = []) {
  const dialog = h("dialog", { "aria-label": title }), close = h("button", { type: "button", class: "icon close", "aria-label": "Close", onclick: () => dialog.close() }, "×");
  dialog.append(h("header", {}, h("h2", {}, title), close), h("div", { class: "body" }, body), ...(buttons.length ? [h("footer", {}, buttons)] : []));
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

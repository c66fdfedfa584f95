// A dialog: title, body, buttons; Escape closes it, focus comes back.

import { h } from "./dom.js";

/**
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

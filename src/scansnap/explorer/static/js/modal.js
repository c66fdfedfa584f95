// A dialog: title, body, buttons; Escape closes it, focus comes back.

import { h } from "./dom.js";

export function modal(title, body, buttons = []) {
  const close = h("button", { type: "button", class: "icon close", "aria-label": "Close", onclick: () => dialog.close() }, "×");
  const dialog = h("dialog", { "aria-label": title }, h("header", {}, h("h2", {}, title), close), h("div", { class: "body" }, body), buttons.length ? h("footer", {}, buttons) : null);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

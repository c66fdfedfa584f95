// The report on a probe's file, in the page: chosen from those given at start, in a frame that may do nothing but its own.

import { $, errorMessage, h, refuse } from "../../page/dom.js";
import * as lab from "../../compute/lab.js";
import { modal } from "../../page/popup.js";

/** @type {HTMLAnchorElement} */
const link = $("probe");

/** Requests the whole page, so that an error is shown here, beside the choice. */
async function open() {
  const refusal = h("p", { class: "refusal", role: "alert", hidden: true });
  const frame = h("iframe", { title: "Report on a probe's file", sandbox: "allow-scripts" }), tab = h("a", { target: "_blank", class: "button" }, "Open in a tab");
  const show = async (/** @type {string} */ file) => {
    const address = new URL(link.href);
    address.searchParams.set("file", file);
    tab.href = address.href;
    try {
      await lab.probe(address.href);
      refuse(refusal, "");
      frame.hidden = false;
      frame.src = address.href;
    } catch (e) { frame.hidden = true; refuse(refusal, errorMessage(e)); }
  };
  const choice = h("select", { id: "probe-file", onchange: () => show(choice.value) });
  const dialog = modal("A probe's report", h("div", { class: "probes" }, h("div", { class: "lensform" }, h("label", {}, "File", choice), tab), refusal, frame));
  dialog.classList.add("wide");
  try {
    const { files } = await lab.probes();
    choice.append(...files.map((f) => h("option", { value: f }, f)));
    if (files.length) await show(files[0]); else refuse(refusal, "There is no probe's file in the folder given at start yet.");
  } catch (e) { refuse(refusal, errorMessage(e)); }
}

export function start() {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a tab of its own, as with any link
    event.preventDefault();
    open();
  });
}

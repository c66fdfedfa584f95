// Files: pictures of any view, data as CSV, the set-up as TOML, a film that plays without a server.

import * as api from "../server/api.js";
import { $, h, refuse, said, toast } from "../page/dom.js";
import { app } from "../app.js";
import { make, tooLong } from "../address.js";
import { picture } from "./curves.js";
import { modal } from "../page/modal.js";
import * as stage from "./stage.js";
import { VIEWS } from "./traces.js";
import * as ytable from "./ytable.js";

/** @typedef {"png" | "svg"} Format */

/**
 * @param {Blob} blob
 * @param {string} name
 */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob), a = h("a", { href: url, download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/**
 * @param {string} name
 * @param {Format} format
 */
async function view(name, format) {
  if (name !== "attention" && name !== "y") return picture(name, format);
  const from = name === "attention" ? stage : ytable;
  const made = format === "png" ? await from.exportPng() : new Blob([from.exportSvg()], { type: "image/svg+xml" });
  if (!made) throw new Error("The picture could not be made.");
  return made;
}

export function open() {
  if (!app.film?.length) return;
  const refusal = h("p", { class: "refusal", role: "alert", hidden: true }), run = app.film.run.run;
  const act = (/** @type {string} */ label, /** @type {() => Promise<void>} */ f, /** @type {string} */ id) => {
    const button = h("button", { type: "button", id, onclick: async () => {
      button.disabled = true;
      try { await f(); refuse(refusal, ""); } catch (error) { refuse(refusal, said(error)); }
      button.disabled = false;
    } }, label);
    return button;
  };
  /** @type {(what: string, name: string, type: string) => () => Promise<void>} */
  const text = (what, name, type) => async () => saveBlob(new Blob([await api.file(run, what)], { type }), name);
  const views = [{ name: "attention", title: "Attention, bars and heat maps" }, ...VIEWS, ...(ytable.has() ? [{ name: "y", title: "Decoder Y" }] : [])];
  /** @type {(title: string, sub: string, ...buttons: HTMLElement[]) => HTMLElement} */
  const row = (title, sub, ...buttons) => h("li", {}, h("span", {}, h("b", {}, title), sub ? h("em", {}, sub) : null), h("div", {}, buttons));
  const formats = /** @type {Format[]} */ (["png", "svg"]);
  modal("Export", h("div", {},
    h("ul", { class: "exports" },
      row("Film", "one HTML file that plays without a server", act("HTML", text("film.html", "scansnap-film.html", "text/html"), "export-film")),
      row("Set-up", "runs as it is with scansnap run", act("TOML", text("toml", "scansnap-run.toml", "application/toml"), "export-toml")),
      row("Data", "step, quantity, class, query, token, kind, value", act("CSV", text("csv?frames=200", "scansnap-run.csv", "text/csv"), "export-csv")),
      views.map((v) => row(v.title, "", ...formats.map((f) => act(f.toUpperCase(), async () => saveBlob(await view(v.name, f), `scansnap-${v.name}.${f}`), `export-${v.name}-${f}`))))),
    refusal));
}

export async function share() {
  const address = location.origin + location.pathname + make(), why = tooLong(address);
  if (why) return toast(why);
  history.replaceState(null, "", make());
  try {
    await navigator.clipboard.writeText(address);
    toast("The address of this state is on the clipboard.");
  } catch { toast("The address bar now holds the whole state."); }
}

export function start() {
  $("export").addEventListener("click", open);
  $("share").addEventListener("click", share);
}

// Files: pictures of any view, data as CSV, the set-up as TOML, a film that plays by itself.

import * as api from "../../compute/api.js";
import { $, errorMessage, h, refuse, saveBlob, toast } from "../../page/dom.js";
import { app } from "../../app.js";
import { make, tooLong } from "../../address.js";
import { picture } from "../curves/curves.js";
import { pageSource } from "../../compute/data.js";
import { modal } from "../../page/popup.js";
import * as stage from "../stage/stage.js";
import { VIEWS } from "../curves/traces.js";
import * as ytable from "../panels/ytable.js";

/** @typedef {"png" | "svg"} Format */

/**
 * @param {string} name
 * @param {Format} format
 */
async function view(name, format) {
  if (name !== "attention" && name !== "y") return picture(name, format);
  const from = name === "attention" ? stage : ytable;
  const blob = format === "png" ? await from.exportPng() : new Blob([from.exportSvg()], { type: "image/svg+xml" });
  if (!blob) throw new Error("The picture could not be made.");
  return blob;
}

export function open() {
  const { film } = app;
  if (!film?.length) return;
  const refusal = h("p", { class: "refusal", role: "alert", hidden: true });
  const act = (/** @type {string} */ label, /** @type {() => Promise<void>} */ f, /** @type {string} */ id) => {
    const button = h("button", { type: "button", id, onclick: async () => {
      button.disabled = true;
      try { await f(); refuse(refusal, ""); } catch (error) { refuse(refusal, errorMessage(error)); }
      button.disabled = false;
    } }, label);
    return button;
  };
  /** @type {(what: "film.html" | "csv" | "toml", name: string, type: string) => () => Promise<void>} */
  const text = (what, name, type) => async () => saveBlob(new Blob([api.file(film, what)], { type }), name);
  const views = [{ name: "attention", title: "Attention, bars and heat maps" }, ...VIEWS, ...(ytable.has() ? [{ name: "y", title: "Decoder Y" }] : [])];
  /** @type {(title: string, sub: string, ...buttons: HTMLElement[]) => HTMLElement} */
  const row = (title, sub, ...buttons) => h("li", {}, h("span", {}, h("b", {}, title), sub ? h("em", {}, sub) : null), h("div", {}, buttons));
  const gif = act("GIF", async () => {
    try { saveBlob(await stage.exportGif((part) => { gif.textContent = `${Math.round(100 * part)}%`; }), "scansnap-film.gif"); } finally { gif.textContent = "GIF"; }
  }, "export-gif");
  const formats = /** @type {Format[]} */ (["png", "svg"]);
  modal("Export", h("div", {},
    h("ul", { class: "exports" },
      row("Film", "HTML plays by itself, with its own slider; GIF goes into slides and chats", act("HTML", text("film.html", "scansnap-film.html", "text/html"), "export-film"), gif),
      row("Set-up", "a file for scansnap run", act("TOML", text("toml", "scansnap-run.toml", "application/toml"), "export-toml")),
      row("Data", "step, quantity, seq_class, query, token, word, kind, value", act("CSV", text("csv", "scansnap-run.csv", "text/csv"), "export-csv")),
      views.map((v) => row(v.title, "", ...formats.map((f) => act(f.toUpperCase(), async () => saveBlob(await view(v.name, f), `scansnap-${v.name}.${f}`), `export-${v.name}-${f}`))))),
    refusal));
}

export async function share() {
  const address = location.href.split("#")[0] + make(), why = tooLong(make());
  if (why) return toast(why);
  history.replaceState(null, "", make());
  if (location.protocol === "file:") return shareFile(address);
  try {
    await navigator.clipboard.writeText(address);
    toast("Copied the link to this state.");
  } catch { toast("The address bar now holds the whole state."); }
}

/**
 * This page is a file: its address leads nowhere on another machine, so the file goes along.
 * @param {string} address
 */
function shareFile(address) {
  const part = make(), field = h("textarea", { id: "share-part", rows: 3, readOnly: true, value: part, "aria-label": "The state, as the end of an address" });
  const copy = async (/** @type {string} */ text) => { try { await navigator.clipboard.writeText(text); toast("Copied."); } catch { field.select(); } };
  modal("Share", h("div", { class: "share" },
    h("p", {}, "This page is a file on your machine, so a link to it works only here. Send the file, or put it on the web, and add this text to the end of its address. It holds the whole state."), field), [
    h("button", { type: "button", id: "share-file", class: "primary", onclick: () => saveBlob(new Blob([pageSource()], { type: "text/html" }), "explorer.html") }, "Save the file"),
    h("button", { type: "button", id: "share-copy", onclick: () => copy(part) }, "Copy the text"),
    h("button", { type: "button", onclick: () => copy(address) }, "Copy the local link")]);
  field.select();
}

export function start() {
  $("export").addEventListener("click", open);
  $("share").addEventListener("click", share);
}

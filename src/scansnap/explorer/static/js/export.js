// Files: pictures of any view, data as CSV, the set-up as TOML, a film that plays without a server.

import * as api from "./api.js";
import { $, h, refuse, toast } from "./dom.js";
import { app } from "./app.js";
import { make } from "./address.js";
import { picture } from "./curves.js";
import { modal } from "./modal.js";
import * as stage from "./stage.js";
import { VIEWS } from "./traces.js";
import * as ytable from "./ytable.js";

export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob), a = h("a", { href: url, download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const svgBlob = (text) => new Blob([text], { type: "image/svg+xml" });

async function view(name, format) {
  if (name === "attention") return format === "png" ? stage.exportPng() : svgBlob(stage.exportSvg());
  if (name === "y") return format === "png" ? ytable.exportPng() : svgBlob(ytable.exportSvg());
  return picture(name, format);
}

export function open() {
  if (!app.film?.length) return;
  const refusal = h("p", { class: "refusal", role: "alert", hidden: true });
  const act = (label, f, id) => h("button", { type: "button", id, onclick: async (e) => {
    e.target.disabled = true;
    try { await f(); refuse(refusal, ""); } catch (error) { refuse(refusal, error.message); }
    e.target.disabled = false;
  } }, label);
  const run = app.film.run.run;
  const text = (what, name, type) => async () => saveBlob(new Blob([await api.file(run, what)], { type }), name);
  const views = [{ name: "attention", title: "Attention, bars and heat maps" }, ...VIEWS, ...(ytable.has() ? [{ name: "y", title: "Decoder Y" }] : [])];
  const row = (title, sub, ...buttons) => h("li", {}, h("span", {}, h("b", {}, title), sub ? h("em", {}, sub) : null), h("div", {}, buttons));
  modal("Export", h("div", {},
    h("ul", { class: "exports" },
      row("Film", "one HTML file that plays without a server", act("HTML", text("film.html", "scansnap-film.html", "text/html"), "export-film")),
      row("Set-up", "runs as it is with scansnap run", act("TOML", text("toml", "scansnap-run.toml", "application/toml"), "export-toml")),
      row("Data", "step, quantity, class, query, token, kind, value", act("CSV", text("csv?frames=200", "scansnap-run.csv", "text/csv"), "export-csv")),
      views.map((v) => row(v.title, "", ...["png", "svg"].map((f) => act(f.toUpperCase(), async () => saveBlob(await view(v.name, f), `scansnap-${v.name}.${f}`), `export-${v.name}-${f}`))))),
    refusal));
}

export async function share() {
  const address = location.origin + location.pathname + make();
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

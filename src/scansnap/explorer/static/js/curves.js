// The curve views: plotly, loaded after the first paint, fed in turns so that the bars keep their frame rate.

import { $, h } from "./dom.js";
import { app, emit, frameIndex, on } from "./app.js";
import { modal } from "./modal.js";
import { notes } from "./predict.js";
import { isPlaying } from "./runner.js";
import { colours } from "./theme.js";
import { VIEWS, figure } from "./traces.js";

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: "reset", showTips: false };
const panel = $("panel-curves"), plots = new Map(); // name → {view, box, cursor, dirty}
let Plotly = null, loading = null, next = 0, free = 0, hidden = false;

/** plotly, once. */
export function load() {
  loading ??= new Promise((done, fail) => {
    const script = h("script", { src: "/vendor/plotly.min.js", onload: () => { Plotly = window.Plotly; done(Plotly); }, onerror: () => fail(new Error("plotly could not be loaded")) });
    document.head.append(script);
  });
  return loading;
}

const soil = () => { for (const p of plots.values()) p.dirty = true; };

export function start() {
  const grid = h("div", { class: "plots" });
  for (const view of VIEWS) {
    const box = h("div", { class: "plot", role: "img", "aria-label": `${view.title} over steps` }), cursor = h("i", { class: "cursor", "aria-hidden": "true" });
    const data = { loss: "loss", entropy: "entropy", growth: "growth", chi: "growth", z: "z" }[view.name];
    grid.append(h("figure", { class: `view ${view.name}`, "data-view": data, id: `view-${view.name}` },
      h("figcaption", {}, h("span", {}, view.title), h("button", { type: "button", class: "icon", "aria-label": `Enlarge ${view.title}`, title: "Enlarge, zoom, save", onclick: () => enlarge(view) }, "⤢")),
      h("div", { class: "plotbox" }, box, cursor)));
    plots.set(view.name, { view, box, cursor, dirty: true, made: false });
  }
  const option = (name, cls, text) => h("label", { class: `option ${cls}` }, h("input", { type: "checkbox", id: `show-${name}`, checked: app.options[name], onchange: (e) => { app.options[name] = e.target.checked; emit("options"); } }), h("i", { "aria-hidden": "true" }), text);
  panel.append(grid, h("div", { class: "options" }, option("flow", "flow", "flow, T → ∞"), option("theory", "theory", "closed form"), h("span", { class: "option run" }, h("i"), "run"), h("span", { class: "option pinned", id: "option-pinned", hidden: true }, h("i"), "pinned")), h("p", { class: "note", id: "predict-note", role: "status" }));
  on("frames run focus scale pinned flow marks theme options state", soil);
  on("run focus", () => { // logits belong to a query
    const { layout, classes } = app.film.run, q = layout.queries[layout.class_query[Math.max(0, app.focus)]];
    $("view-z").querySelector("span").textContent = `Logits z of query ${classes.words?.[q] ?? q}`;
  });
  on("pinned", () => ($("option-pinned").hidden = !app.pinned));
  on("flow run", () => ($("predict-note").textContent = [notes.theory, notes.flow].filter(Boolean).join(" ")));
  new ResizeObserver(soil).observe(panel);
}

export function visible(is) {
  hidden = !is;
  if (is) soil();
}

/** Called on every animation frame: draws one plot when its turn has come. */
export function frame(now) {
  moveCursors();
  if (!Plotly || hidden || !app.film?.length || now < free) return;
  const list = [...plots.values()];
  for (let i = 0; i < list.length; i++) {
    const p = list[(next + i) % list.length];
    if (!p.dirty) continue;
    next = (next + i + 1) % list.length;
    const begun = performance.now();
    draw(p);
    const cost = performance.now() - begun;
    free = now + (isPlaying() ? Math.max(90, 7 * cost) : 16);
    return;
  }
}

function draw(p) {
  const { clientWidth: width, clientHeight: height } = p.box;
  if (width < 40 || height < 40) return;
  p.dirty = false;
  const { data, layout } = figure(p.view, { points: isPlaying() ? 70 : 400, live: isPlaying() });
  Plotly.react(p.box, data, { ...layout, width, height }, CONFIG);
  p.made = true;
}

/** The thin line at the step on screen; moved without redrawing the plot. */
function moveCursors() {
  const i = frameIndex();
  if (hidden || i < 0) return;
  for (const { box, cursor, made } of plots.values()) {
    const axis = made && box._fullLayout?.xaxis;
    if (!axis) continue;
    const x = axis._offset + axis.d2p(Math.max(app.film.steps[i], app.scale === "log" ? 1 : 0));
    const inside = x >= axis._offset - 1 && x <= axis._offset + axis._length + 1;
    if (cursor.hidden === inside) cursor.hidden = !inside;
    const at = `translateX(${x.toFixed(1)}px)`;
    if (cursor.style.transform !== at) cursor.style.transform = at;
  }
}

/** One plot, large, with plotly's own tools. */
export async function enlarge(view) {
  await load();
  const box = h("div", { class: "large" });
  const dialog = modal(view.title, box, [
    h("button", { type: "button", onclick: () => save(view, "png") }, "PNG"), h("button", { type: "button", onclick: () => save(view, "svg") }, "SVG")]);
  dialog.classList.add("wide");
  const { data, layout } = figure(view, { points: 1000, large: true });
  const size = { width: box.clientWidth, height: box.clientHeight };
  await Plotly.newPlot(box, data, { ...layout, ...size }, { ...CONFIG, displayModeBar: true, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] });
  dialog.addEventListener("close", () => Plotly.purge(box));
}

async function save(view, format) {
  const { saveBlob } = await import("./export.js");
  saveBlob(await picture(view.name, format), `scansnap-${view.name}.${format}`);
}

/** A plot as a file: "png" or "svg". */
export async function picture(name, format) {
  await load();
  const view = VIEWS.find((v) => v.name === name), { data, layout } = figure(view, { points: 1000, large: true });
  const url = await Plotly.toImage({ data, layout: { ...layout, width: 900, height: 560, paper_bgcolor: colours().panel }, config: CONFIG }, { format, width: 900, height: 560, scale: format === "png" ? 2 : 1 });
  const comma = url.indexOf(","), body = url.slice(comma + 1);
  if (url.slice(0, comma).endsWith("base64")) return new Blob([Uint8Array.from(atob(body), (ch) => ch.charCodeAt(0))], { type: `image/${format}` });
  return new Blob([decodeURIComponent(body)], { type: "image/svg+xml" });
}

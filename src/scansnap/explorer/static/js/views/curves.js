// The curve views: plotly, loaded after the first paint, fed in turns so that the bars keep their frame rate.

import { $, h } from "../page/dom.js";
import { app, emit, frameIndex, ghost, on } from "../app.js";
import { CLOSED, FLOW, PINNED, RESPONSE, colours, faint, legible } from "../draw/colours.js";
import { modal } from "../page/modal.js";
import { name } from "../draw/film.js";
import { settings } from "../draw/caption.js";
import { url } from "../server/api.js";
import { OVERLAYS, told } from "../server/predict.js";
import { isMoving } from "../server/runner.js";
import { VIEWS, figure } from "./traces.js";

/** @import { Overlay } from "../server/predict.js" */
/** @import { PlotLayout, View } from "./traces.js" */
/**
 * What we call of plotly: its documented functions, and the layout it keeps at the element.
 * @typedef {object} PlotlyApi
 * @property {(box: HTMLElement, data: object[], layout: object, config: object) => Promise<void>} react
 * @property {(box: HTMLElement, data: object[], layout: object, config: object) => Promise<void>} newPlot
 * @property {(box: HTMLElement) => void} purge
 * @property {(figure: object, options: object) => Promise<string>} toImage
 */
/** @typedef {HTMLElement & {layout?: PlotLayout}} PlotBox */
/** @typedef {{view: View, box: PlotBox, cursor: HTMLElement, dirty: boolean, made: boolean}} Plot */

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: "reset", showTips: false };
/** Which views of the tour a plot belongs to. @type {Record<string, string>} */
const WATCHED = { chi: "growth" };
const panel = $("panel-curves");
/** @type {Map<string, Plot>} */
const plots = new Map();
/** @type {PlotlyApi | null} */
let plotly = null;
/** @type {Promise<PlotlyApi> | null} */
let loading = null;
let next = 0, free = 0, hidden = false;

/** plotly, once. */
export function load() {
  loading ??= new Promise((done, fail) => {
    const ready = () => { plotly = /** @type {PlotlyApi} */ (/** @type {any} */ (window).Plotly); done(plotly); };
    document.head.append(h("script", { src: url("/vendor/plotly.min.js"), onload: ready, onerror: () => fail(new Error("plotly could not be loaded")) }));
  });
  return loading;
}

const soil = () => { for (const p of plots.values()) p.dirty = true; };

export function start() {
  const grid = h("div", { class: "plots" });
  for (const view of VIEWS) {
    const box = h("div", { class: "plot", role: "img", "aria-label": `${view.title} over steps` }), cursor = h("i", { class: "cursor", "aria-hidden": "true" });
    grid.append(h("figure", { class: `view ${view.name}`, "data-view": WATCHED[view.name] ?? view.name, id: `view-${view.name}` },
      h("figcaption", {}, h("span", {}, view.title), h("button", { type: "button", class: "icon", "aria-label": `Enlarge ${view.title}`, title: "Enlarge, zoom, save", onclick: () => enlarge(view) }, "⤢")),
      h("div", { class: "plotbox" }, box, cursor)));
    plots.set(view.name, { view, box, cursor, dirty: true, made: false });
  }
  panel.append(grid, h("div", { class: "options" }, option("flow", "flow, T → ∞"), option("theory", "closed form"), option("response", "response"), sign("run", "run"), sign("ghost", "run before"), sign("pinned", "pinned")), h("p", { class: "note", id: "predict-note", role: "status" }));
  on("frames run focus scale pinned ghost flow marks theme options state", soil);
  on("theme", paint);
  paint();
  on("options run", () => { for (const which of OVERLAYS) /** @type {HTMLInputElement} */ ($(`show-${which}`)).checked = app.options[which]; });
  on("pinned ghost run", () => { $("option-pinned").hidden = !app.pinned; $("option-ghost").hidden = !ghost(); });
  on("run focus", () => { // logits belong to a query
    if (!app.film) return;
    const { layout, classes } = app.film.run, title = $("view-z").querySelector("span");
    if (title) title.textContent = `Logits z of query ${name(classes, layout.queries[layout.class_query[Math.max(0, app.focus)]])}`;
  });
  on("flow run options marks", () => ($("predict-note").textContent = told()));
  new ResizeObserver(soil).observe(panel);
}

/**
 * @param {Overlay} which
 * @param {string} text
 */
function option(which, text) {
  const input = h("input", { type: "checkbox", id: `show-${which}`, checked: app.options[which], onchange: () => { app.options[which] = app.chosen[which] = input.checked; emit("options"); } });
  return h("label", { class: `option ${which}` }, input, h("i", { "aria-hidden": "true" }), text);
}

const sign = (/** @type {string} */ which, /** @type {string} */ text) => h("span", { class: `option ${which}`, id: `option-${which}`, hidden: which !== "run" }, h("i", { "aria-hidden": "true" }), text);

/** The signs of the lines in the colours of the lines. */
function paint() {
  const c = colours();
  /** @type {Record<string, string>} */
  const lines = { flow: legible(FLOW, c), theory: legible(CLOSED, c), response: legible(RESPONSE, c), pinned: legible(PINNED, c), ghost: faint(c) };
  for (const [which, colour] of Object.entries(lines)) { const i = /** @type {HTMLElement | null} */ (panel.querySelector(`.option.${which} i`)); if (i) i.style.borderTopColor = colour; }
}

/** @param {boolean} is */
export function visible(is) {
  hidden = !is;
  if (is) soil();
}

/**
 * Called on every animation frame: draws one plot when its turn has come.
 * @param {number} now
 */
export function frame(now) {
  moveCursors();
  if (!plotly || hidden || !app.film?.length || now < free) return;
  const list = [...plots.values()];
  for (let i = 0; i < list.length; i++) {
    const p = list[(next + i) % list.length];
    if (!p.dirty) continue;
    next = (next + i + 1) % list.length;
    const begun = performance.now();
    draw(plotly, p);
    const cost = performance.now() - begun;
    free = now + (isMoving() ? Math.max(90, 7 * cost) : 16);
    return;
  }
}

/**
 * @param {PlotlyApi} api
 * @param {Plot} p
 */
function draw(api, p) {
  const { clientWidth: width, clientHeight: height } = p.box;
  if (width < 40 || height < 40) return;
  p.dirty = false;
  const { data, layout } = figure(p.view, { points: isMoving() ? 70 : 400, live: isMoving(), width, height });
  api.react(p.box, data, layout, CONFIG);
  p.made = true;
}

/** The thin line at the step on screen; moved without redrawing the plot. Its place follows from the layout in force. */
function moveCursors() {
  const i = frameIndex();
  if (hidden || i < 0 || !app.film) return;
  const log = app.scale === "log", step = app.film.steps[i], value = log ? Math.log10(Math.max(step, 1)) : step;
  for (const { box, cursor, made } of plots.values()) {
    if (!made || !box.layout?.xaxis.range) continue;
    const { margin, width = 0, xaxis: { range: [low, high] } } = box.layout, end = width - margin.r;
    const x = margin.l + ((value - low) / (high - low)) * (end - margin.l);
    const inside = x >= margin.l - 1 && x <= end + 1;
    if (cursor.hidden === inside) cursor.hidden = !inside;
    const at = `translateX(${x.toFixed(1)}px)`;
    if (cursor.style.transform !== at) cursor.style.transform = at;
  }
}

/**
 * One plot, large, with plotly's own tools.
 * @param {View} view
 */
async function enlarge(view) {
  const api = await load();
  const box = h("div", { class: "large" });
  const dialog = modal(view.title, box, [
    h("button", { type: "button", onclick: () => save(view, "png") }, "PNG"), h("button", { type: "button", onclick: () => save(view, "svg") }, "SVG")]);
  dialog.classList.add("wide");
  const { data, layout } = figure(view, { points: 1000, large: true, width: box.clientWidth, height: box.clientHeight });
  await api.newPlot(box, data, layout, { ...CONFIG, displayModeBar: true, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] });
  dialog.addEventListener("close", () => api.purge(box));
}

/**
 * @param {View} view
 * @param {"png" | "svg"} format
 */
async function save(view, format) {
  const { saveBlob } = await import("./export.js");
  saveBlob(await picture(view.name, format), `scansnap-${view.name}.${format}`);
}

/**
 * A plot as a file: with its title, its legend and the settings of its run.
 * @param {string} which
 * @param {"png" | "svg"} format
 */
export async function picture(which, format) {
  const api = await load(), view = VIEWS.find((v) => v.name === which), c = colours(), size = { width: 900, height: 600 };
  if (!view || !app.film) throw new Error(`There is no view ${which}.`);
  const { data, layout } = figure(view, { points: 1000, large: true, ...size }), named = $(`view-${which}`).querySelector("figcaption span")?.textContent ?? view.title, title = { text: escaped(named), subtitle: { text: escaped(settings(app.film)), font: { size: 12, color: c.muted } }, x: 0.02, xanchor: "left", y: 0.98, yanchor: "top", font: { size: 18, color: c.ink } };
  const image = await api.toImage({ data, layout: { ...layout, title, margin: { ...layout.margin, t: layout.margin.t + 60 }, paper_bgcolor: c.panel }, config: CONFIG }, { format, ...size, scale: format === "png" ? 2 : 1 });
  const comma = image.indexOf(","), body = image.slice(comma + 1);
  if (image.slice(0, comma).endsWith("base64")) return new Blob([Uint8Array.from(atob(body), (ch) => ch.charCodeAt(0))], { type: `image/${format}` });
  return new Blob([decodeURIComponent(body)], { type: "image/svg+xml" });
}

/** plotly reads texts as a few tags of HTML. */
const escaped = (/** @type {string} */ text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

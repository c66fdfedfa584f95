// The whole state in the address: set-up, rates changed on the way, step, view, pinned run. Readable where it can be.

import { app, frameIndex } from "./app.js";
import { whole } from "./draw/format.js";
import { debounce } from "./page/dom.js";

/** @import { RateChange, Setup } from "./messages.js" */
/** @import { Pace } from "./app.js" */

const DEFAULTS = { focus: -1, scale: "log", speed: "log", left: "setup", right: "curves", level: "theory" };
/** @type {{left: string, right: string, level: string, scene: number | null}} */
const view = { left: "setup", right: "curves", level: "theory", scene: null };
let silent = false;

/**
 * @template {keyof typeof view} Key
 * @param {Key} key
 * @param {(typeof view)[Key]} value
 */
export function remember(key, value) {
  view[key] = value;
  write();
}

/**
 * Differences from the defaults, as short texts.
 * @param {Setup} setup
 * @returns {[string, string][]}
 */
function fields(setup, prefix = "") {
  /** @type {[string, string][]} */
  const out = [];
  const defaults = Object.fromEntries(app.catalogue.controls.map((c) => [c.name, c.default]));
  for (const [key, value] of Object.entries(setup)) {
    if (key === "classes") {
      const { preset, ...settings } = value;
      if (preset) { out.push([prefix + "classes", preset]); for (const [k, v] of Object.entries(settings)) out.push([`${prefix}classes.${k}`, JSON.stringify(v)]); }
      else out.push([prefix + "classes", JSON.stringify(value)]);
    } else if (value !== defaults[key]) out.push([prefix + key, typeof value === "string" ? value : JSON.stringify(value)]);
  }
  return out;
}

const marksText = (/** @type {RateChange[]} */ marks) => marks.map((m) => [m.step, m.eta_y, m.eta_z].join(":")).join(",");

/**
 * @param {string | null} text
 * @returns {RateChange[]}
 */
const marksFrom = (text) => (text ?? "").split(",").filter(Boolean).map((t) => t.split(":").map(Number))
  .filter((m) => m.length === 3 && m.every(Number.isFinite)).map(([step, eta_y, eta_z]) => ({ step, eta_y, eta_z }));

export function make() {
  const all = new URLSearchParams(fields(app.setup0 ?? app.setup)), film = app.film;
  if (app.preset) all.set("preset", app.preset);
  if (film?.marks.length) all.set("marks", marksText(film.marks));
  const i = frameIndex();
  if (film && i > 0 && app.state.state !== "running") all.set("step", String(film.steps[i]));
  for (const key of /** @type {const} */ (["focus", "scale", "speed"])) if (app[key] !== DEFAULTS[key]) all.set(key, String(app[key]));
  for (const key of /** @type {const} */ (["left", "right", "level"])) if (view[key] !== DEFAULTS[key]) all.set(key, view[key]);
  if (view.scene !== null && view.left === "tour") all.set("scene", String(view.scene));
  if (app.bar && view.right === "chain") all.set("bar", `${app.bar.k}:${app.bar.token}`);
  if (app.chosen.flow !== undefined) all.set("flow", app.chosen.flow ? "on" : "off");
  if (app.pinned) for (const [k, v] of fields(app.pinned.setup, "pin.")) all.set(k, v);
  if (app.pinned?.film.marks.length) all.set("pin.marks", marksText(app.pinned.film.marks));
  return "#" + all.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
}

/**
 * Why an address is not one to share, in words; nothing if it is.
 * @param {string} address
 */
export function tooLong(address) {
  const most = app.catalogue.limits.address_characters;
  return address.length <= most ? "" : `The link would have ${whole(address.length)} characters, and beyond ${whole(most)} mail and chat programs cut links: take a shorter text or fewer classes, or send the set-up as TOML (Export).`;
}

export const write = debounce(() => {
  if (!app.setup) return;
  const hash = make();
  if (hash === location.hash) return;
  silent = true;
  history.replaceState(null, "", hash);
  silent = false;
}, 300);

const value = (/** @type {string} */ text) => { try { return JSON.parse(text); } catch { return text; } };

/**
 * @param {URLSearchParams} all
 * @param {string} prefix
 * @returns {Setup | null}
 */
function setupFrom(all, prefix) {
  /** @type {Setup} */
  const setup = {};
  for (const [key, text] of all) {
    if (!key.startsWith(prefix)) continue;
    const name = key.slice(prefix.length), control = app.catalogue.controls.find((c) => c.name === name);
    if (name === "classes") { const v = value(text); setup.classes = typeof v === "object" && v ? v : { ...(setup.classes ?? {}), preset: text }; }
    else if (name.startsWith("classes.")) (setup.classes ??= {})[name.slice(8)] = value(text);
    else if (control) setup[name] = control.kind === "number" || control.kind === "integer" || control.kind === "flag" ? value(text) : text;
  }
  return setup.classes ? setup : null;
}

/** What the address says, or null if it says nothing. */
export function read() {
  const all = new URLSearchParams(location.hash.slice(1));
  const setup = setupFrom(new URLSearchParams([...all].filter(([k]) => !k.startsWith("pin."))), "");
  if (!setup && !all.has("scene") && !all.has("left") && !all.has("right")) return null;
  const number = (/** @type {string} */ key) => (all.has(key) && Number.isFinite(Number(all.get(key))) ? Number(all.get(key)) : null);
  /** @type {Pace | null} */
  const speed = all.get("speed") === "max" ? "max" : number("speed");
  const [k, token] = (all.get("bar") ?? "").split(":").map(Number);
  return {
    setup, bar: Number.isInteger(token) ? { k, token } : null, marks: marksFrom(all.get("marks")), speed, preset: all.get("preset"), step: number("step"), focus: number("focus"), scene: number("scene"),
    scale: all.get("scale"), left: all.get("left"), right: all.get("right"), flow: all.has("flow") ? all.get("flow") !== "off" : null, pinned: setupFrom(all, "pin."), pinnedMarks: marksFrom(all.get("pin.marks")),
  };
}

/** @param {() => void} f */
export function onForeignChange(f) {
  window.addEventListener("hashchange", () => silent || location.hash === make() || f());
}

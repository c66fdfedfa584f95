// The whole state in the address: set-up, rates changed on the way, step, view, pinned run. Readable where it can be.

import { app, frameIndex } from "./app.js";
import { debounce } from "./dom.js";

const VIEW = { focus: -1, scale: "log", speed: 100, left: "setup", right: "curves" };
const view = { left: "setup", right: "curves", scene: null };
let silent = false;

export const remember = (key, value) => { view[key] = value; write(); };

/** Differences from the defaults, as short texts. */
function fields(setup, prefix = "") {
  const out = [];
  const defaults = Object.fromEntries(app.catalogue.controls.map((c) => [c.name, c.default]));
  for (const [key, value] of Object.entries(setup)) {
    if (key === "classes") {
      const { preset, ...knobs } = value;
      if (preset) { out.push([prefix + "classes", preset]); for (const [k, v] of Object.entries(knobs)) out.push([`${prefix}classes.${k}`, JSON.stringify(v)]); }
      else out.push([prefix + "classes", JSON.stringify(value)]);
    } else if (value !== defaults[key]) out.push([prefix + key, typeof value === "string" ? value : JSON.stringify(value)]);
  }
  return out;
}

export function make() {
  const all = new URLSearchParams(fields(app.setup0 ?? app.setup));
  if (app.preset) all.set("preset", app.preset);
  if (app.film?.marks.length) all.set("marks", app.film.marks.map((m) => [m.step, m.eta_y, m.eta_z].join(":")).join(","));
  const i = frameIndex();
  if (i > 0 && app.state.state !== "running") all.set("step", app.film.steps[i]);
  for (const key of ["focus", "scale", "speed"]) if (app[key] !== VIEW[key]) all.set(key, app[key]);
  for (const key of ["left", "right"]) if (view[key] !== VIEW[key]) all.set(key, view[key]);
  if (view.scene !== null && view.left === "tour") all.set("scene", view.scene);
  if (!app.options.flow) all.set("flow", "off");
  if (app.pinned) for (const [k, v] of fields(app.pinned.setup, "pin.")) all.set(k, v);
  return "#" + all.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
}

export const write = debounce(() => {
  if (!app.setup) return;
  const hash = make();
  if (hash === location.hash) return;
  silent = true;
  history.replaceState(null, "", hash);
  silent = false;
}, 300);

const value = (text) => { try { return JSON.parse(text); } catch { return text; } };

function setupFrom(all, prefix) {
  const setup = {};
  for (const [key, text] of all) {
    if (!key.startsWith(prefix)) continue;
    const name = key.slice(prefix.length);
    if (name === "classes") { const v = value(text); setup.classes = typeof v === "object" && v ? v : { ...(setup.classes ?? {}), preset: text }; }
    else if (name.startsWith("classes.")) (setup.classes ??= {})[name.slice(8)] = value(text);
    else if (app.catalogue.controls.some((c) => c.name === name)) {
      const control = app.catalogue.controls.find((c) => c.name === name);
      setup[name] = control.kind === "number" || control.kind === "integer" || control.kind === "flag" ? value(text) : text;
    }
  }
  return setup.classes ? setup : null;
}

/** What the address says, or null if it says nothing. */
export function read() {
  const all = new URLSearchParams(location.hash.slice(1));
  const setup = setupFrom(new URLSearchParams([...all].filter(([k]) => !k.startsWith("pin."))), "");
  if (!setup && !all.has("scene") && !all.has("left") && !all.has("right")) return null;
  const number = (key) => (all.has(key) && Number.isFinite(Number(all.get(key))) ? Number(all.get(key)) : null);
  const marks = (all.get("marks") ?? "").split(",").filter(Boolean).map((t) => t.split(":").map(Number))
    .filter((m) => m.length === 3 && m.every(Number.isFinite)).map(([step, eta_y, eta_z]) => ({ step, eta_y, eta_z }));
  return {
    setup, marks, preset: all.get("preset"), step: number("step"), focus: number("focus"), scene: number("scene"),
    speed: all.get("speed") === "max" ? "max" : number("speed"), scale: all.get("scale"), left: all.get("left"), right: all.get("right"),
    flow: all.get("flow") !== "off", pinned: setupFrom(all, "pin."),
  };
}

export function onForeignChange(f) {
  window.addEventListener("hashchange", () => silent || location.hash === make() || f());
}

// What the page knows, in one place, and who wants to hear of changes.

/** @import { Catalogue, ClosedForms, FlowCurves, Setup } from "./messages.js" */
/** @import { Film } from "./draw/film.js" */
/** @typedef {"log" | number | "max"} Pace  A whole run in 12 s paced by ln t, steps per second, or as they come. */

export const app = {
  /** @type {Catalogue} */
  catalogue: /** @type {any} */ (null), // the page is built once it is there
  /** @type {Setup} */
  setup: /** @type {any} */ (null), // what the controls say
  /** @type {Setup | null} */
  setup0: null, // what the run on screen began with
  /** @type {Film | null} */
  film: null, // of the run on screen
  /** @type {{state: "running" | "paused" | "done" | "failed", step: number, steps: number, rate: number}} */
  state: { state: "paused", step: 0, steps: 0, rate: 0 },
  /** @type {{film: Film, setup: Setup} | null} */
  pinned: null,
  /** @type {{film: Film, setup: Setup} | null} */
  ghost: null, // the film before the one on screen
  /** @type {FlowCurves | null} */
  flow: null,
  /** @type {FlowCurves | null} */
  response: null,
  /** @type {ClosedForms | null} */
  curves: null,
  /** @type {number | null} */
  cursor: 0, // frame on screen; null: the newest
  focus: -1, // class in focus; -1: all
  /** @type {{k: number, token: number} | null} */
  bar: null, // the bar that is explained
  /** @type {"log" | "linear"} */
  scale: "log", // time axis
  /** @type {Pace} */
  speed: "log",
  fromHere: false, // whether a change of the rates acts from the step on screen
  options: { flow: true, theory: true, response: false, movement: false },
  /** @type {Partial<Record<"flow" | "theory" | "response", boolean>>} */
  chosen: {}, // overlays switched by hand; the others follow the run
  /** @type {string | null} */
  preset: null, // name of the preset the set-up came from
};

/** @typedef {(detail?: any) => void} Listener */
/** @type {Map<string, Listener[]>} */
const listeners = new Map();

/**
 * Hears of one or several kinds of news.
 * @param {string} names
 * @param {Listener} f
 */
export function on(names, f) {
  for (const name of names.split(" ")) listeners.set(name, [...(listeners.get(name) ?? []), f]);
}

/**
 * @param {string} name
 * @param {any} [detail]
 */
export function emit(name, detail) {
  for (const f of listeners.get(name) ?? []) f(detail);
}

/** The run before, to compare with; a pinned run takes its place. */
export const ghost = () => (app.pinned ? null : app.ghost);

/** Index of the frame on screen, −1 if there is none. */
export function frameIndex() {
  const n = app.film?.length ?? 0;
  return app.cursor === null ? n - 1 : Math.min(app.cursor, n - 1);
}

export const atEdge = () => app.cursor === null || app.cursor >= (app.film?.length ?? 0) - 1;

/**
 * Position of a step on the time axis, growing.
 * @param {number} step
 */
export const timeAxis = (step) => (app.scale === "log" ? Math.log(step + 1) : step);

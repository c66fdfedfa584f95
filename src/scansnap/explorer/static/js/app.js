// What the page knows, in one place, and who wants to hear of changes.

export const app = {
  catalogue: null, // GET /api/catalogue
  setup: null, // what the controls say
  film: null, // of the run on screen
  state: { state: "paused", step: 0, steps: 0, speed: 100, rate: 0 },
  pinned: null, // {film, label, setup}
  flow: null, // POST /api/flow, or null
  curves: null, // POST /api/curves, or null
  cursor: null, // frame index while looking back; null: the newest
  focus: -1, // class in focus; -1: all
  scale: "log", // time axis
  speed: 100,
  options: { flow: true, theory: true },
  preset: null, // name of the preset the set-up came from
};

const ears = new Map();

export function on(names, f) {
  for (const name of names.split(" ")) ears.set(name, [...(ears.get(name) ?? []), f]);
}

export function emit(name, detail) {
  for (const f of ears.get(name) ?? []) f(detail);
}

/** Index of the frame on screen, −1 if there is none. */
export function frameIndex() {
  const n = app.film?.length ?? 0;
  return app.cursor === null ? n - 1 : Math.min(app.cursor, n - 1);
}

export const atEdge = () => app.cursor === null || app.cursor >= app.film.length - 1;

/** Position of a step on the time axis, growing. */
export const timeAxis = (step) => (app.scale === "log" ? Math.log(step + 1) : step);

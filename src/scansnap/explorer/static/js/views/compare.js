// Compare: keep a run as a pinned overlay under the next one.

import { $, h, maths, toast } from "../page/dom.js";
import { app, emit, on } from "../app.js";
import { Film } from "../draw/film.js";
import { short } from "../draw/format.js";
import { aside } from "../server/socket.js";

/** @import { MarkSaid, Setup } from "../messages.js" */
/** @import { Link } from "../server/socket.js" */

/** @type {Link | null} */
let helper = null; // a pinned run still being computed

/**
 * What tells a set-up from the one on screen, in a few words.
 * @param {Setup} setup
 * @param {Setup} against
 */
export function label(setup, against) {
  /** @type {Record<string, string>} */
  const names = Object.fromEntries(app.catalogue.controls.map((c) => [c.name, c.symbol || c.label.toLowerCase()]));
  const parts = Object.keys(names).filter((k) => JSON.stringify(setup[k]) !== JSON.stringify(against[k])).map((k) => `${names[k]} ${short(setup[k])}`);
  if (JSON.stringify(setup.classes) !== JSON.stringify(against.classes)) parts.unshift(setup.classes.preset ?? "other classes");
  return parts.length ? parts.slice(0, 3).join(", ") : `η_Y ${short(setup.eta_y)}, η_Z ${short(setup.eta_z)}`;
}

/** Pins the run on screen as it is now. */
function pinNow() {
  const now = app.film;
  if (!now?.length) return;
  helper?.end();
  const film = new Film({ ...now.run, marks: now.marks });
  film.steps = [...now.steps];
  film.frames = [...now.frames];
  film.peak = now.peak;
  app.pinned = { film, setup: app.setup0 ?? now.run.setup };
  emit("pinned");
  toast("Pinned. Change something and run again: both are shown.");
}

export function unpin() {
  helper?.end();
  helper = null;
  app.pinned = null;
  emit("pinned");
}

export const toggle = () => (app.pinned ? unpin() : pinNow());

/**
 * Computes a set-up beside the run on screen, with changes of its rates on the way, and pins it.
 * @param {Setup} setup
 * @param {MarkSaid[]} marks
 */
export function pinSetup(setup, marks = []) {
  unpin();
  /** @type {Film | null} */
  let film = null;
  helper = aside(setup, marks, {
    run: (m) => { film = new Film(m); },
    mark: ({ step, eta_y, eta_z }) => { if (film) film.marks = [...film.marks.filter((m) => m.step !== step), { step, eta_y, eta_z }]; },
    frames: (steps, values, floats) => {
      if (!film) return;
      film.add(steps, values, floats);
      if (app.pinned?.film !== film) app.pinned = { film, setup: film.run.setup };
      emit("pinned");
    },
    error: (m) => toast(`The pinned run could not start: ${m.message}`),
  });
}

export function start() {
  $("pin").addEventListener("click", toggle);
  on("pinned setup", () => {
    const is = Boolean(app.pinned), button = $("pin");
    button.setAttribute("aria-pressed", String(is));
    button.textContent = is ? "Unpin" : "Pin";
    const legend = $("legend-pinned");
    legend.hidden = !is;
    if (!app.pinned) return;
    legend.title = `The pinned run, at the same step: ${label(app.pinned.setup, app.setup)}.`;
    legend.replaceChildren("pinned: ", h("span", {}, maths(label(app.pinned.setup, app.setup))));
  });
}

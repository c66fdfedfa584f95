// Compare: keep a run as a pinned overlay under the next one.

import { $, errorMessage, h, maths, toast } from "../../page/dom.js";
import { app, emit, on } from "../../app.js";
import { Film } from "../../draw/film.js";
import { short } from "../../draw/format.js";
import { makeFilm } from "../../compute/aside.js";
import { isAbort } from "../../compute/engine.js";

/** @import { RateChange, Setup } from "../../messages.js" */

let stop = new AbortController(); // of a pinned run that is being computed

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
  stop.abort();
  const film = new Film({ ...now.run, marks: now.marks });
  film.steps = [...now.steps];
  film.frames = [...now.frames];
  film.peak = now.peak;
  app.pinned = { film, setup: app.setup0 ?? now.run.setup };
  emit("pinned");
  toast("Pinned. Change something and run again: both are shown.");
}

export function unpin() {
  stop.abort();
  app.pinned = null;
  emit("pinned");
}

export const toggle = () => (app.pinned ? unpin() : pinNow());

/**
 * Computes a set-up beside the run on screen, with changes of its rates on the way, and pins it.
 * @param {Setup} setup
 * @param {RateChange[]} marks
 */
export async function pinSetup(setup, marks = []) {
  unpin();
  const { signal } = (stop = new AbortController());
  try {
    await makeFilm("pinned", setup, marks, (film) => {
      if (signal.aborted) return;
      if (app.pinned?.film !== film) app.pinned = { film, setup: film.run.setup };
      emit("pinned");
    }, signal);
  } catch (error) { if (!isAbort(error)) toast(`The pinned run could not be computed: ${errorMessage(error)}`); }
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

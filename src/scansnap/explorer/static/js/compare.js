// Compare: keep a run as a pinned overlay under the next one.

import { $, h, maths, toast } from "./dom.js";
import { app, emit, on } from "./app.js";
import { Film } from "./film.js";
import { short } from "./format.js";
import { aside } from "./socket.js";

let helper = null; // a pinned run still being computed

/** What tells a set-up from the one on screen, in a few words. */
export function label(setup, against) {
  const names = Object.fromEntries(app.catalogue.controls.map((c) => [c.name, c.symbol || c.label.toLowerCase()]));
  const parts = Object.keys(names).filter((k) => against && JSON.stringify(setup[k]) !== JSON.stringify(against[k])).map((k) => `${names[k]} ${short(setup[k])}`);
  if (against && JSON.stringify(setup.classes) !== JSON.stringify(against.classes)) parts.unshift(setup.classes.preset ?? "other classes");
  return parts.length ? parts.slice(0, 3).join(", ") : `η_Y ${short(setup.eta_y)}, η_Z ${short(setup.eta_z)}`;
}

function set(film, setup) {
  app.pinned = film ? { film, setup } : null;
  emit("pinned");
}

/** Pins the run on screen as it is now. */
export function pinNow() {
  if (!app.film?.length) return;
  helper?.end();
  const film = new Film({ ...app.film.run, marks: app.film.marks });
  film.steps = [...app.film.steps];
  film.frames = [...app.film.frames];
  film.peak = app.film.peak;
  set(film, app.setup0);
  toast("Pinned. Change something and run again: both are shown.");
}

export function unpin() {
  helper?.end();
  helper = null;
  set(null);
}

export const toggle = () => (app.pinned ? unpin() : pinNow());

/** Computes a set-up beside the run on screen and pins it. */
export function pinSetup(setup) {
  unpin();
  let film = null;
  helper = aside(setup, {
    run: (m) => { film = new Film(m); },
    mark: (m) => film?.marks.push(m),
    frames: (steps, values, floats) => { film?.add(steps, values, floats); if (film && app.pinned?.film !== film) set(film, film.run.setup); else emit("pinned"); },
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
    if (is) legend.replaceChildren("pinned: ", h("span", {}, maths(label(app.pinned.setup, app.setup))));
  });
}

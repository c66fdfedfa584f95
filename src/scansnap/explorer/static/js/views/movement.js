// "Movement × 1000": where attention hardly moves, what little it does. Offered only there.

import { $, h, maths } from "../page/dom.js";
import { app, emit, on } from "../app.js";
import { short } from "../draw/format.js";

export const TIMES = 1000;
const HARDLY = 0.02; // of all attention, to any token
const SEEN = 100; // steps from which on a run may be said not to move

const button = h("button", { type: "button", id: "movement", class: "small", "aria-pressed": "false", title: `How far attention has moved since step 0, ${TIMES} × as large`, onclick: () => { app.options.movement = !app.options.movement; emit("options"); } }, `movement × ${TIMES}`);
const words = h("span", { role: "status" }), note = h("div", { id: "movement-note", hidden: true }, words, button);

/** Whether the run has been watched long enough and attention has gone nowhere. */
const hardlyMoves = () => Boolean(app.film && app.film.lastStep >= Math.min(SEEN, app.film.run.steps) && app.film.moved < HARDLY);

function show() {
  const offered = hardlyMoves(), film = app.film;
  if (!offered && app.options.movement && film && film.lastStep > 0) { app.options.movement = false; emit("options"); return; }
  note.hidden = !offered;
  button.setAttribute("aria-pressed", String(app.options.movement));
  if (!offered || !film) return;
  const { applies, assumptions } = film.run.theory, met = applies && assumptions.length > 0 && assumptions.every((a) => a.met);
  button.hidden = film.moved === 0;
  if (film.moved === 0) { words.replaceChildren(maths(film.run.setup.eta_z === 0 ? "Attention is frozen here: η_Z is 0, and no token's share changes." : "Attention has not moved at all so far.")); return; }
  words.textContent = `${met ? "Here the theorems apply and attention barely moves" : "Attention barely moves here"}: no token's share has changed by more than ${short(film.moved)}.`;
}

export function start() {
  $("headline").prepend(note);
  on("run frames options state", show);
}

// What theory says about the run on screen: the closed forms and the T → ∞ flow, asked for once per run.

import * as api from "./api.js";
import { app, emit, on } from "../app.js";
import { said } from "../page/dom.js";

/** @type {AbortController | null} */
let asked = null;
let key = "";
export const notes = { flow: "", theory: "" };

async function refresh() {
  const film = app.film;
  if (!film) return;
  const setup = film.run.setup, last = Math.max(1, film.run.steps), now = JSON.stringify([setup, last, app.options.flow]);
  if (now === key) return;
  key = now;
  asked?.abort();
  const mine = (asked = new AbortController());
  app.flow = app.curves = null;
  const { applies, why } = film.run.theory, frozen = why === "a rate is 0";
  notes.theory = applies ? "" : `The closed forms do not speak of this run: ${why}.`;
  const noFlow = !applies && !frozen ? why : setup.init !== "zero" ? "the flow starts from Y = Z = 0, this run does not" : setup.eta_y === 0 ? "it needs η_Y above 0" : "";
  notes.flow = noFlow && applies ? `No flow for this run: ${noFlow}.` : "";
  emit("flow");
  const get = async (/** @type {"flow" | "theory"} */ what, /** @type {() => Promise<void>} */ call) => {
    try {
      await call();
      if (mine.signal.aborted) return;
    } catch (e) {
      if (api.isAbort(e) || mine.signal.aborted) return;
      notes[what] = said(e);
    }
    emit("flow");
  };
  if (applies) await get("theory", async () => { app.curves = await api.curves({ setup, last, points: 200 }, mine.signal); });
  if (app.options.flow && !noFlow && !mine.signal.aborted) {
    notes.flow = "computing the flow";
    emit("flow");
    await get("flow", async () => { app.flow = await api.flow({ setup, last, points: 100 }, mine.signal); });
    if (notes.flow === "computing the flow") notes.flow = "";
    emit("flow");
  }
}

export function start() {
  on("run state options", refresh);
}

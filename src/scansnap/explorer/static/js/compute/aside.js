// Films beside the one on screen: of a pinned run, of the beats of a lecture.

import { Film } from "../draw/film.js";
import { workers } from "./engine.js";

/** @import { RateChange, Setup } from "../messages.js" */

const ASIDE = 1; // the worker that has less to do

/**
 * Computes the whole run of a set-up, with changes of its rates on the way.
 * @param {string} lane  of two films in a lane the newer one wins
 * @param {Setup} setup
 * @param {RateChange[]} marks
 * @param {(film: Film) => void} [grown] the film as far as it is
 * @param {AbortSignal} [signal]
 * @returns {Promise<Film>}
 */
export async function makeFilm(lane, setup, marks, grown, signal) {
  /** @type {Film | null} */
  let film = null;
  const listener = (/** @type {any} */ { type, steps, values, ...about }) => {
    if (type === "about") { film = new Film({ ...about, steps, marks }); return; }
    if (type !== "frames" || !film) return;
    film.add(steps, values, film.run.layout.floats);
    grown?.(film);
  };
  const { failed_step } = await workers.ask("film", { setup, marks }, { lane, worker: ASIDE, listener, signal });
  if (failed_step !== null) throw new Error(`The run failed at step ${failed_step}: its numbers are no longer finite.`);
  return /** @type {Film} */ (/** @type {unknown} */ (film));
}

// What a beat comes to, read from its films: as far as it has come, its scale, who wins its question, its set-up in words.

import { short } from "../draw/format.js";

/** @import { Film, Reach } from "../draw/film.js" */
/** @import { Beat, Setup } from "../messages.js" */
/** @typedef {{token: number, kind: string, reach: Reach, value: number, choice: number | null, chosen: number, right: boolean}} Verdict */

/**
 * A film as it is at a step: nothing later is in it, and between two frames it is between them.
 * @param {Film} film
 * @param {number} step
 * @returns {Pick<Film, "steps" | "frames">}
 */
export function until(film, step) {
  const i = film.at(step), now = film.steps[i], next = film.steps[i + 1], steps = film.steps.slice(0, i + 1), frames = film.frames.slice(0, i + 1);
  if (next === undefined || step <= now) return { steps, frames };
  const share = (step - now) / (next - now), later = film.frames[i + 1];
  return { steps: [...steps, step], frames: [...frames, film.frames[i].map((v, j) => v + share * (later[j] - v))] };
}

/**
 * The winner in a beat's question, from its film, and whether the audience chose it.
 * @param {Beat} beat
 * @param {Film} all
 * @param {number | null} choice
 * @returns {Verdict | null}
 */
export function verdict(beat, all, choice) {
  if (!beat.predict) return null;
  const film = /** @type {Film} */ (Object.assign(Object.create(all), { frames: [beat.from, beat.to].map((step) => until(all, step).frames.at(-1)) }));
  const k = beat.predict.class, tokens = film.run.layout.tokens[k], from = 0, to = 1;
  const q = film.run.layout.class_query[k], row = film.run.layout.query_tokens[q];
  const gain = (/** @type {number} */ token) => { const j = row.indexOf(token); return film.z(to, q)[j] - film.z(from, q)[j]; };
  const values = beat.predict.by === "logits" ? tokens.map(gain) : [...film.attention(to, k)];
  const best = values.indexOf(Math.max(...values)), chosen = choice === null ? NaN : values[tokens.indexOf(choice)];
  return { token: tokens[best], kind: film.kind(k, tokens[best]), reach: film.reach(k, tokens[best]), value: values[best], choice, chosen, right: choice === tokens[best] };
}

/**
 * The largest attention up to a step: what a beat comes to see, so that its scale stands still.
 * @param {Film} film
 * @param {number} step
 * @param {number[]} classes
 */
export function peak(film, step, classes) {
  const frames = Array.from({ length: Math.min(film.length, film.at(step) + 2) }, (_, i) => i);
  return Math.max(...frames.map((i) => Math.max(...classes.map((k) => Math.max(...film.attention(i, k))))));
}

/**
 * A set-up in a few words.
 * @param {Setup} s
 */
export function describe(s) {
  const optimizer = typeof s.optimizer === "string" ? { sgd: "SGD", adam: "Adam" }[s.optimizer] ?? s.optimizer : "own optimiser";
  return `${optimizer}${s.momentum ? ` with momentum ${s.momentum}` : ""}, η_Y ${short(s.eta_y)}, η_Z ${short(s.eta_z)}${s.context === "inf" ? ", T → ∞" : `, T ${s.context}`}`;
}

/**
 * What tells one set-up from another.
 * @param {Setup} s
 * @param {Setup} from
 */
export function difference(s, from) {
  return s.optimizer !== from.optimizer || s.momentum !== from.momentum ? describe(s) : `η_Y ${short(s.eta_y)}, η_Z ${short(s.eta_z)}`;
}

// The axes of the curve views: their ranges, the numbers on them, and the moments that are marked on them.

import { app, timeAxis } from "../../app.js";
import { short, tick, ticks, whole } from "../../draw/format.js";
import { widthOf } from "../../draw/pen.js";

/** @import { Colours } from "../../draw/colours.js" */
/** @import { Film } from "../../draw/film.js" */
/** @import { Axis, Moment, Tick } from "../../draw/plot.js" */
/** @import { How, View } from "./traces.js" */

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (/** @type {number} */ k) => (k < 2 ? String(10 ** k) : `10${[...String(k)].map((d) => RAISED[Number(d)]).join("")}`);

/** The last step on the axis of time. */
const end = () => Math.max(2, app.film?.run.steps ?? 2);

/** A place on the axis of time as a step: the inverse of `timeAxis`. */
export const stepAt = (/** @type {number} */ place) => (app.scale === "log" ? Math.exp(place) - 1 : place);

/**
 * Steps with their numbers, of those wanted as many as have room.
 * @param {[number, number]} range
 * @param {number} width
 * @param {number} size
 * @returns {Tick[]}
 */
function stepTicks([low, high], width, size) {
  const from = stepAt(low), to = stepAt(high), decades = Math.floor(Math.log10(to + 1e-9));
  const log = app.scale === "log" && to > 4 * (from + 1);
  const candidates = log ? [{ v: 0, text: "0" }, ...Array.from({ length: decades + 1 }, (_, k) => ({ v: 10 ** k, text: power(k) }))] : ticks(from, to, Math.max(2, width / (7 * size))).map((v) => ({ v, text: v >= 1e6 ? short(v) : whole(v) }));
  let free = -Infinity;
  return candidates.filter(({ v, text }) => {
    const at = ((timeAxis(v) - low) / (high - low)) * width, half = widthOf(text, { size }) / 2 + 3;
    if (v < from - 1e-9 || v > to + 1e-9 || at - half < free) return false;
    free = at + half;
    return true;
  });
}

/**
 * Both axes of a view: of all its values and steps, or of what is zoomed into.
 * @param {View} view
 * @param {number[]} values
 * @param {How} how
 * @returns {{x: Axis, y: Axis}}
 */
export function axes(view, values, { width, height, size, titles = false, zoom = null }) {
  const x = zoom?.x ?? /** @type {[number, number]} */ ([0, timeAxis(end())]), y = zoom?.y ?? bounds(view, values);
  const marks = ticks(y[0], y[1], Math.max(2, Math.min(titles ? 8 : 5, height / (3.4 * size)))), apart = marks.length > 1 ? marks[1] - marks[0] : 1;
  return {
    x: { range: x, ticks: stepTicks(x, width - 6 * size, size), title: titles ? "step" : "" },
    y: { range: y, ticks: marks.map((v) => ({ v, text: tick(v, apart) })), title: titles ? view.title + (view.unit ? ` (${view.unit})` : "") : "" },
  };
}

/**
 * @param {View} view
 * @param {number[]} values
 * @returns {[number, number]}
 */
function bounds(view, values) {
  let low = values.reduce((m, v) => Math.min(m, v), Infinity), high = values.reduce((m, v) => Math.max(m, v), -Infinity);
  if (!(high >= low)) [low, high] = [0, 1];
  if (view.name !== "z" && view.name !== "entropy") [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  const flat = high - low < 1e-9 * Math.max(Math.abs(low), Math.abs(high), 1e-9), pad = flat ? 0.5 * (Math.abs(high) || 1) : 0.05 * (high - low);
  return [low === 0 ? 0 : low - pad, high === 0 && low < 0 ? 0 : high + pad];
}

/**
 * Vertical lines at t₀′ and t₀, where theory has them, and where rates changed.
 * @param {Film} film
 * @param {View} view
 * @param {Colours} c
 * @returns {Moment[]}
 */
export function moments(film, view, c) {
  /** @type {Moment[]} */
  const out = [];
  /** @type {(x: unknown, texts: string[], colour: string, dash: "dash" | "dot") => void} */
  const add = (x, texts, colour, dash) => { if (typeof x === "number" && Number.isFinite(x) && x > 0 && x <= film.run.steps) out.push({ x, texts, colour, dash }); };
  if (app.options.theory && film.run.theory.applies && view.name !== "z") {
    const named = view.name === "growth" || view.name === "chi";
    add(film.run.theory.t_scan, named ? ["t₀′"] : [], c.muted, "dot");
    add(film.run.theory.t_snap, named ? ["t₀"] : [], c.muted, "dot");
  }
  const recent = film.marks.slice(-30);
  recent.forEach((m, i) => add(m.step, i < recent.length - 1 ? [] : [`η_Y ${short(m.eta_y)}, η_Z ${short(m.eta_z)}`, `η ${short(m.eta_y)}, ${short(m.eta_z)}`], c.ink, "dash"));
  return out;
}

// Words under the bars, where tokens have words: across where they fit, else upright.

import { name } from "./film.js";
import { fitting, widthOf } from "./pen.js";

/** @import { Film } from "./film.js" */
/** @import { Colours } from "./colours.js" */
/** @import { Pen } from "./pen.js" */
/** @typedef {{token: number, j: number, kind: string}} Labelled */
/** @typedef {{texts: string[], size: number, upright: boolean, height: number}} Labels */

const LEAST = 7.5; // the smallest letters that can be read
const EM = 10;

/** @type {WeakMap<Film, number>} */
const known = new WeakMap();

/**
 * Width of the longest word of any class in letter heights, so that the histories of all begin at the same height.
 * @param {Film} film
 */
function longestOf(film) {
  const { classes, layout } = film.run, longest = known.get(film) ?? Math.max(...layout.tokens.flat().map((t) => widthOf(name(classes, t), { size: EM, weight: 700 }) / EM));
  known.set(film, longest);
  return longest;
}

/**
 * How the words of a class are written under bars of width `bw`; null where there are none, or no room.
 * @param {Film} film
 * @param {Labelled[]} list
 * @param {number} bw
 * @param {number} most  height there is for them
 * @returns {Labels | null}
 */
export function labelsOf(film, list, bw, most) {
  const { classes } = film.run;
  if (!classes.words) return null;
  const texts = list.map((t) => name(classes, t.token)), longest = longestOf(film);
  const across = Math.min(11, (bw - 2) / longest), size = across >= 9 ? across : Math.min(10.5, 0.86 * bw);
  if (across >= 9) return { texts, size, upright: false, height: 16 };
  if (size < LEAST) return null;
  const room = Math.min(longest * size, most);
  return { texts: texts.map((t) => fitting([t], room, { size, weight: 700 })), size, upright: true, height: room + 6 };
}

/**
 * Writes them from the axis down; the word with most attention stands out.
 * @param {Pen} pen
 * @param {Labels} labels
 * @param {{x: number, y: number, bw: number, best: number}} at  `best`: which bar is highest
 * @param {Colours} colours
 */
export function writeLabels(pen, { texts, size, upright }, { x, y, bw, best }, { ink, muted }) {
  texts.forEach((text, j) => {
    const middle = x + (j + 0.5) * bw, how = { fill: j === best ? ink : muted, size, weight: j === best ? 700 : 400 };
    if (upright) pen.upright(middle + 0.36 * size, y + 3, text, how); else pen.text(middle, y + 12, text, { ...how, align: "center" });
  });
}

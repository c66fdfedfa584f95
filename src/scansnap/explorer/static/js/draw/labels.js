// Words under the bars, where tokens have words: across where they fit, else upright.

import { name } from "./film.js";
import { fitting, unit, widthOf } from "./pen.js";

/** @import { Film } from "./film.js" */
/** @import { Colours } from "./colours.js" */
/** @import { Pen } from "./pen.js" */
/** @typedef {{token: number, j: number, kind: string}} Labelled */
/** @typedef {{texts: string[], size: number, upright: boolean, height: number}} Labels */

const LEAST = 7.5; // the smallest letters that can be read
const PHONE = 700, HAND = 12; // up to this width of a window, letters have so many pixels at least
const least = () => (window.innerWidth <= PHONE ? HAND / unit() : LEAST);
const ACROSS = 8; // and side by side
const EM = 10;

/** @type {WeakMap<Film, Map<string, number>>} */
const known = new WeakMap();

/**
 * Width of the longest word of the classes on screen in letter heights, so that their histories begin at one height.
 * @param {Film} film
 * @param {number[]} shown
 */
function longestOf(film, shown) {
  const { classes, layout } = film.run, all = known.get(film) ?? new Map(), key = String(shown);
  const longest = all.get(key) ?? Math.max(...shown.flatMap((k) => layout.tokens[k]).map((t) => widthOf(name(classes, t), { size: EM }) / EM));
  known.set(film, all.set(key, longest));
  return longest;
}

/**
 * How the words of a class are written under bars of width `bw`; null where there are none, or no room.
 * @param {Film} film
 * @param {number[]} shown  classes on screen
 * @param {Labelled[]} list
 * @param {number} bw
 * @param {number} most  height there is for them
 * @returns {Labels | null}
 */
export function labelsOf(film, shown, list, bw, most) {
  const { classes } = film.run;
  if (!classes.words) return null;
  const texts = list.map((t) => name(classes, t.token)), longest = longestOf(film, shown);
  const small = least(), across = Math.min(11, (bw - 2) / longest), size = across >= Math.max(ACROSS, small) ? across : Math.min(10.5, Math.max(0.86 * bw, Math.min(small, bw)));
  if (across >= Math.max(ACROSS, small)) return { texts, size, upright: false, height: 16 };
  if (size < small - 1e-6) return null;
  const room = Math.min(longest * size, most);
  return { texts: texts.map((t) => fitting([t], room, { size })), size, upright: true, height: room + 8 }; // the one that is bold is wider
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

// What a lecture draws over the stage: a veil over what the beat does not look at, and the bars that were chosen and won.

import { word } from "../draw/film.js";
import { verdict } from "./beats.js";

/** @import { Bar, Cell } from "../draw/attention.js" */
/** @import { Film } from "../draw/film.js" */
/** @import { CanvasPen } from "../draw/pen.js" */
/** @import { Beat } from "../messages.js" */

const colour = (/** @type {string} */ variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();

/**
 * @param {CanvasPen} pen
 * @param {Cell} cell
 * @param {{beat: Beat, film: Film, choice: number | null, revealed: boolean, ink: string}} what
 */
export function drawMarks(pen, cell, { beat, film, choice, revealed, ink }) {
  const { highlight, predict } = beat, { classes } = film.run;
  const { x, w, bw, my, mh, list } = cell, small = cell.full.w < 190 || cell.full.h < 190, top = cell.by, base = my - (small ? 3 : 6);
  const page = colour("--page"), shade = `color-mix(in srgb, ${page} 72%, transparent)`;
  const lit = (/** @type {Bar} */ bar) => highlight.tokens.some((t) => t === bar.kind || t === bar.token || t === classes.words?.[bar.token]);
  if (highlight.tokens.length) list.forEach((bar, j) => { if (!lit(bar)) pen.rect(x + j * bw, top, bw + 0.5, my + mh - top, shade); });
  const bars = highlight.views.includes("bars"), history = highlight.views.includes("history"); // neither: all of the stage is dim
  if (bars && !history) pen.rect(x, my, w, mh, shade);
  if (history && !bars) pen.rect(x, top, w, base - top, shade);
  if (!predict || cell.k !== predict.class) return;
  const outcome = revealed ? verdict(beat, film, choice) : null;
  /** @type {(token: number, text: string, colour: string, beside?: [number, number]) => [number, number]} */
  const tag = (token, text, fill, beside = [Infinity, Infinity]) => { // its column framed, its name under it, beside the other one's
    const at = x + list.findIndex((bar) => bar.token === token) * bw, wide = 7.6 * text.length + 12;
    let left = Math.max(x, Math.min(x + w - wide, at + bw / 2 - wide / 2));
    if (left < beside[1] && left + wide > beside[0]) {
      const before = beside[0] - wide - 4, after = beside[1] + 4, later = at > (beside[0] + beside[1]) / 2 - bw;
      left = before < x || (later && after + wide <= x + w) ? after : before;
    }
    pen.frame(at, top, bw, my + mh - top, fill, 2.5);
    pen.rect(left, my + mh + 1, wide, 17, fill);
    pen.text(left + wide / 2, my + mh + 13.5, text, { fill: page, size: 12, weight: 600, align: "center" });
    return [left, left + wide];
  };
  if (outcome || choice !== null) pen.rect(x, my + mh + 1, w, 17, page); // no word half under a tag
  const won = outcome ? tag(outcome.token, `${word(classes, outcome.token)} ${outcome.right ? "wins: right" : "wins"}`, colour("--good")) : undefined;
  if (choice !== null && choice !== outcome?.token) tag(choice, outcome ? "your choice" : word(classes, choice), ink, won);
}

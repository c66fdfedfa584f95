// What a picture needs to be understood away from the page: a title, a legend, and the settings of the run.

import { COMMON, DISTINCT, FLOW, PINNED, QUERY, SEVERAL } from "./colours.js";
import { REACH } from "./film.js";
import { short, whole } from "./format.js";
import { fitting, widthOf } from "./pen.js";

/** @import { Colours } from "./colours.js" */
/** @import { Film } from "./film.js" */
/** @import { Pen } from "./pen.js" */
/** @typedef {{text: string, colour: string, line?: boolean}} Key */

const FILL = { only: DISTINCT, several: SEVERAL, every: COMMON, query: QUERY };

/**
 * The settings of a run in one line.
 * @param {Film} film
 */
export function settings(film) {
  const s = film.run.setup, { classes } = film.run, marks = film.marks.filter((m) => m.step > 0);
  const rule = typeof s.optimizer === "string" ? s.optimizer : "own optimiser", parts = [
    s.classes?.preset ?? "own classes", `K ${classes.n_classes}, M ${whole(classes.vocab_size)}`, rule, `η_Y ${short(s.eta_y)}`, `η_Z ${short(s.eta_z)}`,
    s.momentum ? `momentum ${short(s.momentum)}` : "", s.weight_decay ? `weight decay ${short(s.weight_decay)}` : "",
    `T ${s.context === "inf" ? "∞" : whole(s.context)}`, `batch ${s.batch_size === null ? "all" : whole(s.batch_size)}`, s.init && s.init !== "zero" ? `init ${s.init}` : "", `seed ${s.seed}`,
    ...marks.slice(0, 3).map((m) => `from step ${whole(m.step)} η_Y ${short(m.eta_y)}, η_Z ${short(m.eta_z)}`), marks.length > 3 ? `${marks.length - 3} more changes of the rates` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

/**
 * The colours of the attention view.
 * @param {Film} film
 * @param {Colours} c
 * @param {{pinned?: boolean, flow?: boolean}} more
 * @returns {Key[]}
 */
export const attentionKeys = (film, c, { pinned = false, flow = false } = {}) => [
  ...film.reaches().reverse().map((reach) => ({ text: REACH[reach], colour: FILL[reach] })), { text: "at step 0", colour: c.ink, line: true },
  ...(pinned ? [{ text: "pinned run", colour: PINNED, line: true }] : []), ...(flow ? [{ text: "infinite-data limit", colour: FLOW }] : []),
];

export const HIGH = 64; // of the strip at the top …
export const EDGE = 10; // … and of what stays free beside and below

/**
 * Draws title, legend and settings at the top; what is drawn next lies below.
 * @param {Pen} pen
 * @param {Colours} c
 * @param {{title: string, keys: Key[], settings: string}} what
 */
export function caption(pen, c, { title, keys, settings: line }) {
  const wide = keys.reduce((sum, { text }) => sum + widthOf(text, { size: 11 }) + 29, -14), size = Math.min(11, (11 * (pen.width - 2 * EDGE)) / Math.max(1, wide));
  let x = EDGE;
  for (const { text, colour, line: thin } of keys) {
    pen.rect(x, thin ? 50 : 46, 10, thin ? 2 : 10, colour);
    pen.text(x + 15, 55, text, { fill: c.ink, size });
    x += 29 + widthOf(text, { size });
  }
  pen.text(EDGE, 19, fitting([title], pen.width - 2 * EDGE, { size: 14, weight: 600 }), { fill: c.ink, size: 14, weight: 600 });
  pen.text(EDGE, 36, fitting([line], pen.width - 2 * EDGE, { size: 11 }), { fill: c.muted, size: 11 });
  pen.within(HIGH, EDGE);
}

// What a picture needs to be understood away from the page: a title, a legend, and the settings of the run.

import { COMMON, DISTINCT, FLOW, PINNED } from "./colours.js";
import { short, whole } from "./format.js";
import { fitting, widthOf } from "./pen.js";

/** @import { Colours } from "./colours.js" */
/** @import { Film } from "./film.js" */
/** @import { Pen } from "./pen.js" */
/** @typedef {{text: string, colour: string, line?: boolean}} Key */

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
 * @param {Colours} c
 * @param {{pinned?: boolean, flow?: boolean}} more
 * @returns {Key[]}
 */
export const attentionKeys = (c, { pinned = false, flow = false } = {}) => [
  { text: "distinct", colour: DISTINCT }, { text: "common", colour: COMMON }, { text: "at step 0", colour: c.ink, line: true },
  ...(pinned ? [{ text: "pinned run", colour: PINNED, line: true }] : []), ...(flow ? [{ text: "flow, T → ∞", colour: FLOW }] : []),
];

export const HIGH = 46, EDGE = 10; // of the strip at the top, and of what stays free beside and below

/**
 * Draws title, legend and settings at the top; what is drawn next lies below.
 * @param {Pen} pen
 * @param {Colours} c
 * @param {{title: string, keys: Key[], settings: string}} what
 */
export function caption(pen, c, { title, keys, settings: line }) {
  let x = pen.width - EDGE;
  for (const { text, colour, line: thin } of [...keys].reverse()) {
    x -= widthOf(text, { size: 11 });
    pen.text(x, 18, text, { fill: c.ink, size: 11 });
    x -= 15;
    pen.rect(x, thin ? 13 : 9, 10, thin ? 2 : 10, colour);
    x -= 14;
  }
  pen.text(EDGE, 19, fitting([title], x - 2 * EDGE, { size: 14, weight: 600 }), { fill: c.ink, size: 14, weight: 600 });
  pen.text(EDGE, 36, fitting([line], pen.width - 2 * EDGE, { size: 11 }), { fill: c.muted, size: 11 });
  pen.within(HIGH, EDGE);
}

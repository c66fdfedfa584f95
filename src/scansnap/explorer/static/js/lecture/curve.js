// The one curve of a lecture, in large type: as far as the film has come, on axes that do not move while it plays.

import { CLOSED, COMMON, DISTINCT, FLOW, PINNED, QUERY, SEVERAL, legible } from "../draw/colours.js";
import { short, tick, ticks, whole } from "../draw/format.js";
import { widthOf } from "../draw/pen.js";

/** @import { Film, Reach } from "../draw/film.js" */
/** @import { Colours } from "../draw/colours.js" */
/** @import { Pen } from "../draw/pen.js" */
/** @import { Beat } from "../messages.js" */
/** @typedef {{reach: Reach | null, width: number, values: number[]}} Line  One value for each frame; the logit of a token has its reach. */

/** @type {Record<Beat["curve"], string>} */
export const TITLES = {
  loss: "Loss", entropy: "Entropy of attention over the distinct tokens", growth: "Growth exponent B_n",
  "log chi": "ln χ of the leading distinct token", logits: "Logits z",
};
const FILL = { only: DISTINCT, several: SEVERAL, every: COMMON, query: QUERY };
const x = (/** @type {number} */ step) => Math.log(step + 1);

/**
 * What is drawn of a film: a mean over the classes on the stage, or the logits of the first one's query.
 * @param {Film} film
 * @param {Beat["curve"]} curve
 * @param {number[]} classes
 * @param {number[]} frames  those that are read
 * @returns {Line[]}
 */
export function lines(film, curve, classes, frames = film.steps.map((_, i) => i)) {
  if (curve === "loss") return [{ reach: null, width: 3, values: frames.map((i) => film.value("loss", i)) }];
  if (curve === "logits") {
    const k = classes[0], q = film.run.layout.class_query[k];
    const sharing = film.run.classes.classes.map((_, n) => n).filter((n) => film.run.layout.class_query[n] === q); // several classes may have this query
    const reach = (/** @type {number} */ token) => sharing.map((n) => film.reach(n, token)).find((found) => found !== "query") ?? "query";
    return film.run.layout.query_tokens[q].map((token, j) => ({ reach: reach(token), width: 2, values: frames.map((i) => film.z(i, q)[j]) }));
  }
  const field = curve === "log chi" ? "log_chi" : curve;
  const mean = (/** @type {number} */ i) => classes.reduce((sum, k) => sum + film.value(field, i, k), 0) / classes.length;
  return [{ reach: null, width: 3, values: frames.map(mean) }];
}

/**
 * @param {Pen} pen
 * @param {{film: Film, all: Line[], shown: Film, against: Film | null, beat: Beat, classes: number[], colours: Colours}} what
 *   all: the lines of the whole film, for the axes; shown: as far as it has come
 */
export function drawCurve(pen, { film, all, shown, against, beat, classes, colours }) {
  const { ink, muted, line } = colours, until = film.at(beat.to), over = against && beat.curve !== "logits" ? lines(against, beat.curve, classes) : [];
  const untilOver = against ? against.at(beat.to) : 0;
  const values = [...all.flatMap((l) => l.values.slice(0, until + 1)), ...over.flatMap((l) => l.values.slice(0, untilOver + 1)), ...beat.theory.flatMap((t) => t.points.map(([, v]) => v))].filter(Number.isFinite);
  if (!values.length) return pen.text(0, pen.height / 2, "not defined for this model", { fill: muted, size: 13 });
  let low = Math.min(...values), high = Math.max(...values);
  if (beat.curve === "loss" || beat.curve === "growth") low = Math.min(0, low);
  if (!(high > low)) { low -= 0.5; high += 0.5; }
  const marks = ticks(low, high), texts = marks.map((v) => tick(v, marks[1] - marks[0]));
  const pad = (high - low) * 0.06, left = Math.max(...texts.map((text) => widthOf(text))) + 8, bottom = 22, right = 10, w = pen.width - left - right, h = pen.height - bottom - 8, top = 8;
  high += all.length === 1 ? 2.3 * pad : pad; // room for the number at its end
  low -= low === 0 ? 0 : pad;
  const last = Math.max(1, film.run.steps), px = (/** @type {number} */ step) => left + (x(step) / x(last)) * w;
  const py = (/** @type {number} */ v) => top + h * (1 - (v - low) / (high - low));
  marks.forEach((v, i) => {
    pen.line(left, py(v), left + w, py(v), line, 1);
    pen.text(left - 6, py(v) + 4, texts[i], { fill: muted, size: 11, align: "right" });
  });
  const decades = [0, ...Array.from({ length: Math.floor(Math.log10(last)) + 1 }, (_, i) => 10 ** i)];
  let free = -Infinity;
  for (const step of decades) {
    const text = whole(step), wide = 7 * text.length;
    if (px(step) - wide / 2 < free) continue;
    pen.text(Math.min(px(step), pen.width - wide / 2), pen.height - 5, text, { fill: muted, size: 11, align: "center" });
    free = px(step) + wide / 2 + 6;
  }
  pen.line(left, top + h, left + w, top + h, muted, 1);
  for (const mark of film.marks) if (mark.step <= shown.lastStep) pen.line(px(mark.step), top, px(mark.step), top + h, ink, 1.5, [5, 4]);
  /** @type {(steps: number[], l: Line, to: number) => [number, number][]} */
  const points = (steps, l, to) => steps.slice(0, to + 1).flatMap((s, i) => (Number.isFinite(l.values[i]) ? [/** @type {[number, number]} */ ([px(s), py(l.values[i])])] : []));
  for (const t of beat.theory) drawTheory(pen, t, { px, py, to: shown.lastStep, colour: legible(t.holds ? FLOW : CLOSED, colours) });
  for (const l of over) if (against) pen.path(points(against.steps, l, against.at(shown.lastStep)), legible(PINNED, colours), l.width);
  const n = shown.length - 1, newest = lines(shown, beat.curve, classes, [n]);
  const now = all.map((l, i) => ({ ...l, values: [...l.values.slice(0, n), newest[i].values[0]] }));
  for (const l of now) pen.path(points(shown.steps, l, n), l.reach ? legible(FILL[l.reach], colours) : ink, l.width);
  const value = now.length === 1 ? now[0].values[n] : NaN;
  if (!Number.isFinite(value)) return;
  const cx = px(shown.lastStep), cy = py(value), far = cx > left + w * 0.75;
  pen.rect(cx - 4, cy - 4, 8, 8, ink);
  const near = points(shown.steps, now[0], n).filter(([left0]) => far && left0 > cx - 60), heights = [cy, ...near.map(([, y]) => y)]; // not over its own line
  pen.text(cx + (far ? -8 : 8), Math.max(top + 11, Math.min(...heights) - 8), short(value), { fill: ink, size: 14, weight: 600, align: far ? "right" : "left" });
}

/**
 * What a theory says, dashed, with its name under the line that holds, or at the end of the one that does not.
 * @param {Pen} pen
 * @param {Beat["theory"][number]} theory
 * @param {{px: (step: number) => number, py: (v: number) => number, to: number, colour: string}} how  to: the step that is shown
 */
function drawTheory(pen, { name, holds, points }, { px, py, to, colour }) {
  const past = points.filter(([step]) => step <= to), next = points[past.length], before = past[past.length - 1];
  if (next && before) past.push([to, before[1] + ((to - before[0]) / (next[0] - before[0])) * (next[1] - before[1])]);
  pen.path(past.map(([step, v]) => [px(step), py(v)]), colour, holds ? 7 : 2.5, holds ? [2, 7] : [8, 5]);
  if (past.length < 2) return;
  const how = { fill: colour, size: 13, weight: 600 }, most = pen.width - widthOf(name, how) - 2; // where it still fits
  const [step, v] = past[holds ? Math.floor(0.7 * (past.length - 1)) : past.length - 1], beside = px(step) + 8 <= most;
  pen.text(Math.min(px(step) + 8, most), py(v) + (holds ? 16 : beside ? 4 : -14), name, how);
}

// One example sentence of a class: its words, how attention is spread over them, and which next word they vote for.
//
// As everywhere: attention c ∝ count · e^{z}, logits Σ f_l Y[l, j] with f = c/‖c‖ (or c), probabilities their softmax.

/** @import { Film } from "./film.js" */
/** @typedef {{step: number, values: Float32Array}} Table */
/** @typedef {{tokens: number[], attention: number[], next: {token: number, p: number}[]}} Example  `next`: −1 stands for all others. */

const WORDS = 6;
const MOST = 256; // rows and columns of a table that comes as it is

/**
 * Different words of a sentence of class k, drawn by how often they occur in it; the same for the same number.
 * @param {Film} film
 * @param {number} k
 * @param {number} number
 */
export function draw(film, k, number) {
  const { tokens, p } = film.run.classes.classes[k];
  let seed = (number + 1) * 2654435761 + k * 40503;
  const random = () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed / 2 ** 32; };
  for (let i = 0; i < 3; i++) random(); // neighbouring numbers begin alike
  const left = [...p];
  return Array.from({ length: Math.min(WORDS, p.filter((v) => v > 0).length) }, () => {
    let at = random() * left.reduce((s, v) => s + v, 0);
    const j = Math.max(0, left.findIndex((v) => (at -= v) < 0));
    left[j] = 0;
    return tokens[j];
  });
}

/**
 * What the model says after a sentence, at the step of a table of Y; without one, where it looks only.
 * @param {Film} film
 * @param {Table | null} table
 * @param {number} frame  where there is no table of its step
 * @param {number} k
 * @param {number[]} tokens
 * @returns {Example}
 */
export function read(film, table, frame, k, tokens) {
  const { layout, setup, classes } = film.run, i = table ? film.at(table.step) : frame, q = layout.class_query[k], z = film.z(i, q), row = layout.query_tokens[q];
  const weights = tokens.map((t) => Math.exp(z[row.indexOf(t)] ?? 0)), sum = weights.reduce((s, v) => s + v, 0), attention = weights.map((v) => v / sum);
  const rows = table?.values[0] ?? MOST, columns = table?.values[1] ?? MOST;
  if (!table || rows >= MOST || columns >= MOST || !["l2", "none"].includes(setup.norm) || setup.residual !== "none" || setup.heads > 1) return { tokens, attention, next: [] };
  /** @type {Map<number, number>} */
  const c = new Map();
  tokens.forEach((t, j) => c.set(t, (c.get(t) ?? 0) + attention[j])); // a word that occurs twice has twice the attention
  const norm = setup.norm === "l2" ? Math.hypot(...c.values()) : 1, at = new Map([...table.values.subarray(2, 2 + rows)].map((t, r) => [t, r]));
  const outputs = [...table.values.subarray(2 + rows, 2 + rows + columns)], y = table.values.subarray(2 + rows + columns);
  const logits = outputs.map((_, o) => [...c].reduce((s, [t, v]) => s + (v / norm) * (at.has(t) ? y[Number(at.get(t)) * columns + o] : 0), 0)), top = Math.max(...logits);
  const times = outputs.map((t) => (t === -1 ? classes.vocab_size - (columns - 1) : 1)), all = logits.map((v, o) => times[o] * Math.exp(v - top)), total = all.reduce((s, v) => s + v, 0);
  return { tokens, attention, next: outputs.map((token, o) => ({ token, p: all[o] / total })) };
}

// The generators behind the presets of sequence classes: the twin of classes/presets.py.

import { InputError } from "../errors.js";
import { Generator } from "../sampling/pcg.js";
import { range, sum } from "../numeric.js";

/**
 * Classes as tables: context tokens of each class and their probabilities.
 * @typedef {object} ClassTable
 * @property {number[][]} tokens (K, …)
 * @property {number[][]} probs (K, …)
 * @property {number} vocab_size
 * @property {number[]} query (K,)
 * @property {number[]} next_token (K,)
 * @property {number[] | null} [p_class] (K,); left out: uniform
 * @property {string[] | null} [words] how each token reads
 * @property {boolean} [shared_next] whether classes may have the same next token
 */

/**
 * Token ids in order: common to all, common to one query's classes, distinct, queries, next tokens, unused.
 * @param {Partial<Record<"n_queries" | "next_per_query" | "common" | "common_per_query" | "distinct" | "common_weight" | "unused", number>> & {distinct_weights?: number[] | null}} settings
 * @returns {ClassTable}
 */
export function synthetic({
  n_queries = 1, next_per_query = 2, common = 10, common_per_query = 0, distinct = 10, common_weight = 1, distinct_weights = null, unused = 0,
} = {}) {
  if (common + common_per_query + distinct === 0) throw new InputError("classes", 0, "common + common_per_query + distinct ≥ 1, so that contexts are not empty");
  const weights = distinct_weights ?? linspace(0.1, 1, distinct);
  if (!Array.isArray(weights) || weights.length !== distinct) throw new InputError("distinct_weights", weights, `${distinct} numbers`);
  if (!weights.every((w) => typeof w === "number" && Number.isFinite(w) && w > 0)) throw new InputError("distinct_weights", weights, "finite numbers > 0");
  const K = n_queries * next_per_query, raw = [...Array(common + common_per_query).fill(common_weight), ...weights], total = sum(raw);
  const firstDistinct = common + common_per_query * n_queries, firstQuery = firstDistinct + distinct * K;
  const query = (/** @type {number} */ n) => Math.floor(n / next_per_query);
  const probs = raw.map((w) => w / total);
  return {
    tokens: range(K).map((n) => [...range(common), ...range(common_per_query, common + query(n) * common_per_query), ...range(distinct, firstDistinct + n * distinct)]),
    probs: range(K).map(() => probs),
    vocab_size: firstQuery + n_queries + K + unused,
    query: range(K).map((n) => firstQuery + query(n)),
    next_token: range(K, firstQuery + n_queries),
  };
}

/**
 * Word-like classes of one query: Zipf weights rank^(−exponent), a share of the mass on common tokens.
 * @param {Partial<Record<"vocab" | "classes" | "exponent" | "overlap" | "seed", number>>} settings
 * @returns {ClassTable}
 */
export function zipf({ vocab = 1000, classes = 10, exponent = 1, overlap = 0.5, seed = 0 } = {}) {
  const nShared = overlap === 0 ? 0 : overlap === 1 ? vocab - classes - 1 : Math.floor((vocab - classes - 1) / (classes + 1));
  const nOwn = overlap === 1 ? 0 : Math.floor((vocab - classes - 1 - nShared) / classes);
  if (nShared + nOwn <= 0 || (overlap > 0 && overlap < 1 && nShared <= 0)) {
    const need = overlap > 0 && overlap < 1 ? 2 * classes + 2 : overlap === 1 ? classes + 2 : 2 * classes + 1;
    throw new InputError("vocab", vocab, `at least ${need} for ${classes} classes at overlap ${overlap}`);
  }
  const random = new Generator(seed), ids = random.permutation(range(vocab));
  const shared = ids.slice(0, nShared), last = ids.slice(nShared + classes * nOwn);
  const probs = [...zipfWeights(nShared, exponent).map((w) => overlap * w), ...zipfWeights(nOwn, exponent).map((w) => (1 - overlap) * w)];
  return {
    tokens: range(classes).map((n) => [...random.permutation(shared), ...ids.slice(nShared + n * nOwn, nShared + (n + 1) * nOwn)]),
    probs: range(classes).map(() => probs),
    vocab_size: vocab,
    query: range(classes).map(() => last[0]),
    next_token: last.slice(1, 1 + classes),
  };
}

/**
 * @param {number} n
 * @param {number} exponent
 */
function zipfWeights(n, exponent) {
  const weights = range(n, 1).map((rank) => rank ** -exponent), total = sum(weights);
  return weights.map((w) => w / total);
}

/**
 * numpy.linspace.
 * @param {number} first
 * @param {number} last
 * @param {number} n
 */
export function linspace(first, last, n) {
  const step = n > 1 ? (last - first) / (n - 1) : 0;
  return range(n).map((i) => (i > 0 && i === n - 1 ? last : i * step + first));
}

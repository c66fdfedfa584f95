// Sequence classes: the twin of classes/sequence_classes.py and checks/arrays.py.

import { InputError } from "../errors.js";
import { range, sum } from "../numeric.js";

/** @import { ClassTable } from "./presets.js" */

const SUM_TOLERANCE = 1e-6; // how far a distribution may be from 1
const ROUNDING = 1e-12; // up to which it is not rescaled

/** K sequence classes over a vocabulary of M tokens. */
export class SequenceClasses {
  /** @param {ClassTable} table */
  constructor(table) {
    const { vocab_size: M, tokens, probs } = table, K = tokens.length;
    if (!Number.isInteger(M) || M < 1) throw new InputError("vocab_size", M, "an integer ≥ 1");
    if (K === 0) throw new InputError("p_context", "0 classes", "at least one class");
    if (K > M && !table.shared_next) throw new InputError("classes", K, `at most ${M} classes, the vocabulary size`);
    const rows = tokens.map((ids, n) => classRow(n, ids, probs[n], M));
    /** (K, …) context tokens of each class, ascending. */
    this.tokens = rows.map((row) => row.tokens);
    /** (K, …) P(l|n) of each, all above 0. */
    this.probs = rows.map((row) => row.probs);
    this.M = M;
    this.K = K;
    this.query = perClass("query", table.query, K, M);
    this.next = perClass("next_token", table.next_token, K, M);
    this.sharedNext = new Set(this.next).size < K;
    if (this.sharedNext && !table.shared_next) throw new InputError("next_token", this.next, "a different one for each class");
    if (table.p_class && table.p_class.length !== K) throw new InputError("p_class", table.p_class, `${K} numbers`);
    this.p = Float64Array.from(table.p_class ? distribution("p_class", table.p_class) : range(K).map(() => 1 / K));
    this.words = table.words ? tokenWords(table.words, M) : null;
    this.queries = [...new Set(this.query)].sort((a, b) => a - b);
    const everywhere = occurrences(this.tokens), ofQuery = new Map(this.queries.map((m) => [m, occurrences(this.tokens.filter((_, n) => this.query[n] === m))]));
    /** (K, …) whether each context token occurs in this class only. */
    this.isDistinct = this.tokens.map((ids) => ids.map((l) => everywhere.get(l) === 1));
    /** (K, …) the same among the classes of its query. */
    this.isLocal = this.tokens.map((ids, n) => ids.map((l) => ofQuery.get(this.query[n])?.get(l) === 1));
    this.common = [...everywhere.keys()].filter((l) => /** @type {number} */ (everywhere.get(l)) > 1).sort((a, b) => a - b);
  }

  /**
   * Distinct tokens of class n.
   * @param {number} n
   */
  distinct(n) {
    return this.tokens[n].filter((_, i) => this.isDistinct[n][i]);
  }

  /** As the page shows them. */
  summary() {
    const kinds = (/** @type {boolean[]} */ distinct) => distinct.map((is) => /** @type {"distinct" | "common"} */ (is ? "distinct" : "common"));
    return {
      vocab_size: this.M, n_classes: this.K, queries: this.queries, common: this.common,
      classes: range(this.K).map((n) => ({
        query: this.query[n], next_token: this.next[n], p_class: this.p[n], tokens: this.tokens[n], p: this.probs[n],
        kinds: kinds(this.isDistinct[n]), local: kinds(this.isLocal[n]), dominant: this.mostFrequent(n),
      })),
      words: this.words && Object.fromEntries(this.words.map((word, token) => [String(token), word])),
    };
  }

  /**
   * The distinct token of class n that is most frequent; null where there is none.
   * @param {number} n
   */
  mostFrequent(n) {
    let top = -1;
    this.isDistinct[n].forEach((is, i) => {
      if (is && (top < 0 || this.probs[n][i] > this.probs[n][top])) top = i;
    });
    return top < 0 ? null : this.tokens[n][top];
  }

  /** P(l|n) as a dense table, (K, M). */
  dense() {
    const table = new Float64Array(this.K * this.M);
    this.tokens.forEach((ids, n) => ids.forEach((l, i) => { table[n * this.M + l] = this.probs[n][i]; }));
    return table;
  }
}

/**
 * In how many classes each token occurs.
 * @param {number[][]} tokens
 */
function occurrences(tokens) {
  /** @type {Map<number, number>} */
  const times = new Map();
  for (const l of tokens.flat()) times.set(l, (times.get(l) ?? 0) + 1);
  return times;
}

/**
 * @param {number} n
 * @param {number[]} ids
 * @param {number[]} probs
 * @param {number} M
 */
function classRow(n, ids, probs, M) {
  tokenIds(`tokens of class ${n}`, ids, M);
  if (ids.length !== probs.length) throw new InputError(`class ${n}`, `${ids.length} tokens and ${probs.length} probabilities`, "as many of both");
  const order = range(ids.length).sort((a, b) => ids[a] - ids[b]);
  for (let i = 1; i < order.length; i++) if (ids[order[i]] === ids[order[i - 1]]) throw new InputError(`tokens of class ${n}`, ids[order[i]], "each token once");
  const used = order.filter((i) => probs[i] !== 0);
  return { tokens: used.map((i) => ids[i]), probs: distribution(`P(·|${n})`, used.map((i) => probs[i])) };
}

/**
 * A checked distribution; rescaled only where it is off by more than rounding, so that files round-trip.
 * @param {string} field
 * @param {number[]} p
 */
export function distribution(field, p) {
  const wrong = p.find((x) => typeof x !== "number" || !Number.isFinite(x) || x < 0);
  if (wrong !== undefined) throw new InputError(field, wrong, "finite probabilities ≥ 0");
  if (!p.some((x) => x > 0)) throw new InputError(field, "none", "at least one probability > 0");
  const total = sum(p);
  if (Math.abs(total - 1) > SUM_TOLERANCE) throw new InputError(field, total, `a sum of 1 (to within ${SUM_TOLERANCE})`);
  return Math.abs(total - 1) > ROUNDING ? p.map((x) => x / total) : p;
}

/**
 * @param {string} field
 * @param {number[]} ids
 * @param {number} K
 * @param {number} M
 */
function perClass(field, ids, K, M) {
  tokenIds(field, ids, M);
  if (ids.length !== K) throw new InputError(field, ids, `${K} token ids, one for each class`);
  return ids;
}

/**
 * @param {string} field
 * @param {number[]} ids
 * @param {number} M
 */
function tokenIds(field, ids, M) {
  if (!Array.isArray(ids)) throw new InputError(field, ids, "a list of token ids");
  const wrong = ids.find((l) => !Number.isInteger(l) || l < 0 || l >= M);
  if (wrong !== undefined) throw new InputError(field, wrong, `token ids from 0 to ${M - 1}`);
}

/**
 * @param {unknown} words
 * @param {number} M
 */
function tokenWords(words, M) {
  if (!Array.isArray(words) || words.length !== M || !words.every((word) => typeof word === "string")) throw new InputError("words", words, `a list of ${M} words`);
  if (words.some((word) => /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(word))) throw new InputError("words", words, "text without lone surrogates");
  if (new Set(words).size < M) throw new InputError("words", words, "a different word for each token");
  return /** @type {string[]} */ (words);
}

// Classes of a pasted text: the twin of corpus/passage.py. A class is a pair (last word, next word) that the text has twice
// or more; its context distribution is how often each word stands before the pair in its sentence.

import { SequenceClasses } from "./classes.js";
import { InputError } from "../errors.js";
import { range } from "../numeric.js";

const LEAST = 20; // words
const QUERIES = 3, NEXT = 2; // of the classes that are chosen where none are named: last words, next words of each
const REACH = 100; // words before a pair that count, at most
const SHOWN = 60; // pairs to choose from
const WORD = /[\p{L}\p{N}]+(?:['’][\p{L}\p{N}]+)*/gu;
const END = /[.!?…]+(?=[^\p{L}\p{N}_]|$)|[\r\n]+/u;
const EOS = "<eos>", UNK = "<unk>";

/** @typedef {[string, string]} Pair last word, next word */

/** A text and the pairs that may be its classes, the most frequent first. */
class Passage {
  /** @param {string[][]} sentences */
  constructor(sentences) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const word of sentences.flatMap((sentence) => [...sentence, EOS])) counts.set(word, (counts.get(word) ?? 0) + 1);
    counts.set(UNK, 0);
    /** Words by frequency; of those as frequent, the first to appear. */
    this.words = [...counts.keys()].sort((a, b) => /** @type {number} */ (counts.get(b)) - /** @type {number} */ (counts.get(a)));
    const id = new Map(this.words.map((word, i) => [word, i])), ids = sentences.map((sentence) => sentence.map((word) => /** @type {number} */ (id.get(word))));
    this.n_words = sentences.reduce((n, sentence) => n + sentence.length, 0);
    this.n_sentences = sentences.length;
    const M = this.words.length, reach = Math.min(REACH, Math.max(...ids.map((sentence) => sentence.length)));
    /** @type {Map<number, {query: number, next: number, count: number, context: Map<number, number>}>} */
    const pairs = new Map();
    this.followed = new Float64Array(M); // how often each word is followed by any word
    for (const sentence of ids) {
      for (let i = 0; i + 1 < sentence.length; i++) {
        const [query, next] = [sentence[i], sentence[i + 1]], key = query * M + next, pair = pairs.get(key) ?? { query, next, count: 0, context: new Map() };
        pairs.set(key, pair);
        pair.count++;
        this.followed[query]++;
        for (const l of sentence.slice(Math.max(0, i - reach), i)) pair.context.set(l, (pair.context.get(l) ?? 0) + 1);
      }
    }
    const repeated = [...pairs.values()].filter(({ count }) => count > 1);
    if (repeated.length === 0) throw new InputError("text", "no repeated pair", "at least two pairs of neighbouring words that occur twice or more");
    this.pairs = repeated.filter(({ context }) => context.size > 0).sort((a, b) => b.count - a.count || a.query - b.query || a.next - b.next);
    if (this.pairs.length < 2) throw new InputError("text", `${this.pairs.length} pairs`, "at least two pairs of words that occur twice or more after other words");
  }

  /** Up to six classes: last words with two next words each, whose next words are frequent and most of what follows. */
  chosen() {
    /** @type {Map<number, number[]>} */
    const byQuery = new Map(), /** @type {Map<number, number>} */ best = new Map();
    for (const { query, next, count } of this.pairs) {
      const own = byQuery.get(query) ?? [];
      byQuery.set(query, [...own, next]);
      if (own.length < NEXT) best.set(query, (best.get(query) ?? 0) + count / this.followed[query] ** (2 / 3));
    }
    const ranked = [...byQuery.keys()].sort((a, b) => /** @type {number} */ (best.get(b)) - /** @type {number} */ (best.get(a)));
    /** @type {Map<number, number>} */
    let taken = new Map(); // next word: its last word
    for (const least of [NEXT, 1]) {
      taken = new Map();
      for (const query of ranked) {
        const free = /** @type {number[]} */ (byQuery.get(query)).filter((next) => !taken.has(next)).slice(0, NEXT);
        if (free.length >= least && new Set(taken.values()).size < QUERIES) for (const next of free) taken.set(next, query);
      }
      if (taken.size > 1) break;
    }
    return [...taken].map(([next, query]) => /** @type {Pair} */ ([this.words[query], this.words[next]]));
  }

  /**
   * The counts of these pairs, or of those that `chosen` has, as weights: the form "bars" of a set-up.
   * @param {Pair[] | null} pairs
   */
  bars(pairs = null) {
    const selected = pairs === null ? this.chosen() : checkedPairs(pairs), rows = selected.map(([query, next]) => {
      const match = this.pairs.find((pair) => this.words[pair.query] === query && this.words[pair.next] === next);
      if (!match) throw new InputError("pairs", `${query} ${next}`, "a pair that the text has twice or more, with words before it in the sentence");
      return match;
    });
    if (rows.length < 2) throw new InputError("pairs", rows.length, "at least 2 pairs: with one class there is nothing to learn");
    const table = rows.map(({ query, next, count, context }) => {
      const tokens = [...context.keys()].sort((a, b) => a - b);
      return { query, next_token: next, p_class: count, tokens, weights: tokens.map((l) => /** @type {number} */ (context.get(l))) };
    });
    const used = new Set(table.flatMap(({ tokens, query, next_token }) => [...tokens, query, next_token]));
    return { vocab_size: this.words.length, words: Object.fromEntries([...used].sort((a, b) => a - b).map((l) => [String(l), this.words[l]])), classes: table };
  }

  /**
   * The classes of these pairs.
   * @param {Pair[] | null} pairs
   */
  classes(pairs = null) {
    const { vocab_size, classes: rows } = this.bars(pairs), total = rows.reduce((n, { p_class }) => n + p_class, 0);
    return new SequenceClasses({
      vocab_size, words: this.words, query: rows.map(({ query }) => query), next_token: rows.map(({ next_token }) => next_token), p_class: rows.map(({ p_class }) => p_class / total),
      tokens: rows.map(({ tokens }) => tokens), probs: rows.map(({ weights }) => weights.map((w) => w * (1 / weights.reduce((a, b) => a + b, 0)))), // as SciPy divides a sparse table
    });
  }
}

/**
 * The pairs of a text of at most so many characters.
 * @param {unknown} text
 * @param {number} most
 */
export function readPassage(text, most) {
  if (typeof text !== "string") throw new InputError("text", text, "a text");
  const characters = [...text].length;
  if (characters > most) throw new InputError("text", `${characters} characters`, `at most ${most} characters`);
  const sentences = text.split(END).map((part) => part.toLowerCase().match(WORD) ?? []).filter((words) => words.length > 0);
  const n = sentences.reduce((total, words) => total + words.length, 0);
  if (n < LEAST) throw new InputError("text", `${n} words`, `at least ${LEAST} words; some twenty lines are better`);
  return new Passage(sentences);
}

/**
 * What a text gives to make classes of: its pairs, and the form of a set-up with those that are chosen.
 * @param {unknown} text
 * @param {Pair[] | null} pairs
 * @param {number} most
 */
export function offerWords(text, pairs, most) {
  const passage = readPassage(text, most);
  let refusal = "";
  /** @type {Record<string, any> | null} */
  let form = null;
  /** @type {Pair[]} */
  let chosen = [];
  try {
    chosen = pairs === null ? passage.chosen() : checkedPairs(pairs);
    const forms = [{ text, pairs: chosen }, { bars: passage.bars(chosen) }];
    form = JSON.stringify(forms[0]).length <= JSON.stringify(forms[1]).length ? forms[0] : forms[1];
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    refusal = error.message;
  }
  const isChosen = (/** @type {string} */ query, /** @type {string} */ next) => chosen.some((pair) => pair[0] === query && pair[1] === next);
  const shown = passage.pairs.map(({ query: q, next: n, count }) => ({ query: passage.words[q], next: passage.words[n], count, chosen: isChosen(passage.words[q], passage.words[n]) }));
  return { words: passage.n_words, different: passage.words.length - 2, sentences: passage.n_sentences, pairs: shown.filter((pair, at) => at < SHOWN || pair.chosen), classes: form, refusal };
}

/**
 * @param {unknown} pairs
 * @returns {Pair[]}
 */
function checkedPairs(pairs) {
  const isPair = (/** @type {unknown} */ pair) => Array.isArray(pair) && pair.length === 2 && pair.every((word) => typeof word === "string");
  if (!Array.isArray(pairs) || !pairs.every(isPair)) throw new InputError("pairs", pairs, "a list of pairs [last word, next word]");
  for (const i of range(pairs.length)) if (pairs.slice(0, i).some(([, next]) => next === pairs[i][1])) throw new InputError("pairs", pairs[i][1], "each next word in one pair only");
  return pairs;
}

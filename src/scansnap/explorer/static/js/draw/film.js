// The frames of one run in the order of their steps, and how to read them.

/** @import { ClassesSummary, FrameField, RateChange, RunSummary } from "../messages.js" */
/** @typedef {(step: number) => number} TimeAxis  Position of a step on the time axis, growing. */
/** @typedef {"common" | "query" | "distinct"} Kind */
/** Of the contexts of all classes, those a token occurs in. @typedef {"every" | "several" | "only" | "query"} Reach */

const BYTES = 48 << 20;
let filmCount = 0;

export class Film {
  /** @param {RunSummary} run */
  constructor(run) {
    this.run = run;
    this.number = ++filmCount; // tells films apart
    /** @type {RateChange[]} */
    this.marks = [...run.marks];
    /** @type {Record<string, FrameField>} */
    this.fields = Object.fromEntries(run.layout.fields.map((f) => [f.name, f]));
    this.most = Math.max(200, Math.min(3000, Math.floor(BYTES / (8 * run.layout.floats))));
    this.tokenOffset = offsets(run.layout.tokens); // where a class starts within "attention"
    this.queryOffset = offsets(run.layout.query_tokens);
    /** @type {number[]} */
    this.steps = [];
    /** @type {Float64Array[]} */
    this.frames = [];
    this.peak = 0; // largest attention so far
    this.moved = 0; // how far attention to a token has gone from where it began, at most
    this.version = 1;
  }

  clear() {
    this.steps = [];
    this.frames = [];
    this.peak = this.moved = 0;
    this.version++;
  }

  get length() { return this.steps.length; }
  get lastStep() { return this.length ? this.steps[this.length - 1] : -1; }

  /**
   * Takes frames in; a step at or before the last one is known already.
   * @param {Uint32Array} steps
   * @param {Float32Array | Float64Array} values
   * @param {number} floats
   */
  add(steps, values, floats) {
    const a = this.fields.attention;
    for (let i = 0; i < steps.length; i++) {
      if (steps[i] <= this.lastStep) continue;
      const frame = Float64Array.from(values.subarray(i * floats, (i + 1) * floats));
      this.steps.push(steps[i]);
      this.frames.push(frame);
      for (let j = a.offset; j < a.offset + a.size; j++) {
        if (frame[j] > this.peak) this.peak = frame[j];
        const way = Math.abs(frame[j] - this.frames[0][j]);
        if (way > this.moved) this.moved = way;
      }
    }
    if (this.length > this.most) this.thin();
    this.version++;
  }

  /** Fewer frames, evenly in log step; the first and the last stay. */
  thin() {
    const gap = Math.log(this.lastStep + 1) / (0.6 * this.most);
    let lastTime = -Infinity;
    const keep = this.steps.map((step, i) => {
      const x = Math.log(step + 1);
      if (i !== 0 && i !== this.length - 1 && x - lastTime < gap) return false;
      lastTime = x;
      return true;
    });
    this.steps = this.steps.filter((_, i) => keep[i]);
    this.frames = this.frames.filter((_, i) => keep[i]);
  }

  /**
   * Index of the last frame at or before `step`.
   * @param {number} step
   */
  at(step) {
    let low = 0, high = this.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.steps[mid] <= step) low = mid; else high = mid - 1;
    }
    return low;
  }

  /**
   * @param {string} name
   * @param {number} i
   */
  value(name, i, j = 0) { return this.frames[i][this.fields[name].offset + j]; }

  /**
   * The mean of a quantity over classes in frame i, of those that have it; NaN if none has.
   * @param {string} name
   * @param {number} i
   */
  mean(name, i) {
    let sum = 0, n = 0;
    for (let j = 0; j < this.fields[name].size; j++) { const v = this.value(name, i, j); if (Number.isFinite(v)) { sum += v; n++; } }
    return n ? sum / n : NaN;
  }

  /**
   * Attention of class k in frame i, token by token.
   * @param {number} i
   * @param {number} k
   */
  attention(i, k) {
    const at = this.fields.attention.offset + this.tokenOffset[k];
    return this.frames[i].subarray(at, at + this.run.layout.tokens[k].length);
  }

  /**
   * How much of the attention of class k is on tokens of a kind in frame i.
   * @param {number} i
   * @param {number} k
   * @param {Kind} kind
   */
  share(i, k, kind) {
    const tokens = this.run.layout.tokens[k];
    return this.attention(i, k).reduce((sum, v, j) => sum + (this.kind(k, tokens[j]) === kind ? v : 0), 0);
  }

  /**
   * How much of all attention is on common tokens in frame i: the mean over classes by how often they occur.
   * @param {number} i
   */
  common(i) {
    const { classes } = this.run.classes, all = classes.reduce((sum, c) => sum + c.p_class, 0);
    return classes.reduce((sum, c, k) => sum + (c.p_class / all) * this.share(i, k, "common"), 0);
  }

  /**
   * z of query q in frame i.
   * @param {number} i
   * @param {number} q
   */
  z(i, q) {
    const at = this.fields.z.offset + this.queryOffset[q];
    return this.frames[i].subarray(at, at + this.run.layout.query_tokens[q].length);
  }

  /**
   * At most `n` frame indices, spread evenly on the time axis `x`, with both ends.
   * @param {number} n
   * @param {TimeAxis} x
   */
  pick(n, x) {
    const last = this.length - 1;
    if (last < n) return Array.from({ length: last + 1 }, (_, i) => i);
    const from = x(this.steps[0]), gap = (x(this.steps[last]) - from) / n, out = [0];
    for (let i = 1; i < last; i++) if (x(this.steps[i]) - x(this.steps[out[out.length - 1]]) >= gap) out.push(i);
    out.push(last);
    return out;
  }

  /**
   * For each of `rows` moments from step 0 to the last step of the run: the frame shown there, −1 where there is none yet.
   * @param {number} rows
   * @param {TimeAxis} x
   */
  rowFrames(rows, x) {
    const end = x(Math.max(1, this.run.steps, this.lastStep)), out = new Int32Array(rows);
    const reached = this.length ? x(this.lastStep) : -1;
    let i = 0;
    for (let r = 0; r < rows; r++) {
      const here = ((r + 0.5) / rows) * end;
      if (here > reached) { out[r] = r === 0 && this.length ? 0 : -1; continue; }
      while (i + 1 < this.length && x(this.steps[i + 1]) <= here) i++;
      out[r] = i;
    }
    return out;
  }

  /**
   * What a token of class k is.
   * @param {number} k
   * @param {number} token
   * @returns {Kind}
   */
  kind(k, token) {
    const c = this.run.classes.classes[k], j = c.tokens.indexOf(token);
    return j < 0 ? "query" : c.kinds[j];
  }

  /**
   * In which contexts a token of class k occurs.
   * @param {number} k
   * @param {number} token
   * @returns {Reach}
   */
  reach(k, token) {
    const kind = this.kind(k, token), { classes } = this.run.classes;
    if (kind !== "common") return kind === "distinct" ? "only" : kind;
    return classes.every((c) => c.tokens.includes(token)) ? "every" : "several";
  }

  /** Those there are in this run, the ones that are shared first. */
  reaches() {
    const all = new Set(this.run.layout.tokens.flatMap((tokens, k) => tokens.map((t) => this.reach(k, t))));
    return /** @type {Reach[]} */ (["every", "several", "query", "only"]).filter((r) => all.has(r));
  }
}

/** How kinds of tokens are called where there is room. @type {Record<Reach, string>} */
export const REACH = { only: "distinct (only in this context)", several: "common (in several contexts)", every: "common (in every context)", query: "the query itself" };

/** @type {WeakMap<Film, WeakMap<Film, boolean>>} */
const compared = new WeakMap();

/**
 * Whether two runs are of the same classes: tokens, how often they occur, and their words.
 * @param {Film} film
 * @param {Film} other
 */
export function sameClasses(film, other) {
  const known = compared.get(film) ?? new WeakMap(), text = (/** @type {Film} */ { run: { classes: c } }) => JSON.stringify([c.classes, c.words]);
  compared.set(film, known);
  if (!known.has(other)) known.set(other, text(film) === text(other));
  return known.get(other) === true;
}

/** @param {number[][]} lists */
function offsets(lists) {
  let at = 0;
  return lists.map((list) => { const here = at; at += list.length; return here; });
}

/**
 * How a token reads: its word where there is one, otherwise its number.
 * @param {ClassesSummary} classes
 * @param {number} token
 */
export const name = (classes, token) => classes.words?.[token] ?? String(token);

/**
 * The same in a sentence.
 * @param {ClassesSummary} classes
 * @param {number} token
 */
export const word = (classes, token) => classes.words?.[token] ?? `token ${token}`;

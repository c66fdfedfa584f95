// One run with its film: the twin of explorer/live/run.py. Frames come at fixed steps: every step to 50, then every 2%.

import { Growth, Measures } from "./measures.js";
import { queryTokens } from "./layout.js";
import { Simulation } from "./simulation.js";
import { range } from "../numeric.js";

/** @import { Blueprint } from "../setup/blueprint.js" */
/** @import { Layout } from "./layout.js" */

/** @typedef {{step: number, eta_y: number | null, eta_z: number | null}} Mark new rates from a step on; null: as before */

/**
 * How to read a frame.
 * @typedef {object} FrameLayout
 * @property {number} floats
 * @property {{name: string, offset: number, size: number}[]} fields
 * @property {number[][]} tokens per class, the order within "attention"
 * @property {number[][]} query_tokens per query, the order within "z"
 * @property {number[]} queries
 * @property {number[]} class_query
 */

const EVERY_UNTIL = 50;

/**
 * The first step after `step` that every film holds.
 * @param {number} step
 */
export function nextScheduled(step) {
  if (step < EVERY_UNTIL) return step + 1;
  let at = EVERY_UNTIL;
  while (at <= step) at = Math.max(at + 1, Math.ceil(at * 51 / 50));
  return at;
}

/**
 * @param {Layout} layout
 * @returns {FrameLayout}
 */
export function frameLayout(layout) {
  const { K, S, slots, nSlots, queries, classQuery } = layout, tokens = range(K).map((n) => [...slots.subarray(n * S, n * S + nSlots[n])]), ofQueries = queryTokens(layout);
  const sizes = { loss: 1, entropy: K, growth: K, log_chi: K, attention: tokens.flat().length, z: ofQueries.flat().length };
  let floats = 0;
  const fields = Object.entries(sizes).map(([name, size]) => ({ name, offset: (floats += size) - size, size }));
  return { floats, fields, tokens, query_tokens: ofQueries, queries, class_query: [...classQuery] };
}

/** A run that hands out its frames as they come. */
export class Run {
  /**
   * @param {Blueprint} blueprint
   * @param {Mark[]} marks changes of the rates on the way, ascending
   */
  constructor(blueprint, marks = []) {
    const { classes, layout, settings: { model } } = blueprint;
    this.blueprint = blueprint;
    this.simulation = new Simulation(layout, blueprint.settings, { ...blueprint.rates });
    this.measures = new Measures(classes, layout);
    this.frames = frameLayout(layout);
    this.ahead = [...marks];
    this.isTheory = model.norm === "l2" && model.residual === "none" && model.heads === 1;
    const { attention } = this.simulation.look();
    this.z0 = this.simulation.meanZ();
    this.dominant = this.measures.dominant(attention);
    this.growth = new Growth(this.measures.growthPoint(this.z0, attention));
    this.scheduled = 0;
    this.recorded = -1;
  }

  get step() { return this.simulation.step; }
  get steps() { return this.blueprint.settings.steps; }
  /** Nothing moves any more: the last step is reached, or the tables left the float range. */
  get isOver() { return this.step >= this.steps || this.simulation.failedStep >= 0; }

  /**
   * Advances for about so many milliseconds; the frames recorded on the way.
   * @param {number} milliseconds
   * @returns {{step: number, values: Float64Array}[]}
   */
  advance(milliseconds) {
    return this.advanceTo(this.steps, milliseconds);
  }

  /**
   * The same, but not beyond a step.
   * @param {number} step
   * @param {number} milliseconds
   */
  advanceTo(step, milliseconds) {
    const end = performance.now() + milliseconds, out = [];
    if (this.recorded < 0) out.push(this.record());
    this.passMarks();
    while (!this.isOver && this.step < step) {
      this.simulation.advance();
      const isMark = this.passMarks();
      if (this.step === this.scheduled || this.isOver || isMark) out.push(this.record());
      if (performance.now() > end) break;
    }
    return out;
  }

  /** New rates that are due; the state, its momentum included, goes on. */
  passMarks() {
    let isMark = false;
    while (this.ahead.length && this.ahead[0].step <= this.step) {
      const { eta_y, eta_z } = /** @type {Mark} */ (this.ahead.shift()), { rates } = this.simulation;
      rates.eta_y = eta_y ?? rates.eta_y;
      rates.eta_z = eta_z ?? rates.eta_z;
      isMark = true;
    }
    return isMark;
  }

  /** A frame of the current step. */
  record() {
    const { simulation, measures, frames } = this, { attention, loss } = simulation.look(), { K, S, M, nSlots } = this.blueprint.layout, z = simulation.meanZ();
    const here = measures.growthPoint(z, attention), growth = this.isTheory ? this.growth.value(here) : here.map(() => NaN), values = new Float64Array(frames.floats);
    values[0] = loss;
    values.set(measures.entropy(attention), 1);
    values.set(growth, 1 + K);
    values.set(measures.logChi(z, this.z0, this.dominant), 1 + 2 * K);
    let at = 1 + 3 * K;
    for (let n = 0; n < K; at += nSlots[n++]) values.set(attention.subarray(n * S, n * S + nSlots[n]), at);
    frames.query_tokens.forEach((tokens, q) => tokens.forEach((l) => { values[at++] = z[q * M + l]; }));
    if (this.step >= this.scheduled) {
      this.growth.commit(here);
      this.scheduled = nextScheduled(this.step);
    }
    this.recorded = this.step;
    return { step: this.step, values };
  }

  /**
   * Y of at most size × size values, larger tables as means over blocks; the token of a block is its first, −1 stands for
   * every token that is never next.
   * @param {number} size
   */
  tableY(size) {
    const { rows, columns, J } = this.blueprint.layout, y = this.simulation.y.values, down = blocks(rows.length, size), across = blocks(columns.length, size);
    const values = new Float64Array(down.length * across.length);
    down.forEach(([top, bottom], i) => across.forEach(([left, right], j) => {
      let total = 0;
      for (let row = top; row < bottom; row++) for (let column = left; column < right; column++) total += y[row * J + column];
      values[i * across.length + j] = total / ((bottom - top) * (right - left));
    }));
    return { step: this.step, rows: down.map(([first]) => rows[first]), columns: across.map(([first]) => columns[first]), values };
  }
}

/**
 * Where n rows are cut into at most `size` blocks.
 * @param {number} n
 * @param {number} size
 */
function blocks(n, size) {
  const starts = n <= size ? range(n) : [...new Set(range(size).map((i) => Math.floor(i * (n / size))))];
  return starts.map((start, i) => [start, starts[i + 1] ?? n]);
}

// One run of the YZ model, step by step: the twin of dynamics/engines (hand_written.py, batches.py) and dynamics/step.py.

import { samplingTable, sampleClasses, sampleCounts } from "../sampling/counts.js";
import { expectedCounts } from "./layout.js";
import { Trained, scheduleOf } from "./optimizers.js";
import { range } from "../numeric.js";
import { startTables } from "../sampling/start.js";
import { positionWeights, sampleWeightedCounts } from "../sampling/tokens.js";
import { Passes } from "./yz.js";

/** @import { Layout, Model } from "./layout.js" */
/** @import { Optimizer } from "./optimizers.js" */
/** @import { Batch } from "./yz.js" */

/**
 * One run, apart from its classes.
 * @typedef {object} Settings
 * @property {number} steps
 * @property {number | null} batch_size null: the expectation over the classes, which needs T = ∞
 * @property {number} context sequence length T, the query included; Infinity replaces counts by probabilities
 * @property {string} sampling counts or tokens
 * @property {Model} model
 * @property {Optimizer} optimizer_y
 * @property {Optimizer} optimizer_z
 */

/**
 * @typedef {object} Rates
 * @property {number} eta_y
 * @property {number} eta_z
 * @property {number} seed
 * @property {number} momentum
 * @property {number} weight_decay_y
 * @property {number} weight_decay_z
 */

/** Makes the mini-batches of a run: what a batch holds is a function of (seed, step) alone. */
export class Batches {
  /**
   * @param {Layout} layout
   * @param {Settings} settings
   * @param {number} seed
   */
  constructor(layout, settings, seed) {
    const { K, S } = layout, { batch_size, context, model } = settings, isInfinite = context === Infinity, B = isInfinite ? K : /** @type {number} */ (batch_size);
    this.layout = layout;
    this.settings = settings;
    this.seed = seed;
    this.table = samplingTable(layout.pClass, layout.slotP, S);
    this.drawn = new Int32Array(batch_size ?? 0);
    this.length = isInfinite ? 0 : context - 1;
    this.weights = settings.sampling === "tokens" && !isInfinite ? positionWeights(model.position_bias, this.length) : null;
    /** The classes themselves instead of samples, weighted by p_n. @type {Batch} */
    this.expected = { cls: Int32Array.from(range(K)), counts: expectedCounts(layout, context, model.query_in_keys), weight: Float64Array.from(layout.pClass) };
    /** The last batch. @type {Batch} */
    this.batch = isInfinite
      ? { ...this.expected, weight: this.expected.weight.slice() }
      : { cls: this.drawn, counts: new Float64Array(B * S), weight: new Float64Array(B).fill(1 / B) };
  }

  /**
   * @param {number} step
   * @returns {Batch} until the next is asked for
   */
  take(step) {
    const { batch, drawn, seed, table, layout: { S, slotQuery } } = this;
    if (this.settings.batch_size === null) return batch;
    sampleClasses(table, seed, step, drawn);
    if (this.settings.context === Infinity) { // all samples of a class are alike: a batch is how often each was drawn
      batch.weight.fill(0);
      for (let b = 0; b < drawn.length; b++) batch.weight[drawn[b]] += 1;
      for (let n = 0; n < batch.weight.length; n++) batch.weight[n] /= drawn.length;
      return batch;
    }
    if (this.weights) sampleWeightedCounts(table, seed, step, drawn, this.weights, batch.counts);
    else sampleCounts(table, seed, step, drawn, this.length, batch.counts);
    if (this.settings.model.query_in_keys) for (let b = 0; b < drawn.length; b++) for (let s = 0; s < S; s++) batch.counts[b * S + s] += slotQuery[drawn[b] * S + s];
    return batch;
  }
}

/** The state of one run between two steps. */
export class Simulation {
  /**
   * @param {Layout} layout
   * @param {Settings} settings
   * @param {Rates} rates
   * @param {Batches} batches those of several runs that differ in their rates alone may be shared
   */
  constructor(layout, settings, rates, batches = new Batches(layout, settings, rates.seed)) {
    const { y, z } = startTables(layout, settings.model.init, settings.model.heads, rates.seed);
    const largestY = Number.MAX_VALUE / (8 * layout.M); // beyond it the logits can overflow although the table is finite
    this.layout = layout;
    this.settings = settings;
    this.rates = rates;
    this.batches = batches;
    this.y = new Trained(y, settings.optimizer_y, layout.J, layout.L, layout.multiplicity, largestY);
    this.z = new Trained(z, settings.optimizer_z, layout.M, layout.Q, null, Infinity);
    this.factors = [settings.optimizer_y, settings.optimizer_z].map((optimizer) => scheduleOf(optimizer.schedule));
    this.passes = new Passes(layout, settings.model, Math.max(layout.K, batches.batch.cls.length));
    this.step = 0;
    this.failedStep = -1; // the update that would have made a table non-finite
  }

  /** One update by the mini-batch of the current step. */
  advance() {
    this.update(this.batches.take(this.step));
  }

  /**
   * One update by a given mini-batch. A run of which a table would become non-finite stays as it is.
   * @param {Batch} batch
   */
  update(batch) {
    const { y, z, rates, settings: { steps }, step } = this;
    if (this.failedStep >= 0) return;
    y.direction.fill(0);
    z.direction.fill(0);
    this.passes.gradients(y.values, z.values, batch, y.direction, z.direction);
    const isFiniteY = y.update(step, rates.eta_y * this.factors[0](step, steps), rates.momentum, rates.weight_decay_y);
    const isFiniteZ = z.update(step, rates.eta_z * this.factors[1](step, steps), rates.momentum, rates.weight_decay_z);
    if (isFiniteY && isFiniteZ) {
      y.take();
      z.take();
    } else this.failedStep = step;
    this.step++;
  }

  /** Attention of the classes themselves (K, S) and their loss, weighted by p_n. */
  look() {
    const { attention, loss } = this.passes.look(this.y.values, this.z.values, this.batches.expected);
    return { attention, loss: loss.reduce((total, own, n) => total + own * this.layout.pClass[n], 0) };
  }

  /** z by query and token (Q, M), the mean over heads. */
  meanZ() {
    const { Q, M } = this.layout, H = this.settings.model.heads, z = this.z.values;
    return Float64Array.from({ length: Q * M }, (_, i) => {
      let total = 0;
      for (let h = 0; h < H; h++) total += z[h * Q * M + i];
      return total / H;
    });
  }
}

// What is measured of attention and logits: the twin of measure/entropy.py, measure/attention.py, measure/growth.py and
// of the frames of the explorer's runs.

import { linspace } from "../setup/presets.js";
import { sum } from "../numeric.js";

/** @import { SequenceClasses } from "../setup/classes.js" */
/** @import { Layout } from "./layout.js" */

/**
 * −Σ p ln p, in nats.
 * @param {ArrayLike<number>} p
 */
export function entropyOf(p) {
  let total = 0;
  for (let i = 0; i < p.length; i++) if (p[i] > 0) total -= p[i] * Math.log(p[i]);
  return total;
}

/**
 * e^entropy: the number of tokens that uniform attention of the same entropy would cover.
 * @param {ArrayLike<number>} attention
 */
export const effectiveTokens = (attention) => Math.exp(entropyOf(attention));

/** Which slots of each class hold its distinct tokens, and what is measured over them. */
export class Measures {
  /**
   * @param {SequenceClasses} classes
   * @param {Layout} layout
   */
  constructor(classes, layout) {
    const { K, S, nSlots, slots } = layout;
    this.layout = layout;
    /** (K, …) slots of the distinct tokens. */
    this.distinct = classes.tokens.map((_, n) => {
      const own = new Set(classes.distinct(n));
      return [...Array(nSlots[n]).keys()].filter((s) => own.has(slots[n * S + s]));
    });
    /** (K, …) slots of the common tokens. */
    this.common = classes.tokens.map((ids, n) => {
      const own = new Set(ids.filter((_, i) => !classes.isDistinct[n][i]));
      return [...Array(nSlots[n]).keys()].filter((s) => own.has(slots[n * S + s]));
    });
    this.K = K;
  }

  /**
   * Entropy of attention over each class's distinct tokens, renormalised; NaN where there is none.
   * @param {Float64Array} attention (K, S)
   */
  entropy(attention) {
    return this.distinct.map((slots, n) => {
      const own = slots.map((s) => attention[n * this.layout.S + s]), total = sum(own);
      return total > 0 ? entropyOf(own.map((c) => c / total)) : NaN;
    });
  }

  /**
   * Attention on each class's distinct tokens.
   * @param {Float64Array} attention (K, S)
   */
  distinctMass(attention) {
    return this.distinct.map((slots, n) => sum(slots.map((s) => attention[n * this.layout.S + s])));
  }

  /**
   * Attention on common tokens, mean over classes weighted by p_n.
   * @param {Float64Array} attention (K, S)
   */
  commonShare(attention) {
    const { S, pClass } = this.layout, shares = this.common.map((slots, n) => pClass[n] * sum(slots.map((s) => attention[n * S + s])));
    return shares.reduce((a, b) => a + b, 0) / sum(pClass);
  }

  /**
   * The slot of each class's distinct token that leads; −1 where there is none.
   * @param {Float64Array} attention (K, S)
   */
  dominant(attention) {
    return this.distinct.map((slots, n) => slots.reduce((top, s) => (top < 0 || attention[n * this.layout.S + s] > attention[n * this.layout.S + top] ? s : top), -1));
  }

  /**
   * ln χ = 2 (z(t) − z(0)) of the dominant distinct tokens.
   * @param {Float64Array} z (Q, M)
   * @param {Float64Array} z0 (Q, M)
   * @param {number[]} dominant
   */
  logChi(z, z0, dominant) {
    const { S, M, slots, classQuery } = this.layout;
    return dominant.map((s, n) => {
      if (s < 0) return NaN;
      const at = classQuery[n] * M + slots[n * S + s];
      return 2 * (z[at] - z0[at]);
    });
  }

  /**
   * Where each class is on its path: Σ_l z_l and 1/Σ_l f_l² over its distinct tokens l.
   * @param {Float64Array} z (Q, M)
   * @param {Float64Array} attention (K, S)
   */
  growthPoint(z, attention) {
    const { S, M, slots, classQuery } = this.layout;
    return this.distinct.map((own, n) => {
      let squares = 0, height = 0, distinct = 0;
      for (let s = 0; s < S; s++) squares += attention[n * S + s] ** 2;
      for (const s of own) {
        height += z[classQuery[n] * M + slots[n * S + s]];
        distinct += attention[n * S + s] ** 2;
      }
      return { height, weight: squares / distinct };
    });
  }
}

/** @typedef {ReturnType<Measures["growthPoint"]>} GrowthPoint */

/** B_n = ∫ d(Σ_l z_l)/Σ_l f_l², by a trapezoid along the path of the points given to it. */
export class Growth {
  /** @param {GrowthPoint} first */
  constructor(first) {
    this.place = first;
    this.total = first.map(() => 0);
  }

  /**
   * B_n at a point after the last committed one; NaN for a class without distinct tokens.
   * @param {GrowthPoint} here
   */
  value(here) {
    return this.total.map((total, n) => (Number.isFinite(here[n].weight) ? total + (here[n].height - this.place[n].height) * (here[n].weight + this.place[n].weight) / 2 : NaN));
  }

  /** @param {GrowthPoint} here */
  commit(here) {
    this.total = this.value(here);
    this.place = here;
  }
}

/**
 * Times from 0 to `last`: half of the points evenly, half evenly in log t, smooth on either axis.
 * @param {number} last
 * @param {number} points
 */
export function timeGrid(last, points) {
  const even = linspace(0, last, Math.max(2, Math.floor(points / 2))), low = Math.min(0.1, last / 2), n = Math.max(2, points - even.length);
  const logs = linspace(Math.log10(low), Math.log10(last), n).map((x, i) => (i === 0 ? low : i === n - 1 ? last : 10 ** x));
  return [...new Set([...even, ...logs])].sort((a, b) => a - b);
}

// Token sequences, where positions matter: the twin of sample_tokens and weighted_counts in sampling/counts.py.

import { PURPOSE, draw, keyOf, uniform } from "./philox.js";

/** @import { SamplingTable } from "./counts.js" */

/**
 * e^{bias} of the context positions, oldest first. A number is an ALiBi slope, a list the bias by distance 1, 2, …
 * @param {number | number[] | null} bias
 * @param {number} length
 * @returns {Float64Array} (T − 1,)
 */
export function positionWeights(bias, length) {
  return Float64Array.from({ length }, (_, position) => {
    const distance = length - position;
    if (bias === null) return 1;
    return Math.exp(typeof bias === "number" ? -bias * distance : bias[Math.min(distance, bias.length) - 1]);
  });
}

/**
 * The slot of the token at each context position of a sample, oldest first.
 * @param {SamplingTable} table
 * @param {number} seed
 * @param {number} step
 * @param {number} sample
 * @param {number} n class of the sample
 * @param {Int32Array} slots (T − 1,) is filled
 */
export function sampleTokens(table, seed, step, sample, n, slots) {
  const [low, high] = keyOf(seed), { S, slotEdges } = table;
  for (let position = 0; position < slots.length; position++) {
    draw(low, high, PURPOSE.TOKEN, step, sample, position);
    let s = 0;
    while (slotEdges[n * S + s] <= uniform[0]) s++;
    slots[position] = s;
  }
}

/**
 * Σ over positions of their weight for each slot. A bias b on the logit of a position multiplies its key's weight by
 * e^b; summed over the positions of a token that is a real-valued count, so the count form covers position biases.
 * @param {SamplingTable} table
 * @param {number} seed
 * @param {number} step
 * @param {Int32Array} cls (B,)
 * @param {Float64Array} weights (T − 1,)
 * @param {Float64Array} counts (B, S) is filled
 */
export function sampleWeightedCounts(table, seed, step, cls, weights, counts) {
  const { S } = table, slots = new Int32Array(weights.length);
  counts.fill(0);
  for (let b = 0; b < cls.length; b++) {
    sampleTokens(table, seed, step, b, cls[b], slots);
    for (let position = 0; position < slots.length; position++) counts[b * S + slots[position]] += weights[position];
  }
}

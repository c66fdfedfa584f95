// Classes and token counts of mini-batches: the twin of sampling/counts.py, with the order of operations of
// kernels/cpu/sampling.c. JavaScript's numbers are IEEE doubles without fused products, so the draws are equal.
//
//     K classes · B samples · S slots of a class · T − 1 context positions

import { PURPOSE, draw, keyOf, uniform } from "./philox.js";
import { exponential } from "../numeric.js";

/**
 * What draws read of the class distributions.
 * @typedef {object} SamplingTable
 * @property {number} S
 * @property {Float64Array} classEdges (K,) upper ends of the classes' intervals of [0, 1)
 * @property {Float64Array} slotEdges (K, S) the same of the slots of each class
 * @property {Float64Array} chances (K, S, 4) of the binomial of each slot: p ≤ ½, its odds, ln(1 − p), whether p is 1 − chance
 */

/**
 * @param {ArrayLike<number>} pClass (K,)
 * @param {ArrayLike<number>} pSlot (K, S)
 * @param {number} S
 * @returns {SamplingTable}
 */
export function samplingTable(pClass, pSlot, S) {
  const K = pClass.length, chances = new Float64Array(K * S * 4);
  for (let n = 0; n < K; n++) {
    let rest = 0, isLast = true; // rest: the mass from slot s on; whatever is left falls on the last slot with mass
    for (let s = S - 1; s >= 0; s--) {
      const own = pSlot[n * S + s], at = (n * S + s) * 4;
      rest += own;
      const chance = isLast && own > 0 ? 1 : Math.min(rest > 0 ? own / rest : 0, 1), turned = chance > 0.5, p = turned ? 1 - chance : chance;
      if (own > 0) isLast = false;
      chances[at] = p;
      chances[at + 1] = p / (1 - p);
      chances[at + 2] = Math.log1p(-p);
      chances[at + 3] = turned ? 1 : 0;
    }
  }
  const slotEdges = new Float64Array(K * S);
  for (let n = 0; n < K; n++) slotEdges.set(upperEdges(pSlot, n * S, S), n * S);
  return { S, chances, slotEdges, classEdges: upperEdges(pClass, 0, K) };
}

/**
 * Running sums; the last entry with mass, and those after it, end at infinity.
 * @param {ArrayLike<number>} p
 * @param {number} from
 * @param {number} length
 */
function upperEdges(p, from, length) {
  const edges = new Float64Array(length);
  let sum = 0, last = 0;
  for (let i = 0; i < length; i++) {
    edges[i] = sum += p[from + i];
    if (p[from + i] > 0) last = i;
  }
  return edges.fill(Infinity, last);
}

/**
 * The class of every sample, drawn with probability p_n.
 * @param {SamplingTable} table
 * @param {number} seed
 * @param {number} step
 * @param {Int32Array} cls (B,) is filled
 */
export function sampleClasses(table, seed, step, cls) {
  const [low, high] = keyOf(seed), { classEdges } = table;
  for (let b = 0; b < cls.length; b++) {
    draw(low, high, PURPOSE.CLASS, step, 0, b);
    let n = 0;
    while (classEdges[n] <= uniform[0]) n++;
    cls[b] = n;
  }
}

/**
 * How often each slot of the sample's class occurs in `length` context positions: a chain of binomials.
 * @param {SamplingTable} table
 * @param {number} seed
 * @param {number} step
 * @param {Int32Array} cls (B,)
 * @param {number} length
 * @param {Float64Array} counts (B, S) is filled
 */
export function sampleCounts(table, seed, step, cls, length, counts) {
  const [low, high] = keyOf(seed), { chances, S } = table;
  for (let b = 0; b < cls.length; b++) {
    let left = length;
    for (let s = 0, at = cls[b] * S * 4; s < S; s++, at += 4) {
      const p = chances[at];
      let k = 0;
      if (p > 0 && left > 0) {
        if (left * p < INVERSION_LIMIT) {
          draw(low, high, PURPOSE.COUNT, step, b, s << 8);
          k = byInversion(uniform[0], left, chances[at + 1], chances[at + 2]);
        } else k = byRejection(left, p, low, high, step, b, s);
      }
      if (chances[at + 3]) k = left - k;
      counts[b * S + s] = k;
      left -= k;
    }
  }
}

// --- binomial draws --------------------------------------------------------------------------------------------------

const INVERSION_LIMIT = 12; // expected successes up to which counting them one by one beats rejection
const RECIPROCAL = Float64Array.from({ length: 4096 }, (_, k) => 1 / k);

/**
 * Walk up the distribution function until it passes a uniform.
 * @param {number} u
 * @param {number} n
 * @param {number} odds
 * @param {number} logRest
 */
function byInversion(u, n, odds, logRest) {
  let pmf = exponential(n * logRest), k = 0;
  while (u >= pmf && k < n) {
    u -= pmf;
    pmf *= odds * (n - k) * (k + 1 < 4096 ? RECIPROCAL[k + 1] : 1 / (k + 1));
    k++;
  }
  return k;
}

/**
 * Hörmann's transformed rejection with squeeze (BTRS, 1993); the full test is computed where the squeeze does not decide.
 * @param {number} n
 * @param {number} p
 * @param {number} low
 * @param {number} high
 * @param {number} step
 * @param {number} sample
 * @param {number} slot
 */
function byRejection(n, p, low, high, step, sample, slot) {
  const spread = Math.sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p;
  for (let trial = 1; ; trial++) {
    draw(low, high, PURPOSE.COUNT, step, sample, slot << 8 | trial);
    const x = uniform[0] - 0.5, v = uniform[1], side = 0.5 - Math.abs(x), k = Math.floor((2 * a / side + b) * x + n * p + 0.5);
    if (!(k >= 0 && k <= n)) continue;
    if (side >= 0.07 && v <= 0.92 - 4.2 / b) return k;
    const odds = p / (1 - p), mode = Math.floor((n + 1) * p), scale = (2.83 + 5.1 / b) * spread;
    const peak = (mode + 0.5) * Math.log((mode + 1) / (odds * (n - mode + 1))) + stirling(mode) + stirling(n - mode);
    const bound = peak + (n + 1) * Math.log((n - mode + 1) / (n - k + 1)) +
      (k + 0.5) * Math.log(odds * (n - k + 1) / (k + 1)) - stirling(k) - stirling(n - k);
    if (Math.log(v * scale / (a / (side * side) + b)) <= bound) return k;
  }
}

/** What Stirling's formula leaves of ln k!, k < 10: the numbers of STIRLING_TABLE, with their rounding; a test compares them. */
export const STIRLING = [
  0.08106146679532733, 0.04134069595540946, 0.02767792568499816, 0.020790672103765395, 0.01664469118982259,
  0.013876128823071543, 0.011896709945891981, 0.010411265261973224, 0.009255462182710783, 0.008330563433360805,
];

/** @param {number} k */
function stirling(k) {
  if (k < 10) return STIRLING[k];
  const i = k + 1;
  return (1 / 12 - (1 / 360 - 1 / 1260 / (i * i)) / (i * i)) / i;
}

// Update rules: the twin of dynamics/optimizers.py. A direction d is the ascent direction of the log-likelihood, so
// updates are added. A table is a stack of matrices (…, rows, columns), laid out row by row.

import { InputError } from "../errors.js";

/**
 * Which update rule, with its constants.
 * @typedef {object} Optimizer
 * @property {string} name
 * @property {number} beta1
 * @property {number} beta2
 * @property {number} eps
 * @property {number | null} clip largest L2 norm of the direction of one table
 * @property {string} schedule such as constant, cosine(floor) or step(every, factor)
 */

export const HAS_MOMENTUM = ["sgd", "nesterov", "sign", "muon"];
const DECOUPLED = ["adamw", "muon"];

/** One trained table: its values, its moments, and room for the next values. */
export class Trained {
  /**
   * @param {Float64Array} values
   * @param {Optimizer} optimizer
   * @param {number} columns
   * @param {number} rows of one matrix
   * @param {Float64Array | null} multiplicity (columns,) how many equal columns each stands for
   * @param {number} limit a table with a larger entry has failed
   */
  constructor(values, optimizer, columns, rows, multiplicity, limit) {
    const real = () => new Float64Array(values.length);
    /** @type {Float64Array} */
    this.values = values;
    this.optimizer = optimizer;
    this.columns = columns;
    this.rows = rows;
    this.multiplicity = multiplicity;
    this.limit = limit;
    /** @type {Float64Array} */
    this.next = real();
    this.direction = real();
    this.first = real(); // velocity, or Adam's mean
    this.second = optimizer.name.startsWith("adam") ? real() : null; // Adam's mean square
  }

  /**
   * Computes the next values from the direction; whether all of them are finite and within the limit.
   * @param {number} step from 0
   * @param {number} eta with the schedule's factor
   * @param {number} momentum
   * @param {number} decay
   */
  update(step, eta, momentum, decay) {
    const { values: x, direction: d, optimizer } = this, n = x.length;
    if (optimizer.clip !== null) this.clip(optimizer.clip);
    const shrink = DECOUPLED.includes(optimizer.name) ? 1 - eta * decay : 1;
    if (decay && shrink === 1 && !DECOUPLED.includes(optimizer.name)) for (let i = 0; i < n; i++) d[i] -= decay * x[i];
    if (this.second) this.adam(this.second, step, eta, shrink);
    else this.byMomentum(eta, momentum, shrink);
    const { next, limit } = this;
    let isFinite = true;
    for (let i = 0; i < n; i++) if (!(Math.abs(next[i]) < limit)) isFinite = false;
    return isFinite;
  }

  /** Takes the values that `update` computed. */
  take() {
    [this.values, this.next] = [this.next, this.values];
  }

  /**
   * @param {number} eta
   * @param {number} momentum
   * @param {number} shrink
   */
  byMomentum(eta, momentum, shrink) {
    const { values: x, next, direction: d, first: v, optimizer: { name } } = this, n = x.length;
    if (name === "sgd") { // one pass over what may be larger than the cache
      for (let i = 0; i < n; i++) next[i] = x[i] + eta * (v[i] = momentum * v[i] + d[i]);
      return;
    }
    for (let i = 0; i < n; i++) v[i] = momentum * v[i] + d[i];
    if (name === "nesterov") for (let i = 0; i < n; i++) next[i] = x[i] + eta * (d[i] + momentum * v[i]);
    else if (name === "sign") for (let i = 0; i < n; i++) next[i] = x[i] + eta * Math.sign(v[i]);
    else if (name === "muon") {
      const size = this.rows * this.columns;
      for (let from = 0; from < n; from += size) {
        const way = orthogonalize(v.subarray(from, from + size), this.rows, this.columns, this.multiplicity);
        for (let i = 0; i < size; i++) next[from + i] = x[from + i] * shrink + eta * way[i];
      }
    } else throw new InputError("optimizer", name, "an update rule of the engine");
  }

  /**
   * @param {Float64Array} square
   * @param {number} step
   * @param {number} eta
   * @param {number} shrink
   */
  adam(square, step, eta, shrink) {
    const { values: x, next, direction: d, first: mean, optimizer: { beta1, beta2, eps } } = this;
    const p = 1 - beta1 ** (step + 1), q = 1 - beta2 ** (step + 1);
    for (let i = 0; i < x.length; i++) {
      mean[i] = beta1 * mean[i] + (1 - beta1) * d[i];
      square[i] = beta2 * square[i] + (1 - beta2) * d[i] * d[i];
      next[i] = x[i] * shrink + eta * (mean[i] / p) / (Math.sqrt(square[i] / q) + eps);
    }
  }

  /**
   * The direction of the whole table, at most so long.
   * @param {number} most
   */
  clip(most) {
    const { direction: d, multiplicity, columns } = this;
    let squares = 0;
    for (let i = 0; i < d.length; i++) squares += d[i] * d[i] * (multiplicity ? multiplicity[i % columns] : 1);
    const factor = most / Math.max(Math.sqrt(squares), most);
    for (let i = 0; i < d.length; i++) d[i] *= factor;
  }
}

/**
 * Singular values pushed towards 1 by five Newton–Schulz steps of degree five (Muon). A column of multiplicity w enters
 * as one column times √w, which has the same Gram matrix as w copies.
 * @param {Float64Array} matrix (rows, columns)
 * @param {number} rows
 * @param {number} columns
 * @param {Float64Array | null} multiplicity
 */
export function orthogonalize(matrix, rows, columns, multiplicity) {
  const isTall = rows > columns, a = Math.min(rows, columns), b = Math.max(rows, columns);
  const weight = (/** @type {number} */ column) => (multiplicity ? Math.sqrt(multiplicity[column]) : 1);
  let squares = 0;
  const weighted = matrix.map((x, i) => x * weight(i % columns));
  for (const x of weighted) squares += x * x;
  const size = Math.sqrt(squares) + 1e-7; // what is only rounding stays small
  let x = new Float64Array(a * b); // (a, b), a ≤ b
  for (let i = 0; i < a; i++) for (let j = 0; j < b; j++) x[i * b + j] = weighted[isTall ? j * columns + i : i * columns + j] / size;
  const gram = new Float64Array(a * a), polynomial = new Float64Array(a * a);
  for (let step = 0; step < 5; step++) {
    for (let i = 0; i < a; i++) {
      for (let k = 0; k <= i; k++) {
        let dot = 0;
        for (let j = 0; j < b; j++) dot += x[i * b + j] * x[k * b + j];
        gram[i * a + k] = gram[k * a + i] = dot;
      }
    }
    polynomial.fill(0); // −4.775 G + 2.0315 G²
    for (let i = 0; i < a; i++) {
      for (let k = 0; k < a; k++) {
        polynomial[i * a + k] -= 4.775 * gram[i * a + k];
        const factor = 2.0315 * gram[i * a + k];
        for (let j = 0; j < a; j++) polynomial[i * a + j] += factor * gram[k * a + j];
      }
    }
    const next = x.map((value) => 3.4445 * value);
    for (let i = 0; i < a; i++) {
      for (let k = 0; k < a; k++) {
        const factor = polynomial[i * a + k];
        for (let j = 0; j < b; j++) next[i * b + j] += factor * x[k * b + j];
      }
    }
    x = next;
  }
  return matrix.map((_, i) => {
    const row = Math.floor(i / columns), column = i % columns;
    return x[isTall ? column * b + row : row * b + column] / weight(column);
  });
}

const SCHEDULE = "constant, cosine(floor), linear(floor) or step(every, factor), after warmup(steps) if wanted";

/**
 * The factor of the base rate in update number `step` (from 0) of `steps`; the syntax is that of dynamics/schedules.py.
 * @param {string} schedule
 * @returns {(step: number, steps: number) => number}
 */
export function scheduleOf(schedule) {
  const parts = /^(?:warmup\((\d+)\) )?(constant|cosine|linear|step)(?:\(([^()]*)\))?$/.exec(schedule);
  const numbers = parts?.[3] ? parts[3].split(",").map((text) => (text.trim() === "" ? NaN : Number(text))) : [];
  const kind = parts?.[2], warmup = Number(parts?.[1] ?? 0), wrong = new InputError("schedule", schedule, SCHEDULE);
  if (numbers.some(Number.isNaN)) throw wrong;
  const isCount = (/** @type {number} */ x) => Number.isInteger(x) && x >= 1, isFloor = (/** @type {number} */ x) => x >= 0 && x <= 1;
  /** @type {(n: number, total: number) => number} */
  let factor = () => 1;
  let end = 0;
  if (kind === "step") {
    const [every = NaN, drop = NaN, floor = 0] = numbers;
    if (numbers.length > 3 || !isCount(every) || !(drop > 0 && drop < Infinity) || !isFloor(floor)) throw wrong;
    factor = (n) => Math.max(floor, drop ** Math.floor(n / every));
  } else {
    const [floor = 0, last = warmup + 1] = numbers;
    if (!kind || numbers.length > (kind === "constant" ? 0 : 2) || !isFloor(floor) || !isCount(last) || last <= warmup) throw wrong;
    if (numbers.length === 2) end = last;
    const fall = kind === "cosine" ? (/** @type {number} */ t, /** @type {number} */ total) => 0.5 * (1 + Math.cos(Math.PI * t / total)) : (/** @type {number} */ t, /** @type {number} */ total) => 1 - t / total;
    if (kind !== "constant") factor = (n, total) => floor + (1 - floor) * fall(Math.min(n, total), total);
  }
  return (step, steps) => (step < warmup ? (step + 1) / warmup : factor(step - warmup, Math.max((end || steps) - warmup, 1)));
}

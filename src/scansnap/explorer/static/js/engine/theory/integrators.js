// Adaptive Dormand–Prince 8(5,3) steps for autonomous systems: the twin of dynamics/flow/integrators.py. A state within
// a step is the state at its start plus a weighted sum of the stages' rates.

import { A, B, D, E3, E5 } from "./coefficients.js";

const END = 12; // the rates at the end of a step, after its 12 stages; they are stage 0 of the next step
const INSIDE = 16; // after 3 more stages for the interpolant: the rates at a point of the interpolant, to judge it
const PROBE = 0.7; // where in the step: about where the defect of this interpolant is largest
const ERROR_PER_DEFECT = 0.15;

/**
 * A vector field with its initial state.
 * @typedef {object} System
 * @property {Float64Array} start
 * @property {(x: Float64Array, rate: Float64Array) => void} rates fills `rate` at x
 * @property {number[]} rows ends of the rows of the state that share an error tolerance; what lies behind them has none
 */

/** The state cannot be followed further than `t`. */
export class NonFinite extends Error {
  /** @param {number} t */
  constructor(t) {
    super(`flow: not finite, or too steep for its rtol, at t = ${t}`);
    this.t = t;
  }
}

/** Steps from t = 0 to `end`, one at a time. */
export class Integrator {
  /**
   * @param {System} system
   * @param {number} end
   * @param {number} firstStep
   * @param {number} rtol
   * @param {number} atol
   */
  constructor(system, end, firstStep, rtol, atol) {
    const real = () => new Float64Array(system.start.length);
    this.system = system;
    this.last = end;
    this.rtol = rtol;
    this.atol = atol;
    this.x = system.start.slice(); // at the start of the step
    this.k = Array.from({ length: INSIDE + 1 }, real); // rates of the stages
    this.point = real();
    this.sums = [real(), real(), real()];
    this.t = 0;
    this.h = firstStep;
    this.next = firstStep;
    this.end = 0; // of the step
    this.system.rates(this.x, this.k[0]);
  }

  /** Computes the next step, from `t` to `end`, which `at` reads; false where there is none. */
  step() {
    if (this.end > this.t) {
      this.x.set(this.combine(scaled(B, this.h), this.point, this.x));
      [this.k[0], this.k[END]] = [this.k[END], this.k[0]];
      this.t = this.end;
      this.h = this.next;
    }
    if (this.t >= this.last) return false;
    for (let most = 10; ; most = 1) { // no growth right after a rejection
      this.end = this.t + 1.01 * this.h >= this.last ? this.last : this.t + this.h; // no sliver of a step at the end
      const h = this.h = this.end - this.t;
      if (h <= 1e-14 * this.t || h < 1e-300) throw new NonFinite(this.t);
      for (let i = 1; i < END; i++) this.stage(i, A[i]);
      const [e5, e3] = this.errors([E5, E3]);
      let error = e5 === 0 ? 0 : e5 * e5 / Math.sqrt(e5 * e5 + 0.01 * e3 * e3);
      if (error <= 1) {
        this.stage(END, B);
        for (let i = END + 1; i < INSIDE; i++) this.stage(i, A[i]);
        const [value, slope] = interpolant(PROBE);
        this.stage(INSIDE, value);
        const [defect] = this.errors([[...slope, -1]]);
        error = Math.max(error, ERROR_PER_DEFECT * defect); // NaN stays NaN
      }
      if (error <= 1) {
        this.next = h * Math.min(most, error > 0 ? 0.9 * error ** -0.125 : most);
        return true;
      }
      this.h *= Number.isFinite(error) ? Math.max(0.2, 0.9 * error ** -0.125) : 0.2;
    }
  }

  /**
   * The state at a time within the step.
   * @param {number} time
   * @param {Float64Array} out
   */
  at(time, out) {
    return this.end > this.t ? this.combine(scaled(interpolant((time - this.t) / this.h)[0], this.h), out, this.x) : (out.set(this.x), out);
  }

  /**
   * @param {number} i
   * @param {number[]} weights
   */
  stage(i, weights) {
    this.system.rates(this.combine(scaled(weights, this.h), this.point, this.x), this.k[i]);
  }

  /**
   * out = from (or 0) + Σ_j w_j k_j.
   * @param {number[]} w
   * @param {Float64Array} out
   * @param {Float64Array | null} from
   */
  combine(w, out, from = null) {
    if (from) out.set(from);
    else out.fill(0);
    for (let j = 0; j < w.length; j++) {
      const a = w[j], k = this.k[j];
      if (a !== 0) for (let i = 0; i < out.length; i++) out[i] += a * k[i];
    }
    return out;
  }

  /**
   * Maximum norm of h Σ_j w_j k_j of each w, in units of atol + rtol · (largest entry of the row, of x or of the step).
   * @param {number[][]} each
   */
  errors(each) {
    const { x, sums, system: { rows } } = this, worst = each.map(() => 0);
    this.combine(scaled(B, this.h), sums[0]);
    each.forEach((w, e) => this.combine(scaled(w, this.h), sums[e + 1]));
    let from = 0;
    for (const to of rows) {
      let size = 0;
      for (let i = from; i < to; i++) size = Math.max(size, Math.abs(x[i]), Math.abs(sums[0][i]));
      const scale = this.atol + this.rtol * size;
      for (let e = 0; e < each.length; e++) {
        for (let i = from; i < to; i++) {
          const error = Math.abs(sums[e + 1][i]) / scale;
          if (!(error <= worst[e])) worst[e] = error; // NaN is taken
        }
      }
      from = to;
    }
    return worst;
  }
}

/**
 * @param {number[]} w
 * @param {number} h
 */
const scaled = (w, h) => w.map((a) => a * h);

/**
 * Weights (in units of h) of the interpolated state at t + θh, and of its slope in θ.
 * @param {number} theta
 */
function interpolant(theta) {
  const zeros = () => Array(INSIDE).fill(0), start = zeros(), stop = zeros(), total = zeros();
  start[0] = stop[END] = 1;
  B.forEach((b, j) => { total[j] = b; });
  const parts = [...[...D].reverse(), total.map((b, j) => 2 * b - start[j] - stop[j]), total.map((b, j) => start[j] - b), total];
  let value = zeros(), slope = zeros();
  parts.forEach((part, i) => {
    const factor = i % 2 ? 1 - theta : theta, sign = i % 2 ? -1 : 1;
    slope = slope.map((s, j) => s * factor + sign * (value[j] + part[j]));
    value = value.map((a, j) => (a + part[j]) * factor);
  });
  return [value, slope];
}

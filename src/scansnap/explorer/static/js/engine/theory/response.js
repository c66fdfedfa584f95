// How attention answers to a decoder that learns: the linear response of the flow around frozen attention, to first order
// in δz. The twin of dynamics/response, which derives the equations; here the tables are whole. With f_n fixed,
//
//     Y = Σ f_n a_nᵀ, ȧ_n = η_Y p_n r_n       r_n = e_n − α_n
//     δf_n = f_n ∘ (δz_m − ⟨f_n², δz_m⟩)      δl_n = Yᵀ δf_n + Dᵀ f_n      δr_n = −(diag α_n − α_n α_nᵀ) δl_n
//     Ẏ = η_Y Σ p_n f_n r_nᵀ                  Ḋ = η_Y Σ p_n (f_n δr_nᵀ + δf_n r_nᵀ)         D: the change of Y
//
// and, with x_n = Y r_n − f_n (a_n·r_n), what attention feels of the other classes, and P = I − f_n f_nᵀ,
//
//     drive  = f_n ∘ P x_n
//     memory = f_n ∘ P [D r_n + Y δr_n − δf_n (a_n·r_n)] + δf_n ∘ P x_n − f_n ∘ (δf_n (f_n·x_n) + f_n (δf_n·x_n))
//
// The clock is θ = ln(1 + t/τ), τ = 1/(η_Y max p_n), in which all is smooth. Beside the state stands the integral of the
// flow's own rate at the response's state less the response's: what first order leaves out.
//
//     K classes · S slots of a class · L rows and J columns of Y · Q queries · M tokens

import { Integrator } from "./integrators.js";
import { range } from "../numeric.js";

/** @import { Layout } from "../model/layout.js" */
/** @import { System } from "./integrators.js" */

/**
 * @typedef {object} ResponsePoint
 * @property {number} t
 * @property {Float64Array} z (Q, M)
 * @property {Float64Array} drive (Q, M)
 * @property {Float64Array} z_error (Q, M)
 * @property {Float64Array} attention (K, S)
 * @property {number} error the largest entry of z_error over that of z, of the worst query
 * @property {boolean} isAsked whether t is one of the times asked for, or a point of the path between them
 */

const BETWEEN = [0.25, 0.5, 0.75]; // of a step: where its path is read, too

/** The vector field; its state is z (Q, M), a (K, J), Y and D (L, J), then drive and z_error (Q, M), and θ. */
class ResponseField {
  /**
   * @param {Layout} layout
   * @param {number} eta_y
   * @param {number} eta_z
   */
  constructor(layout, eta_y, eta_z) {
    const { K, S, L, J, Q, M, slotP, pClass } = layout, real = (/** @type {number} */ n) => new Float64Array(n);
    this.layout = layout;
    this.eta_y = eta_y;
    this.eta_z = eta_z;
    this.tau = 1 / (eta_y * Math.max(...pClass));
    const cells = Q * M, table = L * J, y = cells + K * J, drive = y + 2 * table;
    this.at = { z: 0, a: cells, y, d: y + table, drive, error: drive + cells, theta: drive + 2 * cells };
    this.f = real(K * S); // frozen
    for (let n = 0; n < K; n++) {
      let squares = 0;
      for (let s = 0; s < S; s++) squares += slotP[n * S + s] ** 2;
      for (let s = 0; s < S; s++) this.f[n * S + s] = slotP[n * S + s] / Math.sqrt(squares);
    }
    this.df = real(S);
    this.now = real(S); // f of the present z
    this.r = real(J);
    this.alpha = real(J);
    this.dl = real(J);
    this.dr = real(J);
    this.yr = real(S); // Y r
    this.yChange = real(S); // D r
    this.ydr = real(S); // Y δr
    this.others = real(S); // x
    this.felt = real(S);
    this.g = real(S);
    this.gChange = real(S);
    this.rTrue = real(J);
  }

  /** @returns {System} */
  system() {
    const { K, J, Q, M } = this.layout, { a, theta } = this.at;
    // of the state, z by query and each a_n answer for the step; the rest follows from them
    return {
      start: new Float64Array(theta + 1),
      rows: [...range(Q, 1).map((row) => row * M), ...range(K, 1).map((row) => a + row * J)],
      rates: (x, rate) => this.rates(x, rate),
    };
  }

  /**
   * f of any z, nothing expanded.
   * @param {number} n
   * @param {Float64Array} x
   * @param {Float64Array} out (S,)
   */
  attend(n, x, out) {
    const { S, M, slots, slotP, classQuery } = this.layout, N = this.layout.nSlots[n], row = classQuery[n] * M;
    let most = -Infinity, squares = 0;
    for (let s = 0; s < N; s++) most = Math.max(most, x[row + slots[n * S + s]]);
    for (let s = 0; s < N; s++) squares += (out[s] = slotP[n * S + s] * Math.exp(x[row + slots[n * S + s]] - most)) ** 2;
    for (let s = 0; s < N; s++) out[s] /= Math.sqrt(squares);
  }

  /**
   * @param {Float64Array} x
   * @param {Float64Array} rate
   */
  rates(x, rate) {
    const { layout, at, eta_y, eta_z, f, df, now, r, dl, dr, yr, yChange, ydr, others, felt, g, gChange } = this, { K, S, J, M, slots, slotRow, nSlots, classQuery, pClass, multiplicity } = layout;
    const pace = this.tau * Math.exp(x[at.theta]); // dt/dθ
    rate.fill(0);
    rate[at.theta] = 1;
    for (let n = 0; n < K; n++) {
      const N = nSlots[n], row = classQuery[n] * M, fn = f.subarray(n * S, n * S + S), p = pace * pClass[n];
      let mean = 0;
      for (let s = 0; s < N; s++) mean += fn[s] * fn[s] * x[row + slots[n * S + s]];
      for (let s = 0; s < N; s++) df[s] = fn[s] * (x[row + slots[n * S + s]] - mean);

      this.logits(n, fn, x, at.y, dl);
      this.error(n, dl, r);
      dl.fill(0);
      this.addLogits(n, df, x, at.y, dl);
      this.addLogits(n, fn, x, at.d, dl);
      this.errorChange(n, r, dl, dr);
      let own = 0; // a_n·r_n
      for (let j = 0; j < J; j++) own += x[at.a + n * J + j] * r[j];
      this.pull(n, r, x, at.y, yr);
      this.pull(n, r, x, at.d, yChange);
      this.pull(n, dr, x, at.y, ydr);

      let along = 0, feltAlong = 0, turned = 0;
      for (let s = 0; s < N; s++) {
        others[s] = yr[s] - fn[s] * own;
        felt[s] = yChange[s] + ydr[s] - df[s] * own;
        along += fn[s] * others[s];
        feltAlong += fn[s] * felt[s];
        turned += df[s] * others[s];
      }
      this.attend(n, x, now);
      this.logits(n, now, x, at.y, dl);
      this.addLogits(n, now, x, at.d, dl);
      this.error(n, dl, this.rTrue);
      this.pull(n, this.rTrue, x, at.y, g);
      this.pull(n, this.rTrue, x, at.d, gChange);
      let trueAlong = 0;
      for (let s = 0; s < N; s++) trueAlong += now[s] * (g[s] += gChange[s]);
      for (let s = 0; s < N; s++) {
        const cell = row + slots[n * S + s], projected = others[s] - fn[s] * along, drive = fn[s] * projected;
        const memory = fn[s] * (felt[s] - fn[s] * feltAlong) + df[s] * projected - fn[s] * (df[s] * along + fn[s] * turned);
        rate[at.drive + cell] += eta_z * p * drive;
        rate[at.z + cell] += eta_z * p * (drive + memory);
        rate[at.error + cell] += eta_z * p * (now[s] * (g[s] - now[s] * trueAlong) - drive - memory);
      }
      for (let j = 0; j < J; j++) {
        const a = eta_y * p * r[j] / multiplicity[j], da = eta_y * p * dr[j] / multiplicity[j];
        rate[at.a + n * J + j] = a;
        for (let s = 0; s < N; s++) {
          const place = slotRow[n * S + s] * J + j;
          rate[at.y + place] += fn[s] * a;
          rate[at.d + place] += fn[s] * da + df[s] * a;
        }
      }
    }
  }

  /**
   * out = Yᵀ f of a table.
   * @param {number} n
   * @param {Float64Array} f
   * @param {Float64Array} x
   * @param {number} table where it begins in x
   * @param {Float64Array} out
   */
  logits(n, f, x, table, out) {
    out.fill(0);
    this.addLogits(n, f, x, table, out);
  }

  /**
   * @param {number} n
   * @param {Float64Array} f
   * @param {Float64Array} x
   * @param {number} table
   * @param {Float64Array} out
   */
  addLogits(n, f, x, table, out) {
    const { S, J, slotRow, nSlots } = this.layout;
    for (let s = 0; s < nSlots[n]; s++) for (let j = 0, row = table + slotRow[n * S + s] * J; j < J; j++) out[j] += f[s] * x[row + j];
  }

  /**
   * out = Y r by slot.
   * @param {number} n
   * @param {Float64Array} r
   * @param {Float64Array} x
   * @param {number} table
   * @param {Float64Array} out
   */
  pull(n, r, x, table, out) {
    const { S, J, slotRow, nSlots } = this.layout;
    for (let s = 0; s < nSlots[n]; s++) {
      let dot = 0;
      for (let j = 0, row = table + slotRow[n * S + s] * J; j < J; j++) dot += x[row + j] * r[j];
      out[s] = dot;
    }
  }

  /**
   * r = e_n − α_n, each column summed over the outputs that it stands for.
   * @param {number} n
   * @param {Float64Array} logits
   * @param {Float64Array} r
   */
  error(n, logits, r) {
    const { J, target, multiplicity } = this.layout, right = target[n];
    let most = -Infinity, others = 0;
    for (let j = 0; j < J; j++) most = Math.max(most, logits[j]);
    for (let j = 0; j < J; j++) {
      r[j] = multiplicity[j] * Math.exp(logits[j] - most);
      if (j !== right) others += r[j];
    }
    const all = others + r[right];
    for (let j = 0; j < J; j++) r[j] /= -all;
    r[right] = others / all;
  }

  /**
   * δr_n = −(diag α_n − α_n α_nᵀ) δl_n. With α_n = e_n − r_n no digit is lost where α_n is nearly 1.
   * @param {number} n
   * @param {Float64Array} r
   * @param {Float64Array} dl
   * @param {Float64Array} dr
   */
  errorChange(n, r, dl, dr) {
    const { J, target } = this.layout, right = target[n];
    let along = 0; // r·δl
    for (let j = 0; j < J; j++) along += r[j] * dl[j];
    const mean = dl[right] - along; // α·δl
    for (let j = 0; j < J; j++) dr[j] = r[j] * (dl[j] - mean); // −α_j = r_j but for the right output
    dr[right] = (r[right] - 1) * along; // −α_n (δl_n − α·δl)
  }
}

/**
 * The response at ascending times, and at points of its path between them; yields after every step.
 * @param {Layout} layout of the paper's model from Y = 0
 * @param {{eta_y: number, eta_z: number, times: number[], rtol?: number, atol?: number, stop?: number}} options
 *   stop: the response ends after the step in which its error exceeds this
 * @param {(point: ResponsePoint) => void} read
 * @returns {Generator<number, void>} the time reached
 */
export function* followResponse(layout, { eta_y, eta_z, times, rtol = 1e-6, atol = 1e-12, stop = Infinity }, read) {
  const field = new ResponseField(layout, eta_y, eta_z), { K, S, Q, M } = layout, { a, drive, error, theta: end } = field.at;
  const clock = times.map((t) => Math.log1p(t / field.tau)), solver = new Integrator(field.system(), clock[clock.length - 1], 0.1, rtol, atol);
  const state = new Float64Array(end + 1);
  const errorOf = (/** @type {Float64Array} */ x) => Math.max(...range(Q).map((q) => {
    const largest = (/** @type {number} */ from) => x.subarray(from + q * M, from + (q + 1) * M).reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    return largest(0) > 0 ? largest(error) / largest(0) : 0;
  }));
  const look = (/** @type {number} */ theta, /** @type {number} */ t, /** @type {boolean} */ isAsked) => {
    const x = solver.at(theta, state), attention = new Float64Array(K * S);
    for (let n = 0; n < K; n++) field.attend(n, x, attention.subarray(n * S, n * S + S));
    for (let n = 0; n < K; n++) {
      const own = attention.subarray(n * S, n * S + S), total = own.reduce((all, v) => all + v, 0);
      own.forEach((v, s) => { own[s] = v / total; });
    }
    read({ t, z: x.slice(0, a), drive: x.slice(drive, error), z_error: x.slice(error, end), attention, error: errorOf(x), isAsked });
  };
  let due = 0;
  for (; clock[due] === 0; due++) look(0, times[due], true);
  if (due === 0) look(0, 0, false);
  while (solver.step()) {
    const path = [...BETWEEN.map((share) => solver.t + solver.h * share), solver.end].map((theta) => ({ theta, t: field.tau * Math.expm1(theta), isAsked: false }));
    for (; due < clock.length && clock[due] <= solver.end; due++) path.push({ theta: clock[due], t: times[due], isAsked: true });
    for (const point of path.sort((left, right) => left.theta - right.theta)) look(point.theta, point.t, point.isAsked);
    if (solver.end < clock[clock.length - 1] && errorOf(solver.at(solver.end, state)) > stop) return;
    yield solver.end;
  }
}

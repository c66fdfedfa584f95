// The population flow T → ∞ of the paper's model and its variants from Y = Z = 0: the twin of dynamics/flow. The field is
// the gradient of yz.js with P(·|n) for the counts and p_n for the weights.

import { Integrator } from "./integrators.js";
import { expectedCounts } from "../model/layout.js";
import { range } from "../numeric.js";
import { Passes } from "../model/yz.js";

/** @import { Layout, Model } from "../model/layout.js" */
/** @import { System } from "./integrators.js" */

/**
 * A flow at a time.
 * @typedef {object} FlowPoint
 * @property {number} t
 * @property {Float64Array} y (L, J)
 * @property {Float64Array} z (Q, M)
 * @property {Float64Array} attention (K, S)
 * @property {number} loss
 */

/**
 * The flow at ascending times; `yield`s after every step, so that its caller can do something else.
 * @param {Layout} layout of the model, from Y = 0
 * @param {Model} model with one head
 * @param {{eta_y: number, eta_z: number, times: number[], rtol?: number, atol?: number}} options
 * @param {(point: FlowPoint) => void} read
 * @returns {Generator<number, number>} the time reached; in the end the number of steps
 */
export function* followFlow(layout, model, { eta_y, eta_z, times, rtol = 1e-6, atol = 1e-9 }, read) {
  const { K, L, J, Q, M, pClass } = layout, sizeZ = Q * M, passes = new Passes(layout, model, K);
  const batch = { cls: Int32Array.from(range(K)), counts: expectedCounts(layout, Infinity, false), weight: Float64Array.from(pClass) };
  /** @type {System} */
  const system = {
    start: new Float64Array(sizeZ + L * J),
    rows: [...range(Q, 1).map((row) => row * M), ...range(L, 1).map((row) => sizeZ + row * J)],
    rates(x, rate) {
      const dz = rate.subarray(0, sizeZ), dy = rate.subarray(sizeZ);
      rate.fill(0);
      passes.gradients(x.subarray(sizeZ), x.subarray(0, sizeZ), batch, dy, dz);
      for (let i = 0; i < dz.length; i++) dz[i] *= eta_z;
      for (let i = 0; i < dy.length; i++) dy[i] *= eta_y;
    },
  };
  const flow = new Integrator(system, times[times.length - 1], 0.01 / ((eta_y || eta_z) * Math.max(...pClass)), rtol, atol);
  let due = 0, steps = 0;
  for (;;) {
    for (; due < times.length && times[due] <= flow.end; due++) {
      const state = flow.at(times[due], new Float64Array(system.start.length)), z = state.subarray(0, sizeZ), y = state.subarray(sizeZ);
      const { attention, loss } = passes.look(y, z, batch);
      read({ t: times[due], y, z, attention, loss: loss.reduce((total, own, n) => total + own * pClass[n], 0) });
    }
    if (!flow.step()) return steps;
    steps++;
    yield flow.end;
  }
}

// Initial Y and Z: the twin of `start` and `initial` in dynamics/state.py. The seed alone decides the values.

import { InputError } from "../errors.js";
import { PURPOSE, draw, keyOf, uniform } from "./philox.js";
import { range } from "../numeric.js";

/** @import { Layout } from "../model/layout.js" */

const INIT = "zero, uniform or normal(std) with a std > 0";

/**
 * The kind of initial values and their scale: half-width of the uniform, std of the normal.
 * @param {unknown} init
 * @param {number} M
 * @returns {[string, number]}
 */
export function initScale(init, M) {
  if (init === "zero") return ["zero", 0];
  if (init === "uniform") return ["uniform", 1 / Math.sqrt(M)];
  const inside = typeof init === "string" ? /^normal\(([^()]+)\)$/.exec(init) : null, std = inside && inside[1].trim() ? Number(inside[1]) : NaN;
  if (!(std > 0 && std < Infinity)) throw new InputError("init", init, INIT);
  return ["normal", std];
}

/**
 * Y (L, J) and Z (H, Q, M) before the first update.
 * @param {Layout} layout
 * @param {string} init
 * @param {number} heads
 * @param {number} seed
 */
export function startTables(layout, init, heads, seed) {
  const { M, columns, rows, queries } = layout, scale = initScale(init, M);
  const y = initial(scale, seed, PURPOSE.INIT_Y, [0], rows, columns.map((token) => Math.max(token, 0))); // lumped only from 0
  return { y, z: initial(scale, seed, PURPOSE.INIT_Z, range(heads), queries, range(M)) };
}

/**
 * Values by token id, so that an entry is the same whichever rows and columns there are; (heads, rows, columns).
 * @param {[string, number]} scale
 * @param {number} seed
 * @param {number} purpose
 * @param {number[]} heads
 * @param {number[]} rows
 * @param {number[]} columns
 */
function initial([kind, size], seed, purpose, heads, rows, columns) {
  const out = new Float64Array(heads.length * rows.length * columns.length), [low, high] = keyOf(seed);
  if (kind === "zero") return out;
  let i = 0;
  for (const head of heads) {
    for (const row of rows) {
      for (const column of columns) {
        draw(low, high, purpose, head, row, column);
        const [u, v] = uniform;
        out[i++] = kind === "uniform" ? (2 * u - 1) * size : Math.sqrt(-2 * Math.log1p(-u)) * Math.cos(2 * Math.PI * v) * size; // Box and Muller
      }
    }
  }
  return out;
}

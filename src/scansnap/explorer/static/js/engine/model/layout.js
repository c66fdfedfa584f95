// Compact coordinates: which rows and columns of Y a run needs. The twin of dynamics/engines/layout.py.
//
// Without positions only tokens in some class's context ever enter f, so Y needs those rows alone; from Y(0) = 0 all
// outputs that are never a next token stay identical, so one column with a multiplicity stands for them. Both exact.
//
//     K classes · S slots (tokens that can enter f for a class) · L rows and J columns of Y · Q queries · M tokens

import { range } from "../numeric.js";

/** @import { SequenceClasses } from "../setup/classes.js" */

/**
 * The options of the model that the analysis leaves open.
 * @typedef {object} Model
 * @property {string} norm l2, none or layernorm
 * @property {string} residual none, normed or plain
 * @property {boolean} query_in_keys
 * @property {string} outputs all or next
 * @property {number} heads
 * @property {number | number[] | null} position_bias
 * @property {string} init zero, uniform or normal(std)
 */

/** @typedef {ReturnType<typeof layoutOf>} Layout */

const LANES = 4; // slots are padded to a multiple of this: the products of yz.js take as many at once

/**
 * @param {SequenceClasses} classes
 * @param {Model} model
 * @param {boolean} decays whether weight decay moves even what the data does not touch
 */
export function layoutOf(classes, model, decays = false) {
  const { K, M } = classes, withQuery = model.query_in_keys || model.residual !== "none", isDense = model.norm === "layernorm";
  const members = classes.tokens.map((ids, n) => {
    const tokens = isDense ? range(M) : ids;
    return withQuery ? ascending([...tokens, classes.query[n]]) : tokens;
  });
  const nSlots = Int32Array.from(members, (tokens) => tokens.length), S = Math.ceil(Math.max(...nSlots) / LANES) * LANES;
  const rows = isDense || (decays && model.init !== "zero") ? range(M) : ascending(members.flat()), rowOf = new Map(rows.map((token, row) => [token, row]));
  const slots = new Int32Array(K * S), slotRow = new Int32Array(K * S), slotP = new Float64Array(K * S), slotQuery = new Float64Array(K * S);
  members.forEach((tokens, n) => {
    const p = new Map(classes.tokens[n].map((token, i) => [token, classes.probs[n][i]]));
    slotRow.fill(/** @type {number} */ (rowOf.get(tokens[0])), n * S, (n + 1) * S); // padding points anywhere, with f = 0
    tokens.forEach((token, s) => {
      const at = n * S + s;
      slots[at] = token;
      slotRow[at] = /** @type {number} */ (rowOf.get(token));
      slotP[at] = p.get(token) ?? 0;
      slotQuery[at] = withQuery && token === classes.query[n] ? 1 : 0;
    });
  });
  const classQuery = Int32Array.from(classes.query, (m) => classes.queries.indexOf(m));
  return {
    K, M, S, L: rows.length, Q: classes.queries.length, ...columnsOf(classes, model),
    slots, nSlots, slotRow, slotP, slotQuery, rows, queries: classes.queries, classQuery, pClass: classes.p,
  };
}

/**
 * Output tokens of the columns (−1: the lumped ones), how many outputs each stands for, and that of each class.
 * @param {SequenceClasses} classes
 * @param {Model} model
 */
function columnsOf({ M, next }, { outputs, init }) {
  if (outputs === "all" && init !== "zero") return { J: M, columns: range(M), multiplicity: new Float64Array(M).fill(1), target: Int32Array.from(next) };
  const columns = [...new Set(next)], target = Int32Array.from(next, (token) => columns.indexOf(token)), rest = M - columns.length;
  const multiplicity = Float64Array.from(columns, () => 1);
  if (outputs === "next" || rest === 0) return { J: columns.length, columns, multiplicity, target };
  return { J: columns.length + 1, columns: [...columns, -1], multiplicity: Float64Array.from([...multiplicity, rest]), target };
}

/**
 * Counts of the classes themselves rather than of a sample: P(l|n), or (T − 1) P(l|n) and the query; (K, S).
 * @param {Layout} layout
 * @param {number} context
 * @param {boolean} queryInKeys
 */
export function expectedCounts(layout, context, queryInKeys) {
  if (context === Infinity) return layout.slotP.slice();
  return layout.slotP.map((p, i) => (context - 1) * p + (queryInKeys ? layout.slotQuery[i] : 0));
}

/**
 * The queries' tokens: for each query those that its classes attend to, ascending.
 * @param {Layout} layout
 */
export function queryTokens({ K, S, Q, slots, nSlots, classQuery }) {
  return range(Q).map((q) => ascending(range(K).filter((n) => classQuery[n] === q).flatMap((n) => [...slots.subarray(n * S, n * S + nSlots[n])])));
}

/** @param {number[]} values */
const ascending = (values) => [...new Set(values)].sort((a, b) => a - b);

// What the theory says of a set-up: whether it applies, times, assumptions, closed-form curves, and the flow or response
// beside the run. The twin of explorer/pages/predict.py, theory/applicability.py and claims/assumptions.py.

import { gamma, growth, tScan, tSnap } from "./closedform.js";
import { InputError } from "../errors.js";
import { followFlow } from "./flow.js";
import { Growth, Measures, timeGrid } from "../model/measures.js";
import { followResponse } from "./response.js";
import { queryTokens } from "../model/layout.js";
import { range, sum } from "../numeric.js";

/** @import { SequenceClasses } from "../setup/classes.js" */
/** @import { Blueprint } from "../setup/blueprint.js" */
/** @import { Declared } from "../setup/settings.js" */

const MUCH = 10; // "≫"
const LAST = MUCH; // in t₀: the end of what is judged
const RATE_IS_ZERO = "a rate is 0";
const TRUST = 0.1; // largest share that the response may leave out

/**
 * Why the theory does not speak of a run; empty where it does. A rate of 0 comes last: it leaves the flow a meaning.
 * @param {Declared} declared
 * @param {Blueprint} blueprint
 * @param {number} failedStep
 */
export function whyNot(declared, { settings, rates }, failedStep = -1) {
  const { model, optimizer_y, optimizer_z } = settings, rules = [optimizer_y, optimizer_z];
  /** @type {[string, boolean][]} */
  const reasons = [
    ["the norm is not l2", model.norm !== "l2"],
    ["there is a residual connection", model.residual !== "none"],
    ["there are several heads", model.heads !== 1],
    ["there is a position bias", model.position_bias !== null],
    ["the softmax is over the next tokens only", model.outputs !== "all"],
    ["the query is among the keys", model.query_in_keys],
    ["the optimiser is not SGD", rules.some(({ name }) => name !== "sgd")],
    ["gradients are clipped", rules.some(({ clip }) => clip !== null)],
    ["the rates follow a schedule", rules.some(({ schedule }) => schedule !== "constant")],
    ["there is weight decay", Math.max(rates.weight_decay_y, rates.weight_decay_z) > 0],
    ["the run does not start from Y = Z = 0", model.init !== "zero"],
    [`the run became non-finite at step ${failedStep}`, failedStep >= 0],
    [RATE_IS_ZERO, Math.min(rates.eta_y, rates.eta_z) < declared.smallest_rate],
  ];
  return reasons.find(([, applies]) => applies)?.[0] ?? "";
}

/**
 * η_Y and η_Z with momentum counted in, and the sizes.
 * @param {Blueprint} blueprint
 */
function sizesOf({ rates, classes }) {
  const boost = 1 / (1 - rates.momentum);
  return { eta_y: rates.eta_y * boost, eta_z: rates.eta_z * boost, K: classes.K, M: classes.M };
}

/**
 * @param {Declared} declared
 * @param {Blueprint} blueprint
 */
export function theoryOf(declared, blueprint) {
  const { classes, settings } = blueprint, sizes = sizesOf(blueprint), { eta_y, eta_z } = sizes, why = whyNot(declared, blueprint);
  const isTimed = eta_y >= declared.smallest_rate && classes.M >= 2, isJudged = isTimed && eta_z >= declared.smallest_rate;
  const t = settings.batch_size === null ? null : Math.min(settings.steps, LAST * tSnap(sizes));
  return {
    applies: why === "", why, eta_y, eta_z, ratio: eta_z >= declared.smallest_rate ? eta_y / eta_z : null,
    t_scan: isTimed ? tScan(sizes) : null, t_snap: isTimed ? tSnap(sizes) : null, c0: c0Of(classes),
    clock: "The theory's t counts SGD steps with one sequence each; a step on a batch's mean gradient moves as far, so t = step. Momentum μ acts as both rates divided by 1 − μ.",
    assumptions: isJudged ? checkAssumptions(declared, classes, { ...sizes, context: settings.context, t }) : [],
  };
}

/**
 * FᵀF, (K, K) at Z = 0.
 * @param {SequenceClasses} classes
 */
export function overlaps({ K, tokens, probs }) {
  const f = tokens.map((ids, n) => {
    const size = Math.sqrt(sum(probs[n].map((p) => p * p)));
    return new Map(ids.map((l, i) => [l, probs[n][i] / size]));
  });
  return range(K).map((a) => range(K).map((b) => (a === b ? 1 : [...f[a]].reduce((total, [l, x]) => total + x * (f[b].get(l) ?? 0), 0))));
}

/**
 * C₀ from the overlaps: 1/C₀ = mean of Σ_{n'≠n} (f_nᵀf_n')²; null where classes do not overlap.
 * @param {SequenceClasses} classes
 */
export function c0Of(classes) {
  const inverse = sum(overlaps(classes).map((row, a) => sum(row.map((x, b) => (a === b ? 0 : x * x))))) / classes.K;
  return inverse > 1e-12 ? 1 / inverse : null;
}

/**
 * Every assumption of Theorems 1–4 that depends on the setting, at Z = 0.
 * @param {Declared} declared
 * @param {SequenceClasses} classes
 * @param {{eta_y: number, eta_z: number, context: number, t: number | null}} setting
 */
export function checkAssumptions(declared, classes, { eta_y, eta_z, context, t }) {
  const { K, M, p, probs } = classes, spread = Math.max(0, ...probs.map((row) => 1 / sum(row.map((x) => x * x)) - 1));
  const sampled = Math.sqrt(spread / (context - 1)), lowest = MUCH * M ** -0.99, E = overlaps(classes).map((row, a) => row.map((x, b) => (a === b ? 0 : x)));
  const eigenvalues = symmetricEigenvalues(E).map(Math.abs), largest = Math.max(...eigenvalues), smallest = Math.min(...eigenvalues), least = 6 / Math.sqrt(M);
  const alone = Math.min(...E.map((row) => Math.max(...row))), draws = Math.max(K * Math.log(K), 1);
  const uneven = Math.max(...p.map((own) => Math.abs(K * own - 1)));
  /** @type {Record<string, [number, number, boolean]>} value, threshold, whether it is met */
  const values = {
    "long sequences": [sampled, 1 / MUCH, sampled <= 1 / MUCH],
    "fast decoder": [eta_y / eta_z, MUCH, eta_y / eta_z >= MUCH],
    "eta_y not too small": [eta_y, lowest, eta_y >= lowest],
    "eta_y below 1": [eta_y, 1, eta_y < 1],
    "vocabulary larger than classes squared": [M / K ** 2, MUCH, M / K ** 2 >= MUCH],
    "large vocabulary": [M, MUCH * 100, M >= MUCH * 100],
    "weak overlap": [largest, 1 / K, largest < 1 / K],
    "no class alone": [alone, 0, alone > 0],
    "overlap not degenerate": [smallest, least, smallest >= least],
    "uniform classes": [uneven, 1e-6, uneven <= 1e-6],
    ...(t === null ? {} : {
      "many steps": [t / draws, MUCH, t / draws >= MUCH],
      "steps above classes squared": [t / K ** 2, MUCH, t / K ** 2 >= MUCH],
    }),
  };
  return declared.assumptions.filter(({ name }) => name in values).map((own) => {
    const [value, threshold, met] = values[own.name];
    return { ...own, value, threshold, met };
  });
}

/**
 * By Jacobi's rotations, in no order.
 * @param {number[][]} matrix symmetric
 */
export function symmetricEigenvalues(matrix) {
  const a = matrix.map((row) => [...row]), n = a.length;
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0, size = 0;
    a.forEach((row, i) => row.forEach((x, j) => { (i === j) ? size += x * x : off += x * x; }));
    if (off <= 1e-32 * (size + off)) break;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (a[p][q] === 0) continue;
        const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]), tangent = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1)), c = 1 / Math.sqrt(tangent * tangent + 1), s = tangent * c;
        for (let k = 0; k < n; k++) [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
        for (let k = 0; k < n; k++) [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
      }
    }
  }
  return a.map((row, i) => row[i]);
}

/**
 * The closed forms on a grid of steps from 0 to `last`, dense at the start.
 * @param {Declared} declared
 * @param {Blueprint} blueprint
 * @param {{last: number, points?: number, c0?: number | null}} asked
 */
export function curvesOf(declared, blueprint, { last, points = 200, c0 = null }) {
  const { classes } = blueprint, sizes = sizesOf(blueprint), t = timeGrid(last, points), constant = c0 ?? c0Of(classes);
  if (sizes.eta_y < declared.smallest_rate) throw new InputError("eta_y", sizes.eta_y, "a float > 0 for the closed forms");
  if (classes.M < 2) throw new InputError("vocab_size", classes.M, "at least 2 tokens for the closed forms");
  const isMoving = constant !== null && sizes.eta_z >= declared.smallest_rate;
  const rows = range(classes.K).map((n) => {
    const p_query = Math.min(1, sum([...classes.p].filter((_, other) => classes.query[other] === classes.query[n])));
    return t.map((time) => (isMoving ? growth(time, { ...sizes, c0: /** @type {number} */ (constant), p_class: classes.p[n], p_query }) : 0));
  });
  const shares = range(classes.K).map((n) => {
    const top = classes.mostFrequent(n);
    return top === null ? NaN : classes.probs[n][classes.tokens[n].indexOf(top)] / Math.sqrt(sum(classes.probs[n].map((p) => p * p)));
  });
  return {
    t, growth: rows, chi_lower: rows.map((row, n) => row.map((b) => 2 * shares[n] ** 2 * b)), chi_upper: rows.map((row, n) => row.map((b) => (Number.isNaN(shares[n]) ? NaN : 2 * b))),
    gamma: t.map((time) => gamma(time, sizes)), t_scan: tScan(sizes), t_snap: tSnap(sizes), c0: constant,
  };
}

/**
 * The T → ∞ flow at the effective rates, or by "response" what attention does to first order as far as that is trusted, in
 * the layout of the frames. Yields after every step.
 * @param {Declared} declared
 * @param {Blueprint} blueprint
 * @param {{last: number, points?: number, by?: "flow" | "response"}} asked
 */
export function* overlayOf(declared, blueprint, { last, points = 200, by = "flow" }) {
  const { classes, layout, settings } = blueprint, { eta_y, eta_z } = sizesOf(blueprint), why = whyNot(declared, blueprint), measures = new Measures(classes, layout), { K, S, M, nSlots } = layout;
  if (why && why !== RATE_IS_ZERO) throw new InputError("flow", why, "the paper's model from Y = Z = 0");
  if (eta_y < declared.smallest_rate) throw new InputError("eta_y", eta_y, "a float > 0 for the flow");
  const times = timeGrid(last, points), tokens = queryTokens(layout), zero = new Float64Array(layout.Q * M);
  const rows = (/** @type {number[]} */ lengths) => lengths.map((n) => range(n).map(() => /** @type {number[]} */ ([])));
  const out = {
    t: /** @type {number[]} */ ([]), loss: /** @type {number[]} */ ([]), entropy: rows([K])[0], log_chi: rows([K])[0], growth: rows([K])[0],
    attention: rows([...nSlots]), z: rows(tokens.map((own) => own.length)), trusted_until: /** @type {number | null} */ (null),
  };
  /** @type {Growth | null} */
  let path = null;
  /** @type {number[]} */
  let dominant = [];
  const read = (/** @type {number} */ t, /** @type {Float64Array} */ z, /** @type {Float64Array} */ attention, /** @type {number} */ loss, isAsked = true) => {
    const here = measures.growthPoint(z, attention);
    if (path === null) {
      path = new Growth(here);
      dominant = measures.dominant(attention);
    } else path.commit(here);
    if (!isAsked) return;
    out.t.push(t);
    out.loss.push(loss);
    path.value(here).forEach((b, n) => out.growth[n].push(b));
    measures.entropy(attention).forEach((entropy, n) => out.entropy[n].push(entropy));
    measures.logChi(z, zero, dominant).forEach((chi, n) => out.log_chi[n].push(chi));
    out.attention.forEach((own, n) => own.forEach((series, s) => series.push(attention[n * S + s])));
    out.z.forEach((own, q) => own.forEach((series, i) => series.push(z[q * M + tokens[q][i]])));
  };
  if (by === "flow") yield* followFlow(layout, settings.model, { eta_y, eta_z, times }, (point) => read(point.t, point.z, point.attention, point.loss));
  else {
    out.trusted_until = Infinity;
    yield* followResponse(layout, { eta_y, eta_z, times, stop: 1 }, (point) => {
      if (point.isAsked && point.error > TRUST) out.trusted_until = Math.min(out.trusted_until ?? Infinity, point.t);
      read(point.t, point.z, point.attention, NaN, point.isAsked && point.t <= (out.trusted_until ?? Infinity));
    });
  }
  return out;
}

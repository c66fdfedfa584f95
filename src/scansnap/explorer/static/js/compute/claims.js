// Verdicts on the run on screen: those shipped for the presets, and what can be checked here for any other run.

import { app } from "../app.js";
import { percent, short, whole } from "../draw/format.js";
import { data } from "./data.js";

/** @import { Film } from "../draw/film.js" */
/** @import { Table } from "../draw/sentence.js" */
/** @import { Claim, ClosedForms, Setup } from "../messages.js" */
/** @typedef {{setup?: Setup, step: number, setting: string, claims: Claim[]}} Verdicts */
/** @typedef {{what: string, is: boolean | null, value: string}} Check  A statement, whether it holds (null: unknown), and the number behind it. */

/** @type {Record<string, Verdicts> | null} */
let shipped = null;

const sorted = (/** @type {any} */ value) => JSON.stringify(value, (_, v) => (v instanceof Object && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort()) : v));

/**
 * The verdicts of the package on a whole run, where its set-up is one of those that were judged; null otherwise.
 * @param {Film} film
 * @returns {Verdicts | null}
 */
export function shippedVerdicts({ run: { setup, steps }, marks }) {
  shipped ??= /** @type {Record<string, Verdicts>} */ (data("verdicts").entries);
  const key = sorted({ ...setup, steps });
  return marks.length ? null : Object.values(shipped).find((entry) => sorted(entry.setup) === key) ?? null;
}

/**
 * Where a claim applies that says nothing of the run on screen: a set-up, or a command where no run on the page will do.
 * @param {string} claim
 * @returns {{where: Setup | null, command: string}}
 */
export function whereApplies(claim) {
  const { textbook, changes, commands } = app.catalogue.applies;
  return claim in commands ? { where: null, command: commands[claim] } : { where: { ...textbook, ...changes[claim] }, command: "" };
}

const ROUNDING = 1e-5; // relative: frames are float32
const MOST = 256; // columns of a decoder that comes as it is
const SHOWN = 0.01; // of the largest logit: signs of smaller ones are noise

/**
 * What the page itself can say of a run, up to frame i: signs, conservation, growth.
 * @param {Film} film
 * @param {number} i
 * @param {ClosedForms | null} curves
 * @param {{start: Table | null, now: Table | null}} tables  of Y at step 0 and at that of frame i
 * @returns {Check[]}
 */
export function liveChecks(film, i, curves, tables) {
  const { layout, classes, theory } = film.run, from = theory.applies;
  const changes = layout.queries.map((_, q) => Array.from(film.z(i, q), (z, j) => z - film.z(0, q)[j]));
  const largest = Math.max(...changes.flat().map(Math.abs), 0);
  const drift = Math.max(...changes.map((own) => Math.abs(own.reduce((sum, v) => sum + v, 0)) / (own.reduce((sum, v) => sum + Math.abs(v), 0) || 1)));
  const signs = classes.classes.flatMap((c, k) => c.tokens.flatMap((token, j) => {
    const q = layout.class_query[k], change = changes[q][layout.query_tokens[q].indexOf(token)];
    return c.local[j] === "distinct" && Math.abs(change) > SHOWN * largest ? [change > 0] : [];
  }));
  const common = layout.queries.map((_, q) => layout.query_tokens[q].reduce((sum, token, j) => sum + (classes.common.includes(token) ? changes[q][j] : 0), 0));
  const up = signs.filter(Boolean).length, down = common.filter((v) => v <= 0).length;
  return [
    ...theory.assumptions.map((a) => ({ what: a.statement, is: a.met, value: `${short(a.value)} against ${short(a.threshold)}` })),
    conserved("Logits of each query: changes sum to 0 (Σ dz = 0)", largest ? drift : null),
    conserved("Decoder, each row: changes sum to 0 over the outputs (Σ dY = 0)", decoderDrift(film, i, tables)),
    { what: "Distinct tokens: logits rise (Theorem 2)", is: signs.length && from ? up === signs.length : null, value: `${whole(up)} of ${whole(signs.length)}` },
    { what: "Common tokens: their logits fall in sum", is: largest && classes.common.length && from ? down === common.length : null, value: `${whole(down)} of ${whole(common.length)} queries` },
    ...growthCheck(film, i, curves),
  ];
}

/**
 * Whether changes cancel.
 * @param {string} what
 * @param {number | null} drift  what is left, as a share of all changes; null: nothing has changed, or it is not known
 * @returns {Check}
 */
const conserved = (what, drift) => ({ what, is: drift === null ? null : drift < ROUNDING, value: drift === null ? "–" : drift < ROUNDING ? "0 up to rounding" : `${percent(drift)} of all changes` });

/**
 * The largest sum of a row's changes of Y, as a share of their sizes; a column stands for all tokens that are never next.
 * @param {Film} film
 * @param {number} i
 * @param {{start: Table | null, now: Table | null}} tables
 */
export function decoderDrift({ run: { setup, classes }, steps }, i, { start, now }) {
  if (!now || now.step !== steps[i] || (setup.init !== "zero" && !start)) return null;
  const [rows, columns] = now.values, outputs = now.values.subarray(2 + rows, 2 + rows + columns), y = now.values.subarray(2 + rows + columns);
  const before = setup.init === "zero" ? null : start?.values.subarray(2 + rows + columns);
  if (columns >= MOST) return null; // a column may stand for several
  let worst = -1;
  for (let row = 0; row < rows; row++) {
    let sum = 0, size = 0;
    outputs.forEach((token, j) => {
      const times = token === -1 ? classes.vocab_size - (columns - 1) : 1, change = y[row * columns + j] - (before?.[row * columns + j] ?? 0);
      sum += times * change;
      size += times * Math.abs(change);
    });
    if (size > 0) worst = Math.max(worst, Math.abs(sum) / size);
  }
  return worst < 0 ? null : worst;
}

/** @type {(film: Film, i: number, curves: ClosedForms | null) => Check[]} */
function growthCheck(film, i, curves) {
  const step = film.steps[i], at = curves ? curves.t.findLastIndex((t) => t <= step) : -1;
  if (!curves || at < 1) return [];
  const ratios = film.run.classes.classes.map((_, k) => film.value("growth", i, k) / Number(curves.growth[k][at])).filter(Number.isFinite);
  if (!ratios.length) return [];
  const low = Math.min(...ratios), high = Math.max(...ratios);
  return [{ what: "Growth B: the closed form of Theorem 4, within 20%", is: low > 0.8 && high < 1.2, value: `measured ${short(low)} to ${short(high)} × the formula` }];
}

/** What judges every claim on a run, in Python; the file is that of Export. */
export const COMMANDS = [
  "scansnap run scansnap-run.toml --out run.zarr --record log:80 --variables attention,z,y,loss",
  "scansnap verify run.zarr",
];

/**
 * One command for a set-up of a preset by plain SGD or gradient descent; empty where it takes a file.
 * @param {Setup} setup
 */
export function verifyCommand(setup) {
  const { preset, ...settings } = setup.classes, usual = Object.fromEntries(app.catalogue.controls.map((c) => [c.name, c.default]));
  const own = ["eta_y", "eta_z", "classes", "steps", "seed", "context", "batch_size", "momentum"];
  const isPlain = Object.entries(setup).every(([k, v]) => own.includes(k) || JSON.stringify(v) === JSON.stringify(usual[k]));
  if (!preset || !isPlain || setup.momentum > 0 || (setup.context !== "inf" && setup.batch_size !== 128)) return "";
  const set = Object.entries(settings).map(([k, v]) => ` --set ${k}=${JSON.stringify(v).replace(/[[\]]/g, "")}`).join("");
  const length = setup.context === "inf" ? "" : ` --finite-T ${setup.context} --t-end ${setup.steps}`;
  return `scansnap verify --preset ${preset}${set} --eta-y ${setup.eta_y} --eta-z ${setup.eta_z}${length}`;
}

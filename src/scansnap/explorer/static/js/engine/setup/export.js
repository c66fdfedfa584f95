// A run to take away: its set-up as TOML and its frames as CSV. The twins of to_toml and csv_lines in explorer.

import { range } from "../numeric.js";
import { tomlLines, tomlValue } from "./toml.js";

/** @import { Blueprint } from "./blueprint.js" */
/** @import { Declared } from "./settings.js" */
/** @import { FrameLayout } from "../model/run.js" */

/**
 * A file that `scansnap run` takes as it is; presets stay presets, everything else is spelled out. The page computes in
 * float64, so the file says so.
 * @param {Declared} declared
 * @param {Blueprint} blueprint
 * @param {string[]} notes
 */
export function toToml(declared, { setup, classes }, notes = []) {
  const heading = ["# A run of the explorer: scansnap run THIS_FILE --out run.zarr", ...notes.map((note) => `# ${note}`), ""].join("\n");
  const run = Object.fromEntries(declared.controls.map(({ name }) => [name, setup[name]]));
  if (run.batch_size === null) run.batch_size = "none";
  run.dtype = "float64";
  return `${heading}${"preset" in setup.classes ? `[classes]\n${tomlLines(setup.classes)}` : classesToml(classes)}\n[run]\n${tomlLines(run)}`;
}

/** @param {Blueprint["classes"]} classes */
function classesToml(classes) {
  const rows = range(classes.K).map((n) => `\n[[classes.class]]\n${tomlLines({ query: classes.query[n], next_token: classes.next[n], p_class: classes.p[n], tokens: classes.tokens[n], p_context: classes.probs[n] })}`);
  return `[classes]\nvocab_size = ${classes.M}\n${classes.words ? `words = ${tomlValue(classes.words)}\n` : ""}${classes.sharedNext ? "shared_next = true\n" : ""}${rows.join("")}`;
}

/**
 * Tidy rows: step, quantity, seq_class, query, token, kind, value, and the token's word where there are words.
 * @param {Blueprint} blueprint
 * @param {FrameLayout} layout
 * @param {ArrayLike<number>} steps
 * @param {ArrayLike<ArrayLike<number>>} frames
 * @param {number} most frames; of more, that many evenly in log step
 */
export function toCsv({ classes }, layout, steps, frames, most = 100) {
  const labels = labelsOf(classes, layout), lines = ["step,quantity,seq_class,query,token,word,kind,value"];
  for (const i of chosenFrames(steps.length, most)) labels.forEach((label, j) => lines.push(`${steps[i]},${label},${Number.isNaN(frames[i][j]) ? "" : frames[i][j]}`));
  return `${lines.join("\n")}\n`;
}

/**
 * @param {number} n
 * @param {number} most
 */
function chosenFrames(n, most) {
  if (n <= most) return range(n);
  return [...new Set([0, ...range(most - 1).map((i) => Math.round((n - 1) ** (i / Math.max(most - 2, 1))))])];
}

/**
 * Quantity, seq_class, query, token, word and kind of each number of a frame.
 * @param {Blueprint["classes"]} classes
 * @param {FrameLayout} layout
 */
function labelsOf(classes, layout) {
  const kinds = classes.tokens.map((ids, n) => new Map(ids.map((l, i) => [l, classes.isDistinct[n][i] ? "distinct" : "common"])));
  const common = new Set(classes.common), owned = new Set(classes.tokens.flat()), word = (/** @type {number} */ l) => quoted(classes.words?.[l] ?? "");
  return [
    "loss,,,,,",
    ...["entropy", "growth", "log_chi"].flatMap((quantity) => range(classes.K).map((n) => `${quantity},${n},${classes.query[n]},,,`)),
    ...layout.tokens.flatMap((tokens, n) => tokens.map((l) => `attention,${n},${classes.query[n]},${l},${word(l)},${kinds[n].get(l) ?? "query"}`)),
    ...layout.query_tokens.flatMap((tokens, q) => tokens.map((l) => `z,,${layout.queries[q]},${l},${word(l)},${common.has(l) ? "common" : owned.has(l) ? "distinct" : "query"}`)),
  ];
}

/** @param {string} text */
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

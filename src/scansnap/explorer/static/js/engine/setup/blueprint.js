// Checks a set-up and turns it into everything a run is made of: the twin of explorer/setup.py.

import { InputError } from "../errors.js";
import { SequenceClasses, distribution } from "./classes.js";
import { layoutOf, queryTokens } from "../model/layout.js";
import { HAS_MOMENTUM, scheduleOf } from "../model/optimizers.js";
import { readPassage } from "./passage.js";
import { synthetic, zipf } from "./presets.js";
import { check, knownKeys } from "./settings.js";
import { initScale } from "../sampling/start.js";
import { range, sum } from "../numeric.js";
import { positionWeights } from "../sampling/tokens.js";
import { parseToml } from "./toml.js";

/** @import { Layout, Model } from "../model/layout.js" */
/** @import { Optimizer } from "../model/optimizers.js" */
/** @import { ClassTable } from "./presets.js" */
/** @import { Declared, SetupInput } from "./settings.js" */
/** @import { Rates, Settings } from "../model/simulation.js" */

/**
 * Everything a run is made of.
 * @typedef {object} Blueprint
 * @property {SetupInput} setup every key filled in, as JSON: ∞ is "inf"
 * @property {SequenceClasses} classes
 * @property {Rates} rates
 * @property {Settings} settings
 * @property {Layout} layout
 * @property {string} note what of a file the page does not show
 */

/**
 * The blueprint of a set-up, or an InputError that names the control.
 * @param {Declared} declared
 * @param {unknown} input
 * @returns {Blueprint}
 */
export function readSetup(declared, input) {
  if (typeof input !== "object" || input === null || Array.isArray(input)) throw new InputError("setup", input, "an object");
  const { classes: form, ...rest } = /** @type {SetupInput} */ (input), names = declared.controls.map(({ name }) => name);
  knownKeys("request", rest, names);
  const { classes, run, note } = readClasses(declared, form);
  knownKeys("classes", run, names);
  /** @type {Record<string, any>} */
  const values = { ...Object.fromEntries(declared.controls.map((control) => [control.name, control.default])), ...run, ...rest };
  for (const control of declared.controls) {
    if (control.name === "optimizer" && typeof values.optimizer === "object" && values.optimizer !== null) continue; // read below
    values[control.name] = check(control, values[control.name]);
  }
  const settings = settingsOf(declared, values);
  if (![settings.optimizer_y, settings.optimizer_z].some(({ name }) => HAS_MOMENTUM.includes(name))) values.momentum = 0;
  const { eta_y, eta_z, seed, momentum, weight_decay } = values, layout = layoutOf(classes, settings.model, weight_decay > 0);
  const setup = { classes: form, ...values, context: values.context === Infinity ? "inf" : values.context };
  const blueprint = { setup, classes, settings, layout, note, rates: { eta_y, eta_z, seed, momentum, weight_decay_y: weight_decay, weight_decay_z: weight_decay } };
  checkLimits(declared, blueprint);
  return blueprint;
}

/**
 * @param {Declared} declared
 * @param {Record<string, any>} values
 * @returns {Settings}
 */
function settingsOf(declared, { steps, batch_size, context, sampling, norm, residual, query_in_keys, outputs, heads, position_bias, init, optimizer }) {
  initScale(init, 1);
  if (batch_size === null && context !== Infinity) throw new InputError("batch_size", null, "an integer when context is finite");
  if (position_bias !== null) {
    if (context === Infinity) throw new InputError("context", context, "a finite number when there is a position_bias");
    const weights = positionWeights(position_bias, context - 1);
    if (!weights.every(Number.isFinite) || !weights.some((w) => w > 1e-30)) throw new InputError("position_bias", position_bias, `a bias that e^bias can hold at context ${context}`);
  }
  const { y = optimizer, z = optimizer, ...others } = typeof optimizer === "object" ? optimizer : {}, isApart = typeof optimizer === "object" && Object.keys(others).length === 0 && Object.keys(optimizer).length > 0;
  return {
    steps, batch_size, context, sampling: position_bias === null ? sampling : "tokens",
    model: { norm, residual, query_in_keys, outputs, heads, position_bias, init },
    optimizer_y: optimizerOf(declared, isApart ? optimizer.y ?? "sgd" : y), optimizer_z: optimizerOf(declared, isApart ? optimizer.z ?? "sgd" : z),
  };
}

/**
 * From a name or a table of settings.
 * @param {Declared} declared
 * @param {unknown} input
 * @returns {Optimizer}
 */
function optimizerOf(declared, input) {
  const table = typeof input === "object" && input !== null ? /** @type {Record<string, any>} */ (input) : { name: input };
  const rule = /** @type {import("./settings.js").Setting} */ (declared.controls.find(({ name }) => name === "optimizer"));
  knownKeys("optimizer", table, ["name", ...declared.optimizer.map(({ name }) => name)]);
  const values = declared.optimizer.map((setting) => [setting.name, check(setting, table[setting.name] ?? setting.default)]);
  const optimizer = /** @type {Optimizer} */ (Object.fromEntries([["name", check(rule, table.name ?? rule.default)], ...values]));
  scheduleOf(optimizer.schedule);
  return optimizer;
}

// --- classes ---------------------------------------------------------------------------------------------------------

/** @typedef {{classes: SequenceClasses, run: Record<string, any>, note: string}} ClassesRead */

/**
 * The classes of a form, and what a run file says besides. A refusal names the preset's setting, or "classes".
 * @param {Declared} declared
 * @param {any} form
 * @returns {ClassesRead}
 */
export function readClasses(declared, form) {
  const names = declared.class_presets.flatMap((preset) => preset.settings.map(({ name }) => name));
  try {
    if (typeof form !== "object" || form === null || ["preset", "toml", "bars", "text"].filter((key) => key in form).length !== 1) throw new InputError("classes", form, "an object with preset, toml, bars or text");
    if ("toml" in form) {
      knownKeys("classes", form, ["toml"]);
      return readToml(declared, form.toml);
    }
    if ("text" in form) {
      knownKeys("classes", form, ["text", "pairs"]);
      return { classes: readPassage(form.text, declared.limits.text_characters).classes(form.pairs ?? null), run: {}, note: "" };
    }
    if ("bars" in form) {
      knownKeys("classes", form, ["bars"]);
      return { classes: classesOfTable(declared, tableOfBars(declared, form.bars)), run: {}, note: "" };
    }
    return { classes: classesOfTable(declared, form), run: {}, note: "" };
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    if (!(form && "preset" in form && names.includes(error.field))) error.field = "classes";
    throw error;
  }
}

/**
 * Classes from a table as a file has it: a preset with its settings, or every class spelled out.
 * @param {Declared} declared
 * @param {Record<string, any>} table
 */
function classesOfTable(declared, table) {
  const { limits } = declared;
  if ("preset" in table) return new SequenceClasses(presetTable(declared, table));
  knownKeys("classes", table, ["vocab_size", "words", "shared_next", "class"]);
  const rows = table.class;
  if (!Array.isArray(rows) || rows.length === 0 || rows.length > limits.classes) throw new InputError("class", rows, `from 1 to ${limits.classes} [[class]] tables`);
  for (const row of rows) knownKeys("classes", row, ["query", "next_token", "p_class", "tokens", "p_context"]);
  const nGiven = rows.filter((row) => "p_class" in row).length;
  if (nGiven !== 0 && nGiven !== rows.length) throw new InputError("p_class", nGiven, "given for all classes or for none");
  if (!(table.vocab_size <= limits.tokens)) throw new InputError("vocab_size", table.vocab_size, `an integer ≤ ${limits.tokens}`);
  if ("shared_next" in table && typeof table.shared_next !== "boolean") throw new InputError("shared_next", table.shared_next, "true or false");
  return new SequenceClasses({
    tokens: rows.map((row) => list("tokens", row.tokens)), probs: rows.map((row) => list("p_context", row.p_context)), vocab_size: table.vocab_size, query: rows.map((row) => row.query),
    next_token: rows.map((row) => row.next_token), p_class: nGiven ? rows.map((row) => row.p_class) : null, words: table.words ?? null, shared_next: table.shared_next ?? false,
  });
}

/**
 * @param {string} field
 * @param {unknown} value
 * @returns {number[]}
 */
function list(field, value) {
  if (!Array.isArray(value) || !value.every((x) => typeof x === "number")) throw new InputError(field, value, "a list of numbers");
  return value;
}

/** @type {Record<string, (settings: any) => ClassTable>} */
const GENERATORS = { synthetic, zipf, "syn-medium": ({ n_queries = 1 }) => synthetic({ n_queries, next_per_query: 2 }) };

/**
 * @param {Declared} declared
 * @param {Record<string, any>} form
 */
function presetTable(declared, { preset, ...options }) {
  const entry = declared.class_presets.find(({ name }) => name === preset), { limits } = declared;
  if (!entry) throw new InputError("preset", preset, `one of ${declared.class_presets.map(({ name }) => name).join(", ")}`);
  knownKeys("classes", options, entry.settings.map(({ name }) => name));
  const settings = Object.fromEntries(entry.settings.map((setting) => [setting.name, setting.name in options ? check(setting, options[setting.name]) : setting.default]));
  if (preset === "synthetic") {
    const { n_queries, next_per_query, common, common_per_query, distinct, unused } = settings, K = n_queries * next_per_query;
    if (K > limits.classes) throw new InputError("classes", K, `n_queries · next_per_query ≤ ${limits.classes}`);
    const tokens = common + common_per_query * n_queries + distinct * K + unused;
    if (tokens > limits.tokens) throw new InputError("classes", tokens, `at most ${limits.tokens} tokens`);
  }
  if (preset === "syn-medium" && settings.n_queries > Math.floor(limits.classes / 2)) throw new InputError("n_queries", settings.n_queries, `an integer ≤ ${Math.floor(limits.classes / 2)}`);
  return declared.tables[preset] ?? GENERATORS[preset](settings);
}

/**
 * Weights per token and class as the table of a file, normalised.
 * @param {Declared} declared
 * @param {any} bars
 */
function tableOfBars(declared, bars) {
  if (typeof bars !== "object" || bars === null) throw new InputError("bars", bars, "an object with vocab_size and classes");
  knownKeys("classes", bars, ["vocab_size", "words", "classes"]);
  const { classes: rows, vocab_size: size, words } = bars;
  if (!Array.isArray(rows) || rows.length === 0 || rows.some((row) => typeof row !== "object" || row === null)) throw new InputError("bars", rows, "a list of at least one class");
  if (!Number.isInteger(size) || size < 1 || size > declared.limits.tokens) throw new InputError("vocab_size", size, `an integer from 1 to ${declared.limits.tokens}`);
  const isWeighted = rows.every((row) => (row.p_class ?? null) !== null), p = isWeighted ? normalised("p_class", rows.map((row) => row.p_class)) : rows.map((row) => row.p_class);
  const table = rows.map(({ query, next_token, tokens, weights, ...rest }, n) => {
    knownKeys("classes", rest, ["p_class"]);
    return { query, next_token, tokens, p_context: normalised("weights", weights), ...((p[n] ?? null) === null ? {} : { p_class: p[n] }) };
  });
  return { vocab_size: size, class: table, ...(words ? { words: wordsOf(words, size) } : {}) };
}

/**
 * One word for every token: those given by the number of their token, and that number for the others.
 * @param {Record<string, string>} words
 * @param {number} size
 */
function wordsOf(words, size) {
  for (const token of Object.keys(words)) if (!/^\d+$/.test(token) || Number(token) >= size) throw new InputError("words", token, `token numbers below ${size}`);
  return range(size).map((token) => words[token] ?? String(token));
}

/**
 * @param {string} field
 * @param {unknown} weights
 */
function normalised(field, weights) {
  if (!Array.isArray(weights) || weights.length === 0 || !weights.every((w) => typeof w === "number" && w >= 0 && w <= 1e30)) throw new InputError(field, weights, "a list of numbers from 0 to 1e30");
  const total = sum(weights);
  if (!(total > 0)) throw new InputError(field, total, "at least one number > 0");
  return Math.abs(total - 1) > 1e-12 ? weights.map((w) => w / total) : distribution(field, weights);
}

/**
 * The classes of a classes file or run file, the settings of its first run, and how many more it has.
 * @param {Declared} declared
 * @param {unknown} text
 * @returns {ClassesRead}
 */
function readToml(declared, text) {
  const table = parseToml(text);
  if (!("classes" in table) && !("run" in table)) return { classes: classesOfTable(declared, table), run: {}, note: "" };
  knownKeys("classes", table, ["classes", "run"]);
  const options = table.run ?? {};
  for (const [name, value] of [["run", options], ["classes", table.classes]]) if (typeof value !== "object" || value === null || Array.isArray(value)) throw new InputError(name, value, `a table: [${name}]`);
  knownKeys("classes", options, declared.file_keys);
  const run = Object.fromEntries(Object.entries(options).filter(([name]) => !["record", "variables", "ratio"].includes(name)));
  let n = 1, first = "";
  for (const [name, value] of Object.entries(options)) {
    if (!Array.isArray(value) || !["eta_y", "eta_z", "ratio", "seed", "momentum", "weight_decay"].includes(name)) continue;
    if (value.length === 0) throw new InputError(name, value, "at least one number");
    n *= value.length;
    first += `${first && ", "}${name} = ${value[0]}`;
    options[name] = value[0];
    if (name !== "ratio") run[name] = value[0];
  }
  if ("ratio" in options) {
    if ("eta_y" in options) throw new InputError("eta_y", "eta_y and ratio", "one of the two");
    if (!(options.ratio > 0)) throw new InputError("ratio", options.ratio, "a float > 0");
    run.eta_y = options.ratio * (run.eta_z ?? 1);
  }
  return { classes: classesOfTable(declared, table.classes), run, note: n > 1 ? `The file has ${n} runs; this is the first: ${first}.` : "" };
}

// --- limits ----------------------------------------------------------------------------------------------------------

/**
 * Numbers in one frame: loss, three per class, attention, z.
 * @param {Layout} layout
 */
export const frameFloats = (layout) => 1 + 3 * layout.K + layout.nSlots.reduce((a, b) => a + b, 0) + queryTokens(layout).reduce((n, tokens) => n + tokens.length, 0);

/**
 * @param {Declared} declared
 * @param {Blueprint} blueprint
 */
function checkLimits({ limits }, { classes, layout, settings }) {
  const { K, L, J, Q, S, M } = layout, { model } = settings;
  if (classes.K > limits.classes) throw new InputError("classes", classes.K, `at most ${limits.classes} classes`);
  if (M > limits.tokens) throw new InputError("classes", M, `at most ${limits.tokens} tokens`);
  const floats = frameFloats(layout);
  if (floats > limits.frame_floats) throw new InputError("classes", floats, `at most ${limits.frame_floats} numbers per frame: fewer classes or tokens, or norm l2`);
  const samples = settings.batch_size ?? K, isTokens = settings.sampling === "tokens" && settings.context !== Infinity;
  const work = samples * (L * J + model.heads * S * 4) + (isTokens ? samples * settings.context * 300 : 0);
  const tables = /** @type {[Optimizer, number, number, number][]} */ ([[settings.optimizer_y, 1, L, J], [settings.optimizer_z, model.heads, Q, M]]);
  const muon = tables.reduce((total, [rule, n, a, b]) => total + (rule.name === "muon" ? n * 15 / 20 * a * b * Math.min(a, b) : 0), 0);
  if (work > limits.step_products) throw new InputError("batch_size", settings.batch_size, `a smaller batch: a step takes ${work.toExponential(1)} products, at most ${limits.step_products.toExponential(1)}`);
  if (work + muon > limits.step_products) throw new InputError("optimizer", "muon", `another rule for tables of ${L} × ${J} numbers`);
}

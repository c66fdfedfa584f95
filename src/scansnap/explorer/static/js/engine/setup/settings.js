// Checks of settings by their declarations: the twin of settings.py. The declarations come from Python as JSON
// (explorer/declared.py).

import { InputError } from "../errors.js";

/** @import { ClassTable } from "./presets.js" */

/**
 * @typedef {object} Setting
 * @property {string} name
 * @property {string} label
 * @property {string} symbol
 * @property {string} explain
 * @property {"number" | "integer" | "choice" | "flag" | "text"} kind
 * @property {any} default
 * @property {number | null} least
 * @property {number | null} most
 * @property {number | null} above
 * @property {number | null} below
 * @property {number | null} low
 * @property {number | null} high
 * @property {boolean} log
 * @property {string[] | null} options
 * @property {Record<string, string>} words
 * @property {boolean} live
 * @property {boolean} optional
 * @property {boolean} inf
 * @property {string} expected
 */

/**
 * What explorer/declared.py exports.
 * @typedef {object} Declared
 * @property {string} version
 * @property {Record<string, number>} limits
 * @property {number} smallest_rate
 * @property {Setting[]} controls
 * @property {Setting[]} optimizer
 * @property {string[]} file_keys
 * @property {{name: string, title: string, explain: string, settings: Setting[]}[]} class_presets
 * @property {Record<string, ClassTable>} tables
 * @property {{name: string, title: string, question: string, commentary: string, setup: SetupInput}[]} presets
 * @property {SetupInput} default
 * @property {{name: string, statement: string, note: string, weaker: string}[]} assumptions
 */

/** @typedef {{classes: Record<string, any>, [name: string]: any}} SetupInput */

const LONGEST = 40; // characters of a text setting

/**
 * A value as it is kept: "none" as null, "inf" as Infinity.
 * @param {Setting} setting
 * @param {unknown} value
 * @returns {any}
 */
export function check(setting, value) {
  const { name, kind, options } = setting, wrong = () => new InputError(name, value, expected(setting));
  if (setting.optional && (value === null || value === "none")) return null;
  if (setting.inf && (value === Infinity || value === "inf")) return Infinity;
  if (kind === "choice" && !(typeof value === "string" && options?.includes(value))) throw wrong();
  if (kind === "flag" && typeof value !== "boolean") throw wrong();
  if (kind === "text" && name !== "distinct_weights" && !(typeof value === "string" && value.length <= LONGEST)) throw wrong();
  if (kind !== "number" && kind !== "integer") return value;
  const isNumber = typeof value === "number" && Number.isFinite(value) && (kind === "number" || Number.isInteger(value));
  if (!isNumber || !isWithin(setting, value)) throw wrong();
  return value;
}

/**
 * @param {Setting} setting
 * @param {number} x
 */
const isWithin = ({ least, most, above, below }, x) => (least === null || x >= least) && (most === null || x <= most) && (above === null || x > above) && (below === null || x < below);

/** @param {Setting} setting */
function expected({ kind, options, least, most, above, below, optional, inf, expected: text }) {
  const bounds = [[">", above], ["≥", least], ["<", below], ["≤", most]].filter(([, bound]) => bound !== null).map(([sign, bound]) => `${sign} ${bound}`).join(" and ");
  const own = kind === "choice" ? `one of ${options?.join(", ")}` : kind === "flag" ? "true or false" : kind === "text" ? text : `${kind === "integer" ? "an integer" : "a float"} ${bounds}`.trim();
  return own + (inf ? " or inf" : "") + (optional ? " or none" : "");
}

/**
 * Refuses unknown keys, such as misspelt settings.
 * @param {string} field where the keys stand
 * @param {object} table
 * @param {readonly string[]} allowed
 */
export function knownKeys(field, table, allowed) {
  for (const key of Object.keys(table)) if (!allowed.includes(key)) throw new InputError(field, key, `keys from ${allowed.join(", ") || "none"}`);
}

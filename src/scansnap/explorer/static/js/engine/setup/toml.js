// TOML in and out, as far as run files and classes files use it: tables, arrays of tables, inline tables, dotted keys,
// strings, numbers, booleans and arrays. Dates are refused.

import { InputError } from "../errors.js";

/**
 * The tables of a TOML text.
 * @param {unknown} text
 * @returns {Record<string, any>}
 */
export function parseToml(text) {
  if (typeof text !== "string") throw new InputError("toml", text, "a text");
  return new Reader(text).document();
}

const BARE = /[A-Za-z0-9_-]+/y, BLANK = /[ \t]*/y, SPACE = /(?:[ \t\r\n]|#[^\n]*)*/y, LINE = /[ \t]*(?:#[^\n]*)?(?:\r?\n|$)/y;
const NUMBER = /[+-]?(?:0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*|(?:0|[1-9](?:_?\d)*)(?:\.\d(?:_?\d)*)?(?:[eE][+-]?\d(?:_?\d)*)?|inf|nan)(?![\w.:-])/y;
/** @type {Record<string, string>} */
const ESCAPES = { b: "\b", t: "\t", n: "\n", f: "\f", r: "\r", '"': '"', "\\": "\\" };

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.closed = new WeakSet(); // tables that nothing can be added to: inline ones, and those with a heading
  }

  document() {
    /** @type {Record<string, any>} */
    const root = table();
    let here = root;
    for (;;) {
      this.match(SPACE);
      if (this.at >= this.text.length) return root;
      if (this.take("[[")) here = this.heading(root, true, "]]");
      else if (this.take("[")) here = this.heading(root, false, "]");
      else this.entry(here);
      if (this.match(LINE) === null) this.fail("a new line");
    }
  }

  /**
   * @param {Record<string, any>} root
   * @param {boolean} isArray
   * @param {string} end
   */
  heading(root, isArray, end) {
    const keys = this.keys(), last = /** @type {string} */ (keys.pop()), parent = this.descend(root, keys);
    if (!this.take(end)) this.fail(end);
    if (isArray) {
      parent[last] ??= [];
      if (!Array.isArray(parent[last]) || this.closed.has(parent[last])) this.fail("a new key");
      parent[last].push(table());
      return parent[last].at(-1);
    }
    parent[last] ??= table();
    if (!isTable(parent[last]) || this.closed.has(parent[last])) this.fail("a new key");
    this.closed.add(parent[last]);
    return parent[last];
  }

  /** @param {Record<string, any>} here */
  entry(here) {
    const keys = this.keys(), last = /** @type {string} */ (keys.pop()), parent = this.descend(here, keys);
    if (!this.take("=")) this.fail("=");
    if (last in parent) this.fail("a new key");
    parent[last] = this.value();
  }

  /**
   * @param {Record<string, any>} from
   * @param {string[]} keys
   */
  descend(from, keys) {
    return keys.reduce((here, key) => {
      here[key] ??= table();
      const next = Array.isArray(here[key]) && !this.closed.has(here[key]) ? here[key].at(-1) : here[key];
      if (!isTable(next)) this.fail("a table");
      return next;
    }, from);
  }

  keys() {
    const keys = [];
    do {
      this.match(BLANK);
      const key = /["']/.test(this.text[this.at] ?? "") ? this.string(false) : this.match(BARE);
      if (!key && key !== "") this.fail("a key");
      keys.push(key);
      this.match(BLANK);
    } while (this.take("."));
    return keys;
  }

  /** @returns {any} */
  value() {
    this.match(BLANK);
    const next = this.text[this.at];
    if (next === '"' || next === "'") return this.string(true);
    if (this.take("[")) return this.array();
    if (this.take("{")) return this.inline();
    if (this.take("true")) return true;
    if (this.take("false")) return false;
    const number = this.match(NUMBER);
    if (number === null) return this.fail("a value");
    const plain = number.replaceAll("_", "").replace(/^\+/, "");
    return /(inf|nan)$/.test(plain) ? (plain.endsWith("nan") ? NaN : plain.startsWith("-") ? -Infinity : Infinity) : Number(plain);
  }

  array() {
    const items = [];
    for (;;) {
      this.match(SPACE);
      if (this.take("]")) break;
      items.push(this.value());
      this.match(SPACE);
      if (this.take(",")) continue;
      if (!this.take("]")) this.fail("] or ,");
      break;
    }
    this.closed.add(items);
    return items;
  }

  inline() {
    const entries = table();
    this.match(BLANK);
    if (!this.take("}")) {
      do this.entry(entries); while (this.match(BLANK) !== null && this.take(","));
      if (!this.take("}")) this.fail("}");
    }
    this.closed.add(entries);
    return entries;
  }

  /** @param {boolean} mayBeLong */
  string(mayBeLong) {
    const quote = this.text[this.at], isLong = mayBeLong && this.text.startsWith(quote.repeat(3), this.at), end = isLong ? quote.repeat(3) : quote;
    this.at += end.length;
    if (isLong && this.take("\r\n") === false) this.take("\n");
    let out = "";
    for (;;) {
      if (this.at >= this.text.length || (!isLong && this.text[this.at] === "\n")) this.fail(end);
      if (this.text.startsWith(end, this.at)) {
        this.at += end.length;
        const more = isLong ? /** @type {string} */ (this.match(quote === '"' ? /"{0,2}/y : /'{0,2}/y)) : ""; // """" ends with one
        return out + more;
      }
      const character = this.text[this.at++];
      out += character === "\\" && quote === '"' ? this.escape(isLong) : character;
    }
  }

  /** @param {boolean} isLong */
  escape(isLong) {
    const kind = this.text[this.at++], digits = kind === "u" ? 4 : kind === "U" ? 8 : 0;
    if (kind in ESCAPES) return ESCAPES[kind];
    if (digits) {
      const code = this.text.slice(this.at, this.at + digits), value = parseInt(code, 16);
      if (!/^[0-9A-Fa-f]+$/.test(code) || code.length < digits || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) this.fail("a character code");
      this.at += digits;
      return String.fromCodePoint(value);
    }
    if (!isLong || !/\s/.test(kind ?? "")) this.fail("an escape");
    this.at--;
    if (this.match(/[ \t]*\r?\n\s*/y) === null) this.fail("a new line");
    return "";
  }

  /** @param {RegExp} pattern sticky */
  match(pattern) {
    pattern.lastIndex = this.at;
    const result = pattern.exec(this.text);
    if (result) this.at += result[0].length;
    return result ? result[0] : null;
  }

  /** @param {string} text */
  take(text) {
    const is = this.text.startsWith(text, this.at);
    if (is) this.at += text.length;
    return is;
  }

  /**
   * @param {string} expected
   * @returns {never}
   */
  fail(expected) {
    const line = this.text.slice(0, this.at).split("\n").length;
    throw new InputError("toml", this.text.slice(this.at, this.at + 20), `${expected} in line ${line}`);
  }
}

/** @returns {Record<string, any>} */
const table = () => Object.create(null);
/** @param {unknown} value */
const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Lines `key = value`; tables are written inline.
 * @param {Record<string, any>} values null is left out
 */
export const tomlLines = (values) => Object.entries(values).filter(([, value]) => value !== null && value !== undefined).map(([key, value]) => `${key} = ${tomlValue(value)}\n`).join("");

/**
 * @param {unknown} value
 * @returns {string}
 */
export function tomlValue(value) {
  if (typeof value === "string") return JSON.stringify(value).replaceAll("\x7f", "\\u007f");
  if (Array.isArray(value)) return `[${value.map(tomlValue).join(", ")}]`;
  if (isTable(value)) return `{ ${Object.entries(/** @type {object} */ (value)).map(([key, own]) => `${key} = ${tomlValue(own)}`).join(", ")} }`;
  if (value === Infinity) return "inf";
  return String(value).replace(/^(-?\d+)e/, "$1.0e");
}

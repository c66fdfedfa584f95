// Making and finding elements; texts that carry mathematics.

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * The element with an id of index.html, or made by a part that is built before it is asked for.
 * @type {<T extends HTMLElement = HTMLElement>(id: string) => T}
 */
export const $ = (id) => /** @type {any} */ (document.getElementById(id));

/**
 * An element: h("button", {class: "small", onclick: f, "aria-label": "Play"}, "text", child, …).
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} props
 * @param {(Child | Child[])[]} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag), own = /** @type {Record<string, any>} */ (el);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "class") el.className = value;
    else if (key in el && key !== "list" && !key.startsWith("aria") && key !== "role" && key !== "spellcheck") own[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) el.append(child);
  return el;
}

/**
 * "η_Y e^{4z}" with its letters lowered and raised, and its variables in italics.
 * @param {string} text
 */
export function maths(text) {
  const out = document.createDocumentFragment();
  const lowered = /((?<![\p{Script=Latin}\d])\p{L}\p{M}*['′]?(?:_[A-Za-z0-9′]+|\^\{[^}]*\}|\^−?\d+(?:\.\d+)?|\^[A-Za-z]\b)+|(?<![\p{Script=Latin}\d])[α-ω](?![\p{Script=Latin}\d]))/u;
  for (const part of text.replaceAll("eta_y", "η_Y").replaceAll("eta_z", "η_Z").split(lowered)) {
    if (!lowered.test(part)) { if (part) out.append(part); continue; }
    const [letter, ...rest] = part.split(/(_[A-Za-z0-9′]+|\^\{[^}]*\}|\^−?\d+(?:\.\d+)?|\^[A-Za-z]\b)/).filter(Boolean);
    out.append(h("var", {}, letter), ...rest.map((r) => (r.startsWith("_") ? h("sub", {}, r.slice(1)) : h("sup", {}, r.replace(/[\^{}]/g, "")))));
  }
  return out;
}

/**
 * Shows a message beside what it is about, or takes it away.
 * @param {HTMLElement} el
 * @param {string} message
 */
export function refuse(el, message) {
  el.textContent = message;
  el.hidden = !message;
}

/**
 * The message of an error.
 * @param {unknown} error
 */
export const errorMessage = (error) => (error instanceof Error ? error.message : String(error));

/** @type {number | undefined} */
let toastTimer;

/** @param {string} message */
export function toast(message) {
  const el = $("toast");
  el.textContent = message;
  el.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (el.hidden = true), 3200);
}

/**
 * Runs `f` at most once per `ms`; the last call always comes through.
 * @template {any[]} Given
 * @param {(...given: Given) => void} f
 * @param {number} ms
 * @returns {(...given: Given) => void}
 */
export function throttle(f, ms) {
  /** @type {number | null} */
  let timer = null;
  /** @type {Given} */
  let args;
  let last = 0;
  return (...given) => {
    args = given;
    const wait = last + ms - performance.now();
    if (timer !== null) return;
    if (wait <= 0) { last = performance.now(); f(...args); return; }
    timer = setTimeout(() => { timer = null; last = performance.now(); f(...args); }, wait);
  };
}

/**
 * Runs `f` once calls have stopped for `ms`.
 * @param {() => void} f
 * @param {number} ms
 */
export function debounce(f, ms) {
  /** @type {number | undefined} */
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(f, ms); };
}

/**
 * Saves a file that the page has made.
 * @param {Blob} blob
 * @param {string} name
 */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob), a = h("a", { href: url, download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Making and finding elements; texts that carry mathematics.

export const $ = (id) => document.getElementById(id);

/** An element: h("button", {class: "small", onclick: f, "aria-label": "Play"}, "text", child, …). */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "class") el.className = value;
    else if (key in el && key !== "list" && !key.startsWith("aria") && key !== "role" && key !== "spellcheck") el[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

/** "η_Y e^{4z}" with its letters lowered and raised. */
export function maths(text) {
  const out = document.createDocumentFragment();
  for (const part of String(text).replaceAll("eta_y", "η_Y").replaceAll("eta_z", "η_Z").split(/(_[A-Za-z0-9′]+|\^\{[^}]*\})/)) {
    if (part.startsWith("^{")) out.append(h("sup", {}, part.slice(2, -1)));
    else if (/^_./.test(part)) out.append(h("sub", {}, part.slice(1)));
    else if (part) out.append(part);
  }
  return out;
}

/** Shows a message beside what it is about, or takes it away. */
export function refuse(el, message) {
  el.textContent = message || "";
  el.hidden = !message;
}

let toastTimer;
export function toast(message) {
  const el = $("toast");
  el.textContent = message;
  el.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (el.hidden = true), 3200);
}

/** Runs `f` at most once per `ms`; the last call always comes through. */
export function throttle(f, ms) {
  let timer = null, last = 0, args;
  return (...given) => {
    args = given;
    const wait = last + ms - performance.now();
    if (timer) return;
    if (wait <= 0) { last = performance.now(); f(...args); return; }
    timer = setTimeout(() => { timer = null; last = performance.now(); f(...args); }, wait);
  };
}

/** Runs `f` once calls have stopped for `ms`. */
export function debounce(f, ms) {
  let timer;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => f(...args), ms); };
}

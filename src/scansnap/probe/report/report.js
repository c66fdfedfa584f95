// Draws the heads' curves for the chosen quantity, and the chosen head large.

import { embedded, figure } from "../../html/base.js";

/**
 * @typedef {(number | null)[]} Line
 * @typedef {{ title: string, meaning: string, low: number, high: number, lines: Line[][], uniform: Line[] }} Quantity
 * @typedef {{ layer: number, head: number, path: string, kind: string, call: number, words: string[], colour: string, snap: number | null } & Record<string, any>} Head
 * @typedef {{ x: number[], t: number[], quantities: Quantity[], heads: Head[], deciles: Line[][], chosen: number }} Data
 */

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);
/** @type {Data} */
const data = embedded();
const FINE = 1000;
const grid = /** @type {HTMLElement} */ (document.querySelector(".grid"));
const cells = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".cell")]);
let quantity = 0, chosen = data.chosen, shown = -1;

/** @param {number | null | undefined} v @param {boolean} [signed] */
function number(v, signed) {
  if (v === null || v === undefined) return "–";
  const size = Math.abs(v), text = size < 10 ? size.toFixed(3) : figure(size);
  return (v < 0 ? "−" : signed ? "+" : "") + text;
}

/** @param {number} v */
const step = (v) => Math.round(v).toLocaleString("en").replaceAll(",", "\u2009");

/** As SVG draws a line, y downwards; a point between two gaps is a dot. @param {Line} line */
function path(line) {
  let d = "", pen = "M";
  line.forEach((y, i) => {
    if (y === null) { pen = "M"; return; }
    d += `${pen}${data.x[i]} ${FINE - y}${pen === "M" && (line[i + 1] ?? null) === null ? "h0" : ""}`;
    pen = "L";
  });
  return d;
}

/** @param {number | null} y */
const level = (y) => (y === null ? "" : `M0 ${FINE - y}H${FINE}`);

/** @param {string} tag @param {string} name @param {string} [text] */
function element(tag, name, text) {
  const made = document.createElement(tag);
  made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** @param {Element} root @param {string} name @param {string} d */
const draw = (root, name, d) => root.querySelector(`.${name}`)?.setAttribute("d", d);

/** All cells with the chosen quantity. */
function redraw() {
  const q = data.quantities[quantity];
  data.heads.forEach((head, i) => {
    draw(cells[i], "curve", path(q.lines[head.layer][head.head]));
    draw(cells[i], "uniform", level(q.uniform[head.layer][head.head]));
  });
  $("meaning").textContent = `${q.meaning} All cells from ${figure(q.low)} to ${figure(q.high)}, over ln t; dashed: uniform attention; vertical line: the snap.`;
  show(chosen);
}

/** One head large. @param {number} i */
function show(i) {
  const head = data.heads[i], q = data.quantities[quantity];
  if (!head || !q) return;
  shown = i;
  $("detail-body").hidden = false;
  $("d-name").textContent = `layer ${head.layer} · head ${head.head}`;
  const words = head.words.length ? head.words : ["not judged"];
  $("d-tags").replaceChildren(...words.map((word) => element("span", `tag ${word.replace(" ", "-")}`, word)));
  $("d-path").textContent = head.path + (head.call ? `, call ${head.call}` : "") + (head.kind && head.kind !== "self" ? `, ${head.kind}` : "");
  const plot = $("d-plot");
  plot.className = `plot ${head.colour}`;
  draw(plot, "curve", path(q.lines[head.layer][head.head]));
  draw(plot, "uniform", level(q.uniform[head.layer][head.head]));
  draw(plot, "snap", head.snap === null ? "" : `M${head.snap} 0V${FINE}`);
  draw(plot, "cross", "");
  $("d-snap").hidden = head.snap === null;
  if (head.snap !== null) {
    $("d-snap").textContent = `snaps in ln t, step ${step(head.t_snap_ln ?? head.t_snap)}`;
    $("d-snap").style.left = `${Math.min(88, Math.max(12, head.snap / 10))}%`;
  }
  $("d-high").textContent = figure(q.high);
  $("d-low").textContent = figure(q.low);
  read(data.t.length - 1);
  bars(i);
  numbers(head);
  $("d-details").textContent = head.details;
  $("d-why").hidden = !head.details;
}

/** The value at a measurement. @param {number} k */
function read(k) {
  const head = data.heads[shown], q = data.quantities[quantity];
  const value = (/** @type {number | null} */ y) => (y === null ? "–" : number(q.low + (y / FINE) * (q.high - q.low)));
  const uniform = q.uniform[head.layer][head.head];
  $("d-read").textContent = `${q.title} at step ${step(data.t[k])}: ${value(q.lines[head.layer][head.head][k])}` + (uniform === null ? "" : ` (uniform ${value(uniform)})`);
}

/** @param {number} i */
function bars(i) {
  const found = data.deciles[i], has = Boolean(found) && found[1].some((v) => v !== null);
  $("d-deciles").hidden = !has;
  if (!has) return;
  const [first, last, even] = found;
  const top = Math.max(...found.flat().map(Number), 1e-9);
  const height = (/** @type {number | null} */ v) => `${(100 * (v ?? 0)) / top}%`;
  $("d-bars").replaceChildren(...last.map((_, d) => {
    const bar = element("div", ""), parts = [element("b", "first"), element("b", "last"), element("i", "")];
    parts[0].style.height = height(first[d]);
    parts[1].style.height = height(last[d]);
    parts[2].style.bottom = height(even[d]);
    bar.title = `decile ${d + 1} of distinctness: first ${number(first[d])}, last ${number(last[d])}, uniform ${number(even[d])}`;
    bar.append(...parts);
    return bar;
  }));
  $("d-bars").setAttribute("aria-label", `Attention by decile of distinctness, common to distinct. First ${first.map((v) => number(v)).join(", ")}; last ${last.map((v) => number(v)).join(", ")}.`);
}

/** @param {Head} head */
function numbers(head) {
  const interval = head.scan_low === null ? "" : ` (${number(head.scan_low, true)} … ${number(head.scan_high, true)})`;
  /** @type {[string, string, boolean?][]} */
  const rows = [
    ["largest logit", number(head.max_logit)], ["output share", head.output_share === null ? "–" : `${figure(100 * head.output_share)} %`],
    ["scan index", number(head.scan_index, true) + interval, true],
    ["snap in t", head.times[0], true], ["snap in ln t", head.times[1], true],
    ["frozenness", number(head.frozenness_ln)], ["sink", number(head.sink)],
    ["entropy", `${number(head.entropy_rel_first)} → ${number(head.entropy_rel)}`, true],
    ["previous", number(head.previous)], ["induction", number(head.induction)],
  ];
  $("d-numbers").replaceChildren(...rows.map(([name, text, wide]) => {
    const row = element("div", wide ? "wide" : "");
    row.append(element("dt", "", name), element("dd", "", text));
    return row;
  }));
}

/** @param {number} i */
function choose(i) {
  cells[chosen]?.setAttribute("aria-pressed", "false");
  if (cells[chosen]) cells[chosen].tabIndex = -1;
  chosen = i;
  cells[i].setAttribute("aria-pressed", "true");
  cells[i].tabIndex = 0;
  show(i);
}

/** The cell that an arrow key leads to. @param {number} i @param {string} key */
function beside(i, key) {
  const at = data.heads[i];
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const next = i + (key === "ArrowLeft" ? -1 : 1);
    return data.heads[next]?.layer === at.layer ? next : -1;
  }
  const layers = [...new Set(data.heads.map((h) => h.layer))];
  const layer = layers[layers.indexOf(at.layer) + (key === "ArrowUp" ? -1 : 1)];
  return data.heads.findIndex((h) => h.layer === layer && h.head === at.head);
}

function wireGrid() {
  cells.forEach((cell, i) => {
    cell.addEventListener("click", () => {
      choose(i);
      if (getComputedStyle($("detail")).position === "static") $("detail").scrollIntoView({ block: "nearest", behavior: "smooth" });
    });
    cell.addEventListener("pointerenter", (e) => { if (e.pointerType === "mouse") show(i); });
    cell.addEventListener("keydown", (e) => {
      if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(e.key)) return;
      e.preventDefault();
      const next = beside(i, e.key);
      if (next >= 0) { choose(next); cells[next].focus(); }
    });
  });
  grid.addEventListener("pointerleave", () => show(chosen));
  const plot = $("d-plot");
  plot.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => {
    const box = plot.getBoundingClientRect(), x = (FINE * (e.clientX - box.left)) / box.width;
    const k = data.x.reduce((best, at, j) => (Math.abs(at - x) < Math.abs(data.x[best] - x) ? j : best), 0);
    draw(plot, "cross", `M${data.x[k]} 0V${FINE}`);
    read(k);
  });
  plot.addEventListener("pointerleave", () => { draw(plot, "cross", ""); read(data.t.length - 1); });
}

/** Rows by the number, or word, in a column; what has none comes last. @param {HTMLTableElement} table */
function sortable(table) {
  const body = table.tBodies[0], heads = [...table.tHead?.rows[0].cells ?? []];
  const key = (/** @type {HTMLTableRowElement} */ row, /** @type {number} */ i) => row.cells[i].dataset.v ?? (row.cells[i].textContent ?? "").replace("−", "-").replace("+", "");
  heads.forEach((head, i) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map((row) => ({ row, text: key(row, i), value: parseFloat(key(row, i)) }));
    const numeric = rows.some((r) => !Number.isNaN(r.value));
    rows.sort((a, b) => {
      if (!numeric) return (down ? 1 : -1) * a.text.localeCompare(b.text);
      if (Number.isNaN(a.value) || Number.isNaN(b.value)) return Number(Number.isNaN(a.value)) - Number(Number.isNaN(b.value));
      return (down ? -1 : 1) * (a.value - b.value);
    });
    body.append(...rows.map((r) => r.row));
  }));
}

sortable($("all"));
if (cells.length) {
  wireGrid();
  $("quantity")?.addEventListener("change", (/** @type {Event} */ e) => { quantity = Number(/** @type {HTMLSelectElement} */ (e.target).value); redraw(); });
  choose(chosen);
}

export {}; // a module: its names are its own

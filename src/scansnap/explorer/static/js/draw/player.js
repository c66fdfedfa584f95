// The exported film: plays the frames of one run and needs nothing but its own file.

import { AttentionPainter, barAt } from "./attention.js";
import { colours } from "./colours.js";
import { Film, word } from "./film.js";
import { short, whole } from "./format.js";
import { penFor, unit } from "./pen.js";

/** @import { FilmSaid } from "../messages.js" */
/** @import { Cell } from "./attention.js" */

const SECONDS = 8; // of the whole film
const CURVES = [["Loss", "loss"], ["Entropy of attention, mean over classes", "entropy"], ["Growth B, mean over classes", "growth"]];

/** @type {<T extends HTMLElement = HTMLElement>(id: string) => T} */
const $ = (id) => /** @type {any} */ (document.getElementById(id));
const bytes = (/** @type {string} */ text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;

/** @type {HTMLCanvasElement} */
const stage = $("stage");
/** @type {HTMLCanvasElement} */
const plots = $("curves");
/** @type {HTMLInputElement} */
const scrub = $("scrub");
const tip = $("tip"), button = $("play");

/** @type {FilmSaid} */
const told = JSON.parse($("film").textContent ?? "");
const film = new Film(told.run);
film.add(new Uint32Array(bytes(told.steps)), new Float32Array(bytes(told.data)), told.floats);
film.marks = told.marks;
film.run.steps = Math.max(1, film.lastStep); // there is no more to come
const last = film.run.steps, time = (/** @type {number} */ step) => Math.log(step + 1);
const means = CURVES.map(([, field]) => film.steps.map((_, i) => film.mean(field, i)));

let now = 0, painter = new AttentionPainter(colours());
/** @type {number | null} */
let playing = null;
/** @type {Cell[]} */
let cells = [];

const scene = () => ({ film, index: now, classes: film.run.classes.classes.map((_, k) => k), axis: time });

function drawCurves() {
  const pen = penFor(plots, plots), { ink, muted, line } = painter.colours, high = pen.height / CURVES.length, left = 40, wide = pen.width - left - 10;
  const at = (/** @type {number} */ i) => left + (time(film.steps[i]) / time(last)) * wide;
  CURVES.forEach(([title], p) => {
    const y = p * high + 20, tall = high - 42, values = means[p], good = values.filter(Number.isFinite), top = Math.max(...good, 1e-9);
    const label = { fill: muted, size: 11, align: /** @type {const} */ ("right") };
    pen.text(0, y - 7, title, { fill: ink, size: 12, weight: 600 });
    pen.text(left - 5, y + 8, short(top), label);
    pen.text(left - 5, y + tall, "0", label);
    pen.frame(left, y, wide, tall, line);
    if (!good.length) return pen.text(pen.width - 20, y + tall / 2, "not defined for this model", label);
    pen.text(pen.width - 10, y + tall + 14, `step ${whole(last)}`, label);
    /** @type {[number, number][]} */
    const points = [];
    values.forEach((v, i) => { if (Number.isFinite(v)) points.push([at(i), y + tall * (1 - v / top)]); });
    pen.path(points, ink, 2);
    pen.rect(at(now), y, 1, tall, muted);
  });
}

function draw() {
  cells = painter.draw(penFor(stage, stage), scene());
  drawCurves();
}

/** @param {number} i */
function show(i) {
  now = Math.max(0, Math.min(film.length - 1, i));
  scrub.value = String(now);
  $("clock").textContent = `step ${film.steps[now]} of ${last}`;
  draw();
}

function stop() {
  if (playing !== null) cancelAnimationFrame(playing);
  playing = null;
  button.textContent = "Play";
}

function play() {
  const from = now >= film.length - 1 ? 0 : now, begun = performance.now();
  const tick = () => {
    const i = from + Math.floor(((performance.now() - begun) / (1000 * SECONDS)) * film.length);
    if (i >= film.length - 1) { show(film.length - 1); stop(); return; }
    if (i !== now) show(i);
    playing = requestAnimationFrame(tick);
  };
  button.textContent = "Pause";
  playing = requestAnimationFrame(tick);
}

const toggle = () => (playing === null ? play() : stop());
const go = (/** @type {number} */ i) => { stop(); show(i); };

/** @param {KeyboardEvent} event */
function key(event) {
  /** @type {Record<string, () => void>} */
  const acts = { " ": toggle, ArrowRight: () => go(now + 1), ArrowLeft: () => go(now - 1), Home: () => go(0), End: () => go(film.length - 1) };
  const act = acts[event.key];
  if (!act || (event.key === " " && event.target === button)) return;
  event.preventDefault();
  act();
}

/** @param {PointerEvent} event */
function hover(event) {
  const b = stage.getBoundingClientRect(), u = unit(), hit = barAt(cells, scene(), (event.clientX - b.left) / u, (event.clientY - b.top) / u);
  tip.hidden = !hit;
  if (!hit) return;
  const { k, bar, frame } = hit;
  tip.textContent = `${word(film.run.classes, bar.token)}, ${bar.kind}, class ${k}, step ${whole(film.steps[frame])}: ${short(film.attention(frame, k)[bar.j])}`;
  tip.style.left = `${Math.min(window.innerWidth - tip.offsetWidth - 8, event.clientX + 12)}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

function begin() {
  const s = film.run.setup;
  $("about").textContent = `${s.optimizer}, η_Y ${s.eta_y}, η_Z ${s.eta_z}, momentum ${s.momentum}, T ${s.context === "inf" ? "∞" : s.context}, seed ${s.seed}${film.marks.length ? ", rates changed on the way" : ""}`;
  button.onclick = toggle;
  scrub.max = String(film.length - 1);
  scrub.oninput = () => go(Number(scrub.value));
  document.onkeydown = key;
  stage.onpointermove = hover;
  stage.onpointerleave = () => { tip.hidden = true; };
  window.onresize = draw;
  matchMedia("(prefers-color-scheme: dark)").onchange = () => { painter = new AttentionPainter(colours()); draw(); };
  show(0);
  document.documentElement.dataset.ready = String(film.length);
  play();
}

begin();

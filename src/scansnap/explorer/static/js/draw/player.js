// The exported film: plays the frames of one run and needs nothing but its own file.

import { AttentionPainter, barAt } from "./attention.js";
import { settings } from "./caption.js";
import { colours } from "./colours.js";
import { Film, REACH, word } from "./film.js";
import { short, tick, ticks, whole } from "./format.js";
import { fitting, penFor, unit, widthOf } from "./pen.js";

/** @import { FilmSummary } from "../messages.js" */
/** @import { Cell } from "./attention.js" */

const SECONDS = 8; // of the whole film
const CURVES = [["Loss", "loss", "Loss"], ["Entropy of attention, mean over classes", "entropy", "Entropy"], ["Growth B, mean over classes", "growth", "Growth B"]];

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

/** @type {FilmSummary} */
const content = JSON.parse($("data-film").textContent ?? "");
const film = new Film(content.run);
film.add(new Uint32Array(bytes(content.steps)), new Float32Array(bytes(content.data)), content.floats);
film.marks = content.marks;
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
  const pen = penFor(plots, plots), { ink, muted, line } = painter.colours, high = pen.height / CURVES.length, label = { size: 11 };
  const axes = means.map((values) => { const good = values.filter(Number.isFinite), top = Math.max(...good, 1e-9), marks = ticks(0, top, 3); return { good, top, marks: marks.map((v) => ({ v, text: tick(v, marks[1] - marks[0]) })) }; });
  const left = Math.max(...axes.flatMap((a) => a.marks.map((m) => widthOf(m.text, label)))) + 8, wide = pen.width - left - 10;
  const at = (/** @type {number} */ i) => left + (time(film.steps[i]) / time(last)) * wide;
  CURVES.forEach(([title, , short_title], p) => {
    const y = p * high + 20, tall = high - 42, values = means[p], { good, top, marks } = axes[p], bold = { size: 12, weight: 600 }, up = (/** @type {number} */ v) => y + tall * (1 - v / top);
    pen.label(0, y - 7, fitting([title, short_title], pen.width, bold), { fill: ink, ...bold });
    pen.frame(left, y, wide, tall, line);
    if (!good.length) { pen.label(left + wide / 2, y + tall / 2, "not defined for this model", { fill: muted, ...label, align: "center" }); return; }
    for (const { v, text } of marks) { pen.line(left, up(v), left + wide, up(v), line); pen.label(left - 5, up(v) + 4, text, { fill: muted, ...label, align: "right" }); }
    pen.label(left + wide, y + tall + 14, `step ${whole(last)}`, { fill: muted, ...label, align: "right" });
    pen.label(left, y + tall + 14, "0", { fill: muted, ...label });
    /** @type {[number, number][]} */
    const points = [];
    values.forEach((v, i) => { if (i <= now && Number.isFinite(v)) points.push([at(i), up(v)]); });
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
  $("clock").textContent = `step ${whole(film.steps[now])} of ${whole(last)}`;
  draw();
}

function stop() {
  if (playing !== null) cancelAnimationFrame(playing);
  playing = null;
  button.textContent = "Play";
}

function play() {
  const from = now >= film.length - 1 ? 0 : now, begun = performance.now();
  const next = () => {
    const i = from + Math.floor(((performance.now() - begun) / (1000 * SECONDS)) * film.length);
    if (i >= film.length - 1) { show(film.length - 1); stop(); return; }
    if (i !== now) show(i);
    playing = requestAnimationFrame(next);
  };
  button.textContent = "Pause";
  playing = requestAnimationFrame(next);
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
  tip.textContent = `${word(film.run.classes, bar.token)}, ${REACH[bar.reach]}, class ${k}, step ${whole(film.steps[frame])}: ${short(film.attention(frame, k)[bar.j])}`;
  tip.style.left = `${Math.min(window.innerWidth - tip.offsetWidth - 8, event.clientX + 12)}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

function begin() {
  $("about").textContent = settings(film);
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

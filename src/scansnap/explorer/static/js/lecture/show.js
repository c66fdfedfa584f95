// A lecture on the screen: one sentence in large type, the stage, one curve; forward and back through the beats, and
// questions the audience answers before the reveal. The page and the offline file both give lectures with this.

import { AttentionPainter, barAt } from "../draw/attention.js";
import { colours } from "../draw/colours.js";
import { REACH, name, word } from "../draw/film.js";
import { percent, short, whole } from "../draw/format.js";
import { CanvasPen, unit } from "../draw/pen.js";
import { h, maths } from "../page/dom.js";
import { describe, difference, peak, until, verdict } from "./beats.js";
import { TITLES, drawCurve, lines } from "./curve.js";
import { drawMarks } from "./marks.js";

/** @import { Cell } from "../draw/attention.js" */
/** @import { Film, Reach } from "../draw/film.js" */
/** @import { Deck } from "../messages.js" */
/** @typedef {{film: Film, against: Film | null}} Films */
/** @typedef {"asking" | "playing" | "there"} Phase  A question waits; the beat plays; it is where it ends. */

const LARGER = [1.35, 1.35, 1.35, 1.15, 1.15]; // than on the page, by classes on the stage: it is read from the last row
const time = (/** @type {number} */ step) => Math.log(step + 1);

export class Show {
  /**
   * @param {HTMLElement} root  where it is shown
   * @param {Deck} deck
   * @param {(beat: number) => Promise<Films>} films
   * @param {{tools?: HTMLElement[], leave?: () => void, phase?: (phase: Phase) => void, reveal?: string}} how
   *   phase: called with each; reveal: how the answer is shown, in words
   */
  constructor(root, deck, films, { tools = [], leave = () => {}, phase = () => {}, reveal = "The next key reveals it." } = {}) {
    this.reveal = reveal;
    this.entered = phase;
    this.root = root;
    this.deck = deck;
    this.films = films;
    this.leave = leave;
    this.at = 0;
    /** @type {Phase} */
    this.phase = "there";
    /** @type {Films | null} */
    this.now = null;
    /** @type {Film | null} */
    this.shown = null; // the film as far as it has come: what follows is for later
    /** @type {Map<number, number>} */
    this.choices = new Map(); // the token chosen, by beat
    /** @type {Cell[]} */
    this.cells = [];
    /** @type {import("./curve.js").Line[]} */
    this.lines = []; // of the whole film
    this.playing = 0;
    this.dirty = false;
    this.painter = new AttentionPainter(colours());
    this.sentence = h("p", { class: "sentence", "aria-live": "polite" });
    this.result = h("p", { class: "result", "aria-live": "polite" });
    this.wait = h("p", { class: "wait", hidden: true });
    this.stage = h("canvas", { role: "img", "aria-label": "Attention per token and class" });
    this.curve = h("canvas", { role: "img", "aria-label": "The curve" });
    this.caption = h("h2", {});
    this.about = h("p", { class: "about" });
    this.clock = h("output", { class: "clock", "aria-live": "off" });
    this.stageBox = h("div", { class: "canvas stagebox" }, this.wait, this.stage);
    this.curveBox = h("div", { class: "canvas" }, this.curve);
    this.curveSide = h("section", { class: "side" }, this.caption, this.curveBox);
    this.dots = deck.beat.map((_, i) => h("button", { type: "button", "aria-label": `Beat ${i + 1}`, onclick: () => this.go(i) }));
    const walk = [
      h("button", { type: "button", class: "icon", "aria-label": "Back", title: "Back (←)", onclick: () => this.back() }, "‹"),
      h("button", { type: "button", class: "icon", "aria-label": "Forward", title: "Forward (→)", onclick: () => this.forward() }, "›")];
    this.over = h("li", { class: "pinned", hidden: true });
    this.keys = ["only", "several", "every"].map((reach) => h("li", { class: reach }, REACH[/** @type {Reach} */ (reach)]));
    root.replaceChildren(
      h("header", { class: "lecturehead" }, h("p", {}, h("b", {}, maths(deck.title)), deck.author ? `, ${deck.author}` : ""), h("nav", { class: "tools", "aria-label": "Lecture" }, walk, tools)),
      h("div", { class: "words" }, this.sentence, this.result),
      h("div", { class: "views" }, this.stageBox, this.curveSide),
      h("footer", {}, h("div", { class: "dots", role: "group", "aria-label": "Beats" }, this.dots),
        h("ul", { class: "legend", "aria-label": "Colours" }, this.keys, h("li", { class: "start" }, "at step 0"), this.over),
        this.about, this.clock));
    this.stage.addEventListener("click", (event) => this.click(event));
    this.stage.addEventListener("pointermove", (event) => this.hover(event));
    this.resized = new ResizeObserver(() => this.soil());
    for (const box of [root, this.stageBox, this.curveBox]) this.resized.observe(box);
    this.ended = false;
    const loop = () => { if (this.ended) return; if (this.dirty) this.draw(); requestAnimationFrame(loop); };
    requestAnimationFrame(loop);
  }

  get beat() { return this.deck.beat[this.at]; }

  /** The classes on the stage: those to look at, the one that is asked about, or all. */
  get classes() {
    const { highlight, predict } = this.beat, n = this.now?.film.run.classes.n_classes ?? 0;
    return highlight.classes.length ? highlight.classes : predict ? [predict.class] : Array.from({ length: n }, (_, k) => k);
  }

  soil() { this.dirty = true; }

  theme() {
    this.painter = new AttentionPainter(colours());
    this.soil();
  }

  end() {
    this.ended = true;
    this.stop();
    this.resized.disconnect();
  }

  /**
   * Opens a beat; backwards it is shown where it ends.
   * @param {number} i
   */
  async go(i, back = false) {
    this.stop();
    this.at = Math.max(0, Math.min(this.deck.beat.length - 1, i));
    const beat = this.beat, mine = this.at;
    this.dots.forEach((dot, k) => { dot.classList.toggle("past", k < mine); if (k === mine) dot.setAttribute("aria-current", "step"); else dot.removeAttribute("aria-current"); });
    this.root.dataset.beat = String(mine + 1);
    this.root.dataset.phase = "waiting";
    this.now = this.shown = null;
    const asks = beat.predict !== null && !back;
    this.say(asks ? "asking" : "there");
    this.caption.replaceChildren(maths(TITLES[beat.curve]));
    this.waits("Computing the run");
    let films;
    try { films = await this.films(mine); } catch (error) { if (this.at === mine && !this.ended) this.waits(error instanceof Error ? error.message : String(error)); return; }
    if (this.at !== mine || this.ended) return;
    this.waits("");
    this.now = films;
    const { film, against } = films, s = film.run.setup;
    this.shown = Object.assign(Object.create(film), { peak: peak(film, beat.to, this.classes) });
    this.lines = lines(film, beat.curve, this.classes);
    if (beat.curve === "logits") this.caption.append(` of query ${name(film.run.classes, film.run.layout.queries[film.run.layout.class_query[this.classes[0]]])}`);
    this.about.replaceChildren(maths(describe(s)));
    const reaches = film.reaches();
    for (const key of this.keys) key.hidden = !reaches.includes(/** @type {Reach} */ (key.className));
    this.over.hidden = !against;
    if (against) this.over.replaceChildren(h("span", {}, "the other run: ", maths(difference(against.run.setup, s))));
    this.show(back ? beat.to : beat.from);
    if (asks) return this.enter("asking");
    if (back || beat.from === beat.to) return this.enter("there");
    this.play();
  }

  /** What is still to come in this beat, then the next one. */
  forward() {
    if (this.phase === "asking") { if (this.now) this.play(); return; }
    if (this.phase === "playing") { this.stop(); this.arrive(); return; }
    if (this.at < this.deck.beat.length - 1) this.go(this.at + 1);
  }

  back() {
    if (this.at > 0) this.go(this.at - 1, true);
  }

  /** From the beat's first step to its last, paced by ln t; between two frames in between. */
  play() {
    const { from, to, seconds } = this.beat, begun = performance.now();
    this.enter("playing");
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.arrive();
    const tick = () => {
      const share = (performance.now() - begun) / (1000 * seconds);
      if (share >= 1) return this.arrive();
      this.show(Math.exp(time(from) + share * (time(to) - time(from))) - 1);
      this.playing = requestAnimationFrame(tick);
    };
    this.playing = requestAnimationFrame(tick);
  }

  stop() {
    cancelAnimationFrame(this.playing);
    this.playing = 0;
  }

  arrive() {
    this.show(this.beat.to);
    this.enter("there");
  }

  /** @param {Phase} phase */
  enter(phase) {
    this.phase = phase;
    this.root.dataset.phase = phase;
    this.entered(phase);
    this.say(phase);
    this.soil();
  }

  /**
   * The words that belong to a phase: the question until the reveal, then the sentence and what was measured.
   * @param {Phase} phase
   */
  say(phase) {
    const { predict, sentence } = this.beat, open = predict && phase !== "there";
    this.sentence.replaceChildren(maths(open ? predict.question : sentence));
    this.result.replaceChildren();
    this.result.className = "result";
    if (!predict || !this.now) return;
    const { classes } = this.now.film.run, choice = this.choices.get(this.at) ?? null;
    const called = (/** @type {number} */ token) => (classes.words?.[token] ? `“${word(classes, token)}”` : word(classes, token));
    if (phase !== "there") {
      this.result.append(choice === null ? "Click the bar that you think wins." : h("b", {}, `Your choice: ${called(choice)}.`), choice !== null && phase === "asking" ? ` ${this.reveal}` : "");
      return;
    }
    const outcome = verdict(this.beat, this.now.film, choice);
    if (!outcome) return;
    const amount = predict.by === "logits" ? short : percent;
    const result = predict.by === "logits" ? `its logit gains ${short(outcome.value)}` : `${percent(outcome.value)} of the attention`;
    const winner = `${called(outcome.token)}, ${REACH[outcome.reach]}, wins: ${result} at step ${whole(this.beat.to)}.`;
    if (choice !== null) {
      this.result.classList.add(outcome.right ? "correct" : "wrong");
      this.result.append(h("b", {}, outcome.right ? "Right. " : `You said ${called(choice)} (${amount(outcome.chosen)}). `));
    }
    this.result.append(winner[0].toUpperCase() + winner.slice(1));
  }

  /** @param {string} text */
  waits(text) {
    this.wait.textContent = text;
    this.wait.hidden = !text;
    this.stage.hidden = this.curve.hidden = Boolean(text);
  }

  /** @param {number} step */
  show(step) {
    const film = this.now?.film, shown = this.shown;
    if (!film || !shown) return;
    Object.assign(shown, until(film, step), { version: shown.version + 1 });
    this.clock.replaceChildren("step ", h("b", {}, whole(Math.floor(step + 1e-6))), ` of ${whole(film.run.steps)}`);
    this.soil();
  }

  // --- drawing --------------------------------------------------------------------------------------------------------

  get unit() { return unit() * (window.innerWidth < 700 ? 1 : LARGER[this.classes.length] ?? 1); }

  /** @param {HTMLCanvasElement} canvas */
  pen(canvas) {
    const u = canvas === this.stage ? this.unit : unit() * (window.innerWidth < 700 ? 1 : LARGER[0]), { clientWidth: w, clientHeight: high } = canvas.parentElement ?? canvas;
    return new CanvasPen(canvas, w / u, high / u, (window.devicePixelRatio || 1) * u);
  }

  scene() {
    const shown = /** @type {Film} */ (this.shown);
    return { film: shown, index: shown.length - 1, classes: this.classes, axis: time, pinned: this.now?.against ?? null };
  }

  draw() {
    if (!this.now || !this.shown?.length) return;
    this.dirty = false;
    const pen = this.pen(this.stage), lit = this.beat.highlight.views;
    this.cells = this.painter.draw(pen, this.scene());
    const marks = { beat: this.beat, film: this.now.film, choice: this.choices.get(this.at) ?? null, revealed: this.phase === "there", ink: this.painter.colours.ink };
    for (const cell of this.cells) drawMarks(pen, cell, marks);
    drawCurve(this.pen(this.curve), { ...this.now, shown: this.shown, all: this.lines, beat: this.beat, classes: this.classes, colours: this.painter.colours });
    this.curveSide.classList.toggle("dim", lit.length > 0 && !lit.includes("curve"));
    this.stageBox.classList.toggle("dim", lit.length > 0 && !lit.includes("bars") && !lit.includes("history"));
    this.stage.setAttribute("aria-label", `Attention at step ${Math.floor(this.shown.lastStep)}. ${this.sentence.textContent}`);
  }

  // --- hands ----------------------------------------------------------------------------------------------------------

  /** @param {MouseEvent} event */
  barUnder(event) {
    const b = this.stage.getBoundingClientRect(), u = this.unit;
    return this.shown?.length ? barAt(this.cells, this.scene(), (event.clientX - b.left) / u, (event.clientY - b.top) / u) : null;
  }

  /** @param {MouseEvent} event */
  click(event) {
    const hit = this.barUnder(event);
    if (this.phase === "asking" && hit && hit.k === this.beat.predict?.class) this.choose(hit.bar.token);
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const hit = this.barUnder(event), film = this.shown;
    this.stage.style.cursor = this.phase === "asking" && hit ? "pointer" : "default";
    this.stage.title = hit && film ? `${word(film.run.classes, hit.bar.token)}, ${REACH[hit.bar.reach]}: ${short(film.attention(Math.min(hit.frame, film.length - 1), hit.k)[hit.bar.j])}` : "";
  }

  /** @param {number} token */
  choose(token) {
    this.choices.set(this.at, token);
    this.say(this.phase);
    this.soil();
  }

  /**
   * The choice moves along the bars, for hands without a mouse.
   * @param {1 | -1} by
   */
  shift(by) {
    const list = this.cells.find((cell) => cell.k === this.beat.predict?.class)?.list;
    if (this.phase !== "asking" || !list) return;
    const at = list.findIndex((bar) => bar.token === this.choices.get(this.at)), n = list.length;
    this.choose(list[at < 0 ? (by > 0 ? 0 : n - 1) : (at + by + n) % n].token);
  }

  /**
   * What presenters and keyboards send; true if it was for the lecture.
   * @param {KeyboardEvent} event
   */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const pressing = event.target instanceof Element && event.target.matches("button");
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowRight: () => this.forward(), PageDown: () => this.forward(), ArrowLeft: () => this.back(), PageUp: () => this.back(),
      Home: () => this.go(0), End: () => this.go(this.deck.beat.length - 1), ArrowUp: () => this.shift(-1), ArrowDown: () => this.shift(1),
      b: () => this.root.classList.toggle("black"), ".": () => this.root.classList.toggle("black"), r: () => this.go(this.at), Escape: () => this.leave(),
      ...(pressing ? {} : { " ": () => this.forward(), Enter: () => this.forward() }),
    };
    const act = acts[event.key];
    if (act) { event.preventDefault(); act(); }
    return Boolean(act);
  }
}

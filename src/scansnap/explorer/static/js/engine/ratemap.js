// Where attention ends up over the rates: runs of one set-up that differ in η_Y and η_Z alone read one stream of
// mini-batches. The twin of explorer/pages/rates.py.

import { Measures } from "./model/measures.js";
import { linspace } from "./setup/presets.js";
import { Batches, Simulation } from "./model/simulation.js";

/** @import { Blueprint } from "./setup/blueprint.js" */
/** @import { Declared } from "./setup/settings.js" */
/** @import { Batch } from "./model/yz.js" */

const SIDE = 9;
const TOGETHER = 4; // runs at a time: more would leave the cache, and fill the map later
const MOST = 32 << 20; // counts of mini-batches that are kept for the next runs

/**
 * The rates of one side, even in their logarithm, from one end of the slider to the other.
 * @param {Declared} declared
 * @param {string} name
 */
export function mapAxis(declared, name) {
  const control = declared.controls.find((one) => one.name === name);
  return linspace(Math.log(control?.low ?? 0.01), Math.log(control?.high ?? 100), SIDE).map((x) => Number(Math.exp(x).toPrecision(3)));
}

/**
 * @typedef {object} Cell
 * @property {number} row of η_Y
 * @property {number} column of η_Z
 * @property {number} share attention on common tokens; NaN where the run diverged
 * @property {number | null} failed_step
 */

/**
 * Some cells of the map, `part` of `parts`; yields cells as they are computed (often none), so that its caller can do something else.
 * @param {Declared} declared
 * @param {Blueprint} blueprint
 * @param {number} part
 * @param {number} parts
 * @returns {Generator<Cell[], void>}
 */
export function* rateMap(declared, blueprint, part = 0, parts = 1) {
  const { layout, settings, rates, classes } = blueprint, measures = new Measures(classes, layout), axes = [mapAxis(declared, "eta_y"), mapAxis(declared, "eta_z")];
  const batches = new Batches(layout, settings, rates.seed), stream = new Stream(batches), cells = coarseToFine().filter((_, i) => i % parts === part);
  for (let from = 0; from < cells.length; from += TOGETHER) {
    const group = cells.slice(from, from + TOGETHER), runs = group.map(([row, column]) => new Simulation(layout, settings, { ...rates, eta_y: axes[0][row], eta_z: axes[1][column] }, batches));
    for (let step = 0; step < settings.steps && runs.some((run) => run.failedStep < 0); step++) {
      const batch = stream.take(step);
      for (const run of runs) run.update(batch);
      if (step % 20 === 19) yield [];
    }
    yield group.map(([row, column], i) => {
      const { failedStep } = runs[i], hasFailed = failedStep >= 0;
      return { row, column, share: hasFailed ? NaN : measures.commonShare(runs[i].look().attention), failed_step: hasFailed ? failedStep : null };
    });
  }
}

/** The mini-batches of one seed, for runs that read them one after the other: drawn once, as far as they fit. */
class Stream {
  /** @param {Batches} batches */
  constructor(batches) {
    const { settings, batch, weights } = batches, isSampled = settings.context !== Infinity && weights === null && settings.context < 2 ** 16;
    this.batches = batches;
    this.most = isSampled ? Math.min(settings.steps, Math.floor(MOST / batch.counts.length)) : 0; // steps
    this.counts = new Uint16Array(this.most * batch.counts.length);
    this.cls = new Int32Array(this.most * batch.cls.length);
    this.known = 0; // steps drawn so far
  }

  /**
   * @param {number} step
   * @returns {Batch} until the next is asked for
   */
  take(step) {
    const { batches, counts, cls } = this, { batch } = batches, size = batch.counts.length, B = batch.cls.length;
    if (step < this.known) {
      for (let i = 0, from = step * size; i < size; i++) batch.counts[i] = counts[from + i];
      batch.cls.set(cls.subarray(step * B, (step + 1) * B));
      return batch;
    }
    batches.take(step);
    if (step === this.known && step < this.most) {
      counts.set(batch.counts, step * size);
      cls.set(batch.cls, step * B);
      this.known++;
    }
    return batch;
  }
}

/** The cells in an order in which the map is first coarse, then fine. */
function coarseToFine() {
  const level = (/** @type {number} */ i) => (i % 4 === 0 ? 0 : i % 2 === 0 ? 1 : 2), cells = [];
  for (let row = 0; row < SIDE; row++) for (let column = 0; column < SIDE; column++) cells.push([row, column]);
  return cells.sort((a, b) => Math.max(level(a[0]), level(a[1])) - Math.max(level(b[0]), level(b[1])));
}

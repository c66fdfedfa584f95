// The worker: computes requests of the page in slices, and reads messages between them. Of two requests in one lane the newest
// wins: the older one ends with "cancelled". With its imports it is one script, which a page can start from a Blob.

import { readSetup } from "./setup/blueprint.js";
import { InputError } from "./errors.js";
import { NonFinite } from "./theory/integrators.js";
import { rateMap } from "./ratemap.js";
import { Run } from "./model/run.js";
import { overlayOf, theoryOf } from "./theory/theory.js";

/** @import { Declared } from "./setup/settings.js" */

/**
 * To the worker: {declared} once, then requests {id, lane, op, …}, and {cancel: id}. From it: {id, type, …}, with type
 * "about" (run), "frames" (steps, values: transferred), "cells" (map), "table" (Y), "done" (with the answer), "cancelled"
 * or "error" (field, message).
 * @typedef {{id: number, lane: string, op: string, [name: string]: any}} Request
 */

/** @typedef {{postMessage: (message: any, transfer?: Transferable[]) => void, onmessage: ((event: {data: any}) => void) | null}} Port */

/** @typedef {(type: string, content?: object, transfer?: Transferable[]) => void} Send */

const SLICE = 12; // milliseconds of work between looks at the messages
const BATCH = 40; // milliseconds of frames in one message

/** The run of the last requested table. @type {{key: string, run: Run} | null} */
let cached = null;

/**
 * What can be asked; each yields between slices of its work and returns its answer.
 * @type {Record<string, (declared: Declared, request: Request, send: Send) => Generator<void, any>>}
 */
const OPERATIONS = {
  /** A run: "about", then frames as they come; `table`: then Y of at most so many rows and columns. */
  *film(declared, { setup, marks = [], table = 0 }, send) {
    const blueprint = readSetup(declared, setup), run = new Run(blueprint, marks);
    send("about", { setup: blueprint.setup, classes: blueprint.classes.summary(), theory: theoryOf(declared, blueprint), layout: run.frames, steps: run.steps, note: blueprint.note });
    for (let isFirst = true; !run.isOver || isFirst; isFirst = false) {
      const frames = [], end = performance.now() + (isFirst ? 0 : BATCH);
      do {
        frames.push(...run.advance(SLICE));
        yield;
      } while (!run.isOver && performance.now() < end);
      const { floats } = run.frames, steps = Uint32Array.from(frames, ({ step }) => step), values = new Float64Array(frames.length * floats);
      frames.forEach((frame, i) => values.set(frame.values, i * floats));
      send("frames", { steps, values, floats, step: run.step }, [steps.buffer, values.buffer]);
    }
    if (table > 0) send("table", run.tableY(table));
    return { step: run.step, failed_step: run.simulation.failedStep >= 0 ? run.simulation.failedStep : null };
  },

  /** Y of a run at a step; the run stays here, so that a later step goes on from where it is. */
  *table(declared, { setup, marks = [], step, size }) {
    const key = JSON.stringify([setup, marks]), run = cached?.key === key && cached.run.step <= step ? cached.run : new Run(readSetup(declared, setup), marks);
    cached = { key, run };
    while (run.step < step && !run.isOver) {
      run.advanceTo(step, SLICE);
      yield;
    }
    return run.tableY(size);
  },

  /** Some cells of the map of the rates. */
  *map(declared, { setup, part = 0, parts = 1 }, send) {
    const blueprint = readSetup(declared, setup);
    for (const cells of rateMap(declared, blueprint, part, parts)) {
      if (cells.length) send("cells", { cells });
      yield;
    }
    return {};
  },

  /** The flow or the response beside a run. */
  *flow(declared, { setup, ...asked }) {
    const overlay = overlayOf(declared, readSetup(declared, setup), /** @type {any} */ (asked));
    for (;;) {
      const { done, value } = overlay.next();
      if (done) return value;
      yield;
    }
  },
};

/**
 * Answers the messages of a port.
 * @param {Port} port
 */
export function serve(port) {
  /** @type {Declared | null} */
  let declared = null;
  /** @type {{id: number, lane: string, send: Send, work: Generator<void, any>}[]} */
  const jobs = [];
  const turn = new MessageChannel(); // sooner than a timer, and after the messages that wait
  let isTurning = false;
  const next = () => {
    isTurning = jobs.length > 0;
    if (isTurning) turn.port2.postMessage(0);
  };

  /** @param {(job: {id: number, lane: string}) => boolean} which */
  const cancel = (which) => {
    for (const job of jobs.filter(which)) {
      jobs.splice(jobs.indexOf(job), 1);
      job.send("cancelled");
    }
  };

  port.onmessage = ({ data }) => {
    if (data.declared) declared = data.declared;
    else if (data.cancel !== undefined) cancel(({ id }) => id === data.cancel);
    else if (declared) {
      const { id, lane, op } = /** @type {Request} */ (data);
      /** @type {Send} */
      const send = (type, content = {}, transfer = []) => port.postMessage({ id, type, ...content }, transfer);
      cancel((job) => job.lane === lane);
      if (op in OPERATIONS) jobs.push({ id, lane, send, work: OPERATIONS[op](declared, data, send) });
      else send("error", { field: "request", message: `op: expected one of ${Object.keys(OPERATIONS).join(", ")}, got ${op}` });
      if (!isTurning) next();
    }
  };

  turn.port1.onmessage = () => {
    const job = jobs.shift();
    if (job) {
      const end = performance.now() + SLICE;
      try {
        let result = job.work.next();
        while (!result.done && performance.now() < end) result = job.work.next();
        if (result.done) job.send("done", { answer: result.value });
        else jobs.push(job); // lanes take turns
      } catch (error) {
        job.send("error", refusal(error));
      }
    }
    next();
  };
  const close = () => {
    turn.port1.close();
    turn.port2.close();
  };
  return close;
}

/** @param {unknown} error */
function refusal(error) {
  if (error instanceof InputError) return { field: error.field, message: error.message };
  if (error instanceof NonFinite) return { field: "flow", message: error.message };
  return { field: "request", message: String(error) };
}

if (typeof document === "undefined" && typeof postMessage === "function") serve(/** @type {any} */ (globalThis));

// The page's side of the workers: starts them, sends requests, and hands out what comes back. Operations:
//
//   film  {setup, marks?, table?}          listener: about, frames (float64), table
//   table {setup, marks?, step, size}      Y at a step
//   flow  {setup, last, points?, by?}      flow or response in the layout of the frames
//   map   {setup, part, parts}             listener: cells
//
// What takes no time needs no worker: readSetup, curvesOf, offerWords, toToml, toCsv, Measures and the closed forms.

/**
 * What comes of a request on its way: "about", "frames", "cells" or "table" messages.
 * @typedef {(message: any) => void} Listener
 */

/** A request that a newer one of its lane took the place of. */
export class Cancelled extends Error {}

/** The engine's refusal, with the control that it belongs to. */
export class Refused extends Error {
  /**
   * @param {string} field
   * @param {string} message
   */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** Two workers: the first for the film and short answers, the second for flow; the map is shared out between both. */
export class Workers {
  /**
   * @param {() => Worker} start makes a worker, from a Blob or a file
   * @param {object} declared
   * @param {number} n
   */
  constructor(start, declared, n = 2) {
    this.id = 0;
    /** @type {Map<number, {worker: Worker, listener: Listener | null, resolve: (answer: any) => void, reject: (error: Error) => void}>} */
    this.waiting = new Map();
    this.all = Array.from({ length: n }, () => {
      const worker = start();
      worker.onmessage = ({ data }) => this.hear(data);
      worker.onerror = () => this.lost(worker);
      worker.postMessage({ declared });
      return worker;
    });
  }

  /**
   * The answer of an operation. A newer request in the same lane cancels it: it then rejects with Cancelled.
   * @param {string} op
   * @param {Record<string, any>} request
   * @param {{lane?: string, worker?: number, listener?: Listener | null, signal?: AbortSignal}} how
   * @returns {Promise<any>}
   */
  ask(op, request, { lane = op, worker = op === "flow" ? 1 : 0, listener = null, signal } = {}) {
    const id = ++this.id, to = this.all[worker % this.all.length];
    signal?.addEventListener("abort", () => to.postMessage({ cancel: id }));
    to.postMessage({ ...request, id, lane, op });
    return new Promise((resolve, reject) => this.waiting.set(id, { worker: to, listener, resolve, reject }));
  }

  /**
   * The map of the rates, split between the workers; the listener is called with cells as they are done.
   * @param {object} setup
   * @param {Listener} listener
   */
  map(setup, listener) {
    const parts = this.all.length;
    return Promise.all(this.all.map((_, part) => this.ask("map", { setup, part, parts }, { worker: part, listener })));
  }

  /** @param {any} data */
  hear(data) {
    const request = this.waiting.get(data.id);
    if (!request) return;
    const isEnd = ["done", "cancelled", "error"].includes(data.type);
    if (isEnd) this.waiting.delete(data.id);
    if (data.type === "done") request.resolve(data.answer);
    else if (data.type === "cancelled") request.reject(new Cancelled());
    else if (data.type === "error") request.reject(new Refused(data.field, data.message));
    else request.listener?.(data);
  }

  /** @param {Worker} worker */
  lost(worker) {
    for (const [id, request] of this.waiting) {
      if (request.worker !== worker) continue;
      this.waiting.delete(id);
      request.reject(new Refused("request", "The computation failed; reload the page."));
    }
  }

  close() {
    for (const worker of this.all) worker.terminate();
  }
}

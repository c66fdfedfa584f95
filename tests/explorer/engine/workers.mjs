// Speaks to the bundled worker as the page does: node workers.mjs FOLDER BUNDLE DECLARED; says what came as JSON.
// Node's workers have ports where a browser's have globals, which the first lines of the script make up for.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";

const [folder, bundle, file] = process.argv.slice(2);
const { Cancelled, Refused, Workers } = await import(pathToFileURL(join(folder, "workers.js")).href);
const declared = JSON.parse(readFileSync(file, "utf8"));
const globals = `const { parentPort } = require("node:worker_threads");
globalThis.postMessage = (message, transfer) => parentPort.postMessage(message, transfer);
parentPort.on("message", (data) => globalThis.onmessage({ data }));\n`;

class PageWorker {
  constructor() {
    this.worker = new Worker(globals + readFileSync(bundle, "utf8"), { eval: true });
    this.worker.on("message", (data) => this.onmessage({ data }));
    this.worker.on("error", (error) => { throw error; });
  }
  postMessage(message) { this.worker.postMessage(message); }
  terminate() { return this.worker.terminate(); }
}

const workers = new Workers(() => new PageWorker(), declared), setup = { ...declared.default, steps: 300 };
const outcome = (promise) => promise.then((answer) => ({ answer }), (error) => ({ kind: error instanceof Cancelled ? "cancelled" : error instanceof Refused ? "refused" : String(error), field: error.field }));
const film = (asked, how = {}, onFrames = () => {}) => {
  const heard = { types: [], steps: [], values: [] };
  const listener = ({ type, steps, values, floats }) => {
    heard.types.push(type);
    if (type !== "frames") return;
    onFrames();
    heard.steps.push(...steps);
    for (let i = 0; i < steps.length; i++) heard.values.push([...values.subarray(i * floats, (i + 1) * floats)]);
  };
  return outcome(workers.ask("film", asked, { ...how, listener })).then((end) => ({ ...end, ...heard }));
};

const abort = new AbortController();
const older = film({ setup: { ...setup, steps: 10_000_000 } }), newer = film({ setup, table: 6 });
const beside = outcome(workers.ask("table", { setup, step: 20, size: 6 })), given = film({ setup: { ...setup, steps: 10_000_000 } }, { lane: "other", signal: abort.signal }, () => abort.abort());
const cells = [];
const result = {
  older: await older, newer: await newer, beside: await beside, aborted: await given,
  refused: await outcome(workers.ask("film", { setup: { ...setup, eta_y: -1 } }, { lane: "bad" })),
  unknown: await outcome(workers.ask("nothing", {})),
  flow: await outcome(workers.ask("flow", { setup, last: 100, points: 10 })),
  map: await outcome(workers.map({ ...setup, steps: 10 }, (message) => cells.push(message.cells.length))), cells,
};
workers.close();
console.log(JSON.stringify(result));

/**
 * The engine in the page. What the page calls:
 *
 *     new Workers(start, declared)        two workers; start() makes one, from a Blob of the bundled worker.js
 *       .ask(op, asked, {lane, listener, signal})   a promise of the answer; of one lane the newest request wins
 *         check  {setup}                            setup filled in, classes, theory, note
 *         film   {setup, marks?, table?}            listener: about, frames (float64), table
 *         flow   {setup, last, points?, by?}        flow or response in the layout of the frames
 *         curves {setup, last, points?, c0?}        closed forms
 *         words  {text, pairs?}                     what a pasted text gives to make classes of
 *         toml   {setup, notes?}                    a file for `scansnap run`
 *       .map(setup, listener)                       the map of the rates, cells as they come
 *
 * A refusal rejects with Refused (field, message), a request that was overtaken with Cancelled. `declared` is the JSON of
 * explorer/declared.py. What takes no time can be called without a worker: readSetup, curvesOf, offerWords, toToml, toCsv,
 * Measures, effectiveTokens, and the closed forms.
 */

export { Cancelled, Refused, Workers } from "./workers.js";
export { InputError } from "./errors.js";
export { frameFloats, readSetup } from "./blueprint.js";
export { c0Of, curvesOf, overlaps, theoryOf, whyNot } from "./theory.js";
export { gamma, gammaIntegral, gap, growth, h, tScan, tSnap } from "./closedform.js";
export { Measures, effectiveTokens, entropyOf, timeGrid } from "./measures.js";
export { frameLayout, nextScheduled } from "./run.js";
export { mapAxis } from "./ratemap.js";
export { offerWords } from "./passage.js";
export { parseToml } from "./toml.js";
export { toCsv, toToml } from "./export.js";

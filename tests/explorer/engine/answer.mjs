// Answers the questions of the Python tests with the page's engine: node answer.mjs FOLDER QUESTIONS ANSWERS (JSON files).
// JSON has no infinity: it is the word "inf"; what is not a number comes back as null.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, questions, answers] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(join(folder, `${name}.js`)).href);
const [philox, counts, tokens, pcg, presets, { SequenceClasses }, { layoutOf }, { Simulation, Batches }, { followFlow }, { followResponse }, closed, coefficients, measures] =
  await Promise.all(["sampling/philox", "sampling/counts", "sampling/tokens", "sampling/pcg", "setup/presets", "setup/classes", "model/layout", "model/simulation", "theory/flow", "theory/response", "theory/closedform", "theory/coefficients", "model/measures"].map(load));

const real = (x) => (x === "inf" ? Infinity : x);
const classesOf = (given) => new SequenceClasses(given.preset ? presets[given.preset](given.settings) : given);
const settingsOf = (given) => ({ ...given, context: real(given.context) });

const ask = {
  uniforms: ({ places }) => places.map(([seed, purpose, step, major, minor]) => {
    philox.draw(...philox.keyOf(seed), purpose, step, major, minor);
    return [...philox.uniform];
  }),
  stirling: () => counts.STIRLING,
  permutation: ({ seed, n }) => {
    const random = new pcg.Generator(seed);
    return [random.permutation([...Array(n).keys()]), random.permutation([...Array(n).keys()])];
  },
  /** The classes as they are after reading: tokens, probabilities. */
  classes: ({ classes }) => {
    const { tokens, probs, query, next, M } = classesOf(classes);
    return { tokens, probs, query, next, M };
  },
  /** Mini-batches of some steps. */
  batches: ({ classes, settings, seed, steps }) => {
    const batches = new Batches(layoutOf(classesOf(classes), settings.model), settingsOf(settings), seed), { S, nSlots } = batches.layout, widest = Math.max(...nSlots);
    return steps.map((step) => {
      const { cls, counts: k, weight } = batches.take(step);
      return { cls: [...cls], counts: Array.from(cls, (_, b) => [...k.subarray(b * S, b * S + widest)]), weight: [...weight] };
    });
  },
  tokens: ({ classes, settings, seed, step }) => {
    const batches = new Batches(layoutOf(classesOf(classes), settings.model), settingsOf(settings), seed), { cls } = batches.take(step), slots = new Int32Array(batches.length);
    return [...cls].map((n, b) => {
      tokens.sampleTokens(batches.table, seed, step, b, n, slots);
      return [...slots].map((s) => batches.layout.slots[n * batches.layout.S + s]);
    });
  },
  /** A run to a step: its tables and what is measured of it. */
  run: ({ classes, settings, rates, until }) => {
    const layout = layoutOf(classesOf(classes), settings.model, rates.weight_decay_y + rates.weight_decay_z > 0), run = new Simulation(layout, settingsOf(settings), rates);
    while (run.step < until && run.failedStep < 0) run.advance();
    const { attention, loss } = run.look();
    return { y: [...run.y.values], z: [...run.z.values], attention: bySlot(layout, attention), loss: [loss], failed: run.failedStep };
  },
};

ask.coefficients = () => coefficients;
/** Closed forms at times. */
ask.closed = ({ times, sizes }) => ({
  gap: times.map((t) => closed.gap(t / sizes.K, sizes)), h: times.map((t) => closed.h(t / sizes.K, sizes)), gamma: times.map((t) => closed.gamma(t, sizes)),
  growth: times.map((t) => closed.growth(t, sizes)), t_scan: closed.tScan(sizes), t_snap: closed.tSnap(sizes),
});
ask.grid = ({ last, points }) => measures.timeGrid(last, points);
/** Flow or response at times; tables by query and token, attention by class and slot. */
ask.flow = ({ classes, model, ...options }) => {
  const made = classesOf(classes), layout = layoutOf(made, model), measured = new measures.Measures(made, layout), points = [];
  for (const _ of followFlow(layout, model, options, (point) => points.push(point)));
  return points.map(({ t, z, attention, loss }) => ({ t, z: [...z], loss, attention: bySlot(layout, attention), entropy: measured.entropy(attention) }));
};
ask.response = ({ classes, model, ...options }) => {
  const layout = layoutOf(classesOf(classes), model), points = [];
  for (const _ of followResponse(layout, options, (point) => points.push(point)));
  return points.filter(({ isAsked }) => isAsked).map(({ t, z, drive, z_error, attention, error }) => ({ t, z: [...z], drive: [...drive], z_error: [...z_error], attention: bySlot(layout, attention), error }));
};

const bySlot = ({ K, S, nSlots }, attention) => [...Array(K).keys()].map((n) => [...attention.subarray(n * S, n * S + nSlots[n])]);

const { declared, asked } = JSON.parse(readFileSync(questions, "utf8"));
const [blueprint, theory, runs, ratemap, passage, toml, exporting] = await Promise.all(["setup/blueprint", "theory/theory", "model/run", "ratemap", "setup/passage", "setup/toml", "setup/export"].map(load));
const read = (setup) => blueprint.readSetup(declared, setup);
const words = (key, value) => (value === Infinity ? "inf" : value === -Infinity ? "-inf" : value);

/** A checked set-up, with its classes spelled out and what the theory says of it. */
ask.setup = ({ setup }) => {
  const made = read(setup), { tokens, probs, query, next, p, words: spoken } = made.classes;
  return { setup: made.setup, classes: { tokens, probs, query, next, p: [...p], words: spoken }, summary: made.classes.summary(), note: made.note, floats: blueprint.frameFloats(made.layout), theory: theory.theoryOf(declared, made) };
};
ask.curves = ({ setup, ...rest }) => theory.curvesOf(declared, read(setup), rest);
ask.overlay = ({ setup, ...rest }) => {
  const overlay = theory.overlayOf(declared, read(setup), rest);
  for (;;) {
    const { done, value } = overlay.next();
    if (done) return value;
  }
};
/** All frames of a run, as it is told and as CSV. */
ask.film = ({ setup, marks = [], table = 0 }) => {
  const made = read(setup), run = new runs.Run(made, marks), frames = [];
  while (frames.length === 0 || !run.isOver) frames.push(...run.advance(1000));
  const steps = frames.map(({ step }) => step), values = frames.map((frame) => [...frame.values]);
  return { layout: run.frames, steps, values, csv: exporting.toCsv(made, run.frames, steps, values, 5), table: table && { ...run.tableY(table), values: [...run.tableY(table).values] } };
};
ask.map = ({ setup }) => [0, 1].flatMap((part) => [...ratemap.rateMap(declared, read(setup), part, 2)].flat());
ask.axis = ({ name }) => ratemap.mapAxis(declared, name);
ask.toml = ({ setup, notes }) => exporting.toToml(declared, read(setup), notes);
ask.parse = ({ text }) => toml.parseToml(text);
ask.words = ({ text, pairs = null }) => passage.offerWords(text, pairs, declared.limits.text_characters);

const results = asked.map(({ ask: name, ...rest }) => {
  try {
    return { answer: ask[name](rest) };
  } catch (error) {
    if (error.field === undefined) throw error;
    return { field: error.field, message: error.message };
  }
});
writeFileSync(answers, JSON.stringify(results, words));

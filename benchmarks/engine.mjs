// Times of the page's engine: node benchmarks/engine.mjs [--python .venv/bin/python]
//
// For every preset of the page: milliseconds until its film is complete, of a hundred steps, and of drawing their data
// alone. Then the flow to 100 t₀, and the 9 × 9 map of the default set-up by one worker and (half of it) by each of two.
// Processor time, so that a busy machine does not count; on an idle one it is the time that a visitor waits.

import { execFileSync } from "node:child_process";

const python = process.argv[process.argv.indexOf("--python") + 1 || process.argv.length] ?? "python3";
const load = (name) => import(new URL(`../src/scansnap/explorer/static/js/engine/${name}.js`, import.meta.url).href);
const [{ readSetup }, { Run }, { rateMap }, { overlayOf, theoryOf }] = await Promise.all(["setup/blueprint", "model/run", "ratemap", "theory/theory"].map(load));
const code = "from scansnap.explorer.declared import declared; from scansnap.explorer.page import as_json; print(as_json(declared()))";
const declared = JSON.parse(execFileSync(python, ["-c", code], { encoding: "utf8" }));

const ms = (work) => {
  const before = process.cpuUsage().user;
  work();
  return (process.cpuUsage().user - before) / 1000;
};
const row = (...cells) => console.log(cells.map((cell, i) => (typeof cell === "number" ? cell.toFixed(0) : cell)[i ? "padStart" : "padEnd"](i ? 12 : 16)).join(""));

row("preset", "steps", "film", "100 steps", "draws");
for (const { name, setup } of declared.presets) {
  const run = new Run(readSetup(declared, setup)), batches = run.simulation.batches;
  const film = ms(() => { while (!run.isOver) run.advance(1000); });
  row(name, run.steps, film, film / run.steps * 100, ms(() => { for (let step = 0; step < 100; step++) batches.take(step); }));
}

const whole = (generator) => { while (!generator.next().done); };
for (const name of ["figure-4", "words", "textbook"]) {
  const blueprint = readSetup(declared, declared.presets.find((preset) => preset.name === name).setup), last = 100 * theoryOf(declared, blueprint).t_snap;
  row(`flow ${name}`, ms(() => whole(overlayOf(declared, blueprint, { last }))));
}
for (const steps of [100, 1000]) {
  const blueprint = readSetup(declared, { ...declared.default, steps });
  row(`map, ${steps} steps`, ms(() => whole(rateMap(declared, blueprint))), ms(() => whole(rateMap(declared, blueprint, 0, 2))));
}

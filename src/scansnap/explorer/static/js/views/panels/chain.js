// From a bar to a probability: what one context token does for one class, with the numbers of the step on screen.
//
// Attention is c_l = P(l|n) e^{z_l} / Σ, the output of attention f = c/‖c‖, the logit of a next token j is Σ_l f_l Y[l, j],
// and its probability the softmax of the logits. Everything but Y is in the film; Y is asked for.

import { $, h, maths, throttle } from "../../page/dom.js";
import { app, emit, frameIndex, on } from "../../app.js";
import { REACH, name } from "../../draw/film.js";
import { percent, short, whole } from "../../draw/format.js";
import { askTable } from "../../compute/runner.js";
import * as tabs from "../../page/tabs.js";

/** @import { Film } from "../../draw/film.js" */
/** @typedef {{step: number, values: Float32Array}} Table */
/** @typedef {{f: number, y: number, vote: number, total: number, alpha: number, without: number, others: {token: number, vote: number}[]}} Votes */
/** @typedef {{step: number, p: number, z: number, c: number, c0: number, votes: Votes | null, why: string}} Chain */

const SIZE = 256; // the largest table that comes as it is
const panel = $("panel-chain"), body = h("div", { class: "chain" });
const classSelect = h("select", { id: "chain-class", onchange: () => pick(Number(classSelect.value), null) });
const tokenSelect = h("select", { id: "chain-token", onchange: () => pick(app.bar?.k ?? 0, Number(tokenSelect.value)) });
/** @type {Table | null} */
let table = null;
let shown = false;
let listed = ""; // what the two lists are of

export function start() {
  panel.append(h("div", { class: "chainform" }, h("label", {}, "Class", classSelect), h("label", {}, "Context token", tokenSelect)), body);
  on("bar", ({ k, token }) => { pick(k, token); tabs.pick("chain"); panel.scrollIntoView({ block: "nearest" }); });
  on("table", (message) => { table = message; draw(); });
  on("run", () => { table = null; });
  on("run frames cursor state", () => { fill(); ask(); draw(); });
}

/** @param {boolean} is */
export function visible(is) {
  shown = is;
  if (is) { fill(); ask(); draw(); }
}

const ask = throttle(() => { if (shown && app.film?.length) askTable(SIZE, app.film.steps[frameIndex()]); }, 200);

/**
 * Shows a class, and of it a token; left out, the one with most attention now.
 * @param {number} k
 * @param {number | null} token
 */
function pick(k, token) {
  const film = app.film;
  if (!film?.length || !film.run.layout.tokens[k]) return;
  const own = film.run.layout.tokens[k], c = film.attention(frameIndex(), k);
  app.bar = { k, token: token !== null && own.includes(token) ? token : own[c.indexOf(Math.max(...c))] };
  emit("bar-shown");
  fill();
  draw();
}

/** The two lists, for the run on screen; with other classes or words another bar. */
function fill() {
  const film = app.film;
  if (!film?.length || !shown) return;
  const { classes, layout } = film.run, tokens = JSON.stringify([classes.words, layout.tokens]), same = !listed || listed.startsWith(tokens);
  if (!same || !app.bar || !layout.tokens[app.bar.k]?.includes(app.bar.token)) {
    listed = "";
    return pick(Math.max(0, Math.min(app.bar?.k ?? app.focus, classes.n_classes - 1)), null);
  }
  const { k, token } = app.bar, now = `${tokens} ${k} ${token}`;
  if (now === listed) return;
  listed = now;
  classSelect.replaceChildren(...classes.classes.map((c, i) => h("option", { value: i, selected: i === k }, `${name(classes, c.query)} → ${name(classes, c.next_token)}`)));
  tokenSelect.replaceChildren(...layout.tokens[k].map((t) => h("option", { value: t, selected: t === token }, `${name(classes, t)}, ${film.kind(k, t)}`)));
}

/**
 * The numbers of a token of class k at the step of a table, or at the one on screen where there is no table.
 * @param {Film} film
 * @param {Table | null} yTable
 * @param {number} k
 * @param {number} token
 * @returns {Chain}
 */
export function chainOf(film, yTable, k, token) {
  const { layout, classes } = film.run, at = yTable ? film.at(yTable.step) : -1, fits = yTable !== null && film.steps[at] === yTable.step;
  const i = fits ? at : frameIndex(), j = layout.tokens[k].indexOf(token), c = film.attention(i, k), q = layout.class_query[k];
  const own = classes.classes[k], p = own.p[own.tokens.indexOf(token)] ?? 0;
  const { votes, why } = fits ? votesOf(film, yTable, i, k, j) : { votes: null, why: "Waiting for the decoder's table." };
  return { step: film.steps[i], p, z: film.z(i, q)[layout.query_tokens[q].indexOf(token)], c: c[j], c0: film.attention(0, k)[j], votes, why };
}

/**
 * @param {Film} film
 * @param {Table} yTable
 * @param {number} i  the frame of the table's step
 * @param {number} k
 * @param {number} j  the token's place in the class
 * @returns {{votes: Votes | null, why: string}}
 */
function votesOf(film, { values }, i, k, j) {
  const { setup, layout, classes } = film.run, rows = values[0], columns = values[1];
  const none = (/** @type {string} */ why) => ({ votes: null, why });
  if (!["l2", "none"].includes(setup.norm) || setup.residual !== "none" || setup.heads > 1) return none("Votes are taken apart for one head, norm l2 or none, and no residual connection.");
  if (rows >= SIZE || columns >= SIZE) return none(`The table Y is too large to be taken apart here: fewer than ${SIZE} tokens and outputs.`);
  const rowAt = new Map([...values.subarray(2, 2 + rows)].map((t, r) => [t, r])), outputs = values.subarray(2 + rows, 2 + rows + columns), y = values.subarray(2 + rows + columns);
  const c = film.attention(i, k), tokens = layout.tokens[k], norm = setup.norm === "l2" ? Math.hypot(...c) : 1, next = outputs.indexOf(classes.classes[k].next_token);
  const vote = (/** @type {number} */ l, /** @type {number} */ o) => (c[l] / norm) * (y[(rowAt.get(tokens[l]) ?? 0) * columns + o] ?? 0);
  const logits = Array.from(outputs, (_, o) => tokens.reduce((sum, _token, l) => sum + vote(l, o), 0));
  const times = Array.from(outputs, (t) => (t === -1 ? classes.vocab_size - (columns - 1) : 1)); // “other” stands for all that are never next
  const others = tokens.map((token, l) => ({ token, vote: vote(l, next) })).sort((a, b) => b.vote - a.vote);
  return { votes: {
    f: c[j] / norm, y: y[(rowAt.get(tokens[j]) ?? 0) * columns + next], vote: vote(j, next), total: logits[next], others,
    alpha: softmax(logits, times, next), without: softmax(logits.map((v, o) => v - vote(j, o)), times, next),
  }, why: "" };
}

/**
 * @param {number[]} logits
 * @param {number[]} times  how many outputs each stands for
 * @param {number} at
 */
function softmax(logits, times, at) {
  const top = Math.max(...logits), sum = logits.reduce((s, v, o) => s + times[o] * Math.exp(v - top), 0);
  return Math.exp(logits[at] - top) / sum;
}

const draw = throttle(() => {
  const film = app.film;
  if (!shown || !film?.length || !app.bar || !film.run.layout.tokens[app.bar.k]?.includes(app.bar.token)) return;
  const { k, token } = app.bar, { classes } = film.run, own = classes.classes[k];
  const word = (/** @type {number} */ t) => `“${name(classes, t)}”`, now = chainOf(film, table, k, token), { votes } = now;
  const [it, last, next] = [token, own.query, own.next_token].map(word), screen = film.steps[frameIndex()];
  /** @type {(id: string, what: string, value: number, reads: string, ...says: (string | Node)[]) => HTMLElement} */
  const link = (id, what, value, reads, ...says) => h("li", { id: `chain-${id}`, "data-value": value }, h("span", {}, maths(what)), h("b", {}, reads), h("p", {}, says));
  body.replaceChildren(
    h("h2", {}, `How ${it} counts for ${next} after ${last}`),
    h("p", { class: "explain", id: "chain-step", "data-value": now.step }, `At step ${whole(now.step)}${now.step === screen ? "" : `, the nearest to step ${whole(screen)} that has a table`}.`),
    h("ol", {},
      link("p", "token", now.p, it, `${REACH[film.reach(k, token)]}; ${short(100 * now.p)}% of its context words`),
      link("z", "logit z", now.z, short(now.z), maths(`learned by ${last} for ${it}: it multiplies the weight of ${it} by e^{z} = ${short(Math.exp(now.z))}`)),
      link("c", "attention c", now.c, short(now.c), maths(`its share of P e^{z}; at step 0 it was ${short(now.c0)}`)),
      ...(votes ? [
        link("vote", "vote f·Y", votes.vote, short(votes.vote), maths(`normalised attention f = c/‖c‖ = ${short(votes.f)} times Y[l, n] = ${short(votes.y)}, out of ${short(votes.total)} that all tokens together give ${next}`)),
        link("alpha", "probability", votes.alpha, percent(votes.alpha), `of ${next}, by the softmax of all votes; without the vote of ${it} it would be ${percent(votes.without)}`),
      ] : [h("li", { class: "without" }, h("p", {}, now.why))])),
    ...(votes ? [h("h3", {}, `All votes for ${next}`), list(votes.others, token, k, film)] : []));
}, 100);

/**
 * The tokens by their vote, as bars.
 * @param {Votes["others"]} all
 * @param {number} token  the one that is shown
 * @param {number} k
 * @param {Film} film
 */
function list(all, token, k, film) {
  const top = Math.max(1e-12, ...all.map((v) => Math.abs(v.vote))), few = all.length > 14 ? [...all.slice(0, 10), ...all.slice(-3)] : all;
  return h("ul", { class: "votes" }, few.map((v) => {
    const bar = h("i", { class: film.reach(k, v.token) });
    bar.style.width = `${(100 * Math.abs(v.vote)) / top}%`;
    return h("li", {}, h("button", { type: "button", "aria-pressed": String(v.token === token), onclick: () => pick(k, v.token) }, name(film.run.classes, v.token)), h("div", {}, bar), h("em", {}, short(v.vote)));
  }));
}

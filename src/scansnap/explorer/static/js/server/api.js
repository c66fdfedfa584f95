// HTTP: JSON in, JSON out; a refusal becomes an error with its field.

/** @import { Catalogue, CheckSaid, ClaimsSaid, CurvesAsked, CurvesSaid, Decks, FlowAsked, FlowSaid, LensSaid, MapSaid, ProbeFiles, Setup, TextModels, Tour, WordsAsked, WordsSaid } from "../messages.js" */

export class Refusal extends Error {
  /**
   * @param {string} field
   * @param {string} message
   * @param {number} status
   */
  constructor(field, message, status) {
    super(message);
    this.field = field;
    this.status = status;
  }
}

/**
 * The address of something on this server: a proxy may have put the page, and with it everything, under a path.
 * @param {string} path
 */
export const url = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(url(path), options);
  } catch (e) {
    if (isAbort(e)) throw e;
    throw new Refusal("request", "The server does not answer.", 0);
  }
  if (response.ok) return response;
  /** @type {{field?: string, message?: string}} */
  let said = {};
  try { said = await response.json(); } catch { /* not JSON */ }
  throw new Refusal(said.field ?? "request", said.message ?? `The server answered ${response.status}.`, response.status);
}

/**
 * @param {string} path
 * @param {object} body
 * @param {AbortSignal} [signal]
 */
const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

/**
 * Whether a request ended because nobody wants its answer any more.
 * @param {unknown} error
 */
export const isAbort = (error) => error instanceof DOMException && error.name === "AbortError";

/** @type {() => Promise<Catalogue>} */
export const catalogue = async () => (await ask("/api/catalogue")).json();
/** @type {() => Promise<Tour>} */
export const tour = async () => (await ask("/api/tour")).json();
/** @type {() => Promise<Decks>} */
export const decks = async () => (await ask("/api/decks")).json();
/** What gives a lecture in one file, but for its data. @type {() => Promise<string>} */
export const lecturePage = async () => (await ask("/api/lecture.html")).text();
/** @type {(setup: Setup, signal?: AbortSignal) => Promise<CheckSaid>} */
export const check = async (setup, signal) => (await post("/api/check", setup, signal)).json();
/** @type {(body: WordsAsked, signal: AbortSignal) => Promise<WordsSaid>} */
export const words = async (body, signal) => (await post("/api/words", body, signal)).json();
/** @type {(body: CurvesAsked, signal: AbortSignal) => Promise<CurvesSaid>} */
export const curves = async (body, signal) => (await post("/api/curves", body, signal)).json();
/** @type {(body: FlowAsked, signal: AbortSignal) => Promise<FlowSaid>} */
export const flow = async (body, signal) => (await post("/api/flow", body, signal)).json();
/** @type {(setup: Setup, signal: AbortSignal) => Promise<MapSaid>} */
export const map = async (setup, signal) => (await post("/api/map", setup, signal)).json();
/** @type {(setup: Setup) => Promise<string>} */
export const toml = async (setup) => (await post("/api/toml", setup)).text();
/** @type {(run: string, step: number | null) => Promise<ClaimsSaid>} */
export const claims = async (run, step) => (await ask(`/api/runs/${run}/claims${step === null ? "" : `?step=${step}`}`)).json();
/** @type {() => Promise<TextModels>} */
export const lensModels = async () => (await ask("/api/lens")).json();
/** @type {() => Promise<ProbeFiles>} */
export const probes = async () => (await ask("/api/probes")).json();
/**
 * Whether a report can be made; refused with the reason.
 * @type {(address: string) => Promise<unknown>}
 */
export const probe = async (address) => (await ask(address)).text();
/** @type {(name: string, query: string) => Promise<LensSaid>} */
export const lens = async (name, query) =>
  (await ask(`/api/lens/${encodeURIComponent(name)}?query=${encodeURIComponent(query)}`)).json();
/**
 * A text file of a run: "toml", "csv" or "film.html".
 * @type {(run: string, what: string) => Promise<string>}
 */
export const file = async (run, what) => (await ask(`/api/runs/${run}/${what}`)).text();

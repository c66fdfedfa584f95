// What only Python can answer: a server on the loopback address that was started with the page, and nothing else.

import { Refused } from "../engine/workers.js";
import { isAbort } from "./engine.js";

/** @import { Claim, LensAnswer, ProbeFiles, Setup, TextModels } from "../messages.js" */

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI).href, options);
  } catch (e) {
    if (isAbort(e)) throw e;
    throw new Refused("request", "The server does not answer.");
  }
  if (response.ok) return response;
  /** @type {{field?: string, message?: string}} */
  let answer = {};
  try { answer = await response.json(); } catch { /* not JSON */ }
  throw new Refused(answer.field ?? "request", answer.message ?? `The server answered ${response.status}.`);
}

/** @type {() => Promise<TextModels>} */
export const lensModels = async () => (await ask("api/lens")).json();
/** @type {(name: string, query: string, signal?: AbortSignal) => Promise<LensAnswer>} */
export const lens = async (name, query, signal) =>
  (await ask(`api/lens/${encodeURIComponent(name)}?query=${encodeURIComponent(query)}`, { signal })).json();
/** @type {() => Promise<ProbeFiles>} */
export const probes = async () => (await ask("api/probes")).json();
/**
 * Whether a report can be made; refused with the reason.
 * @type {(address: string) => Promise<string>}
 */
export const probe = async (address) => (await ask(address)).text();
/**
 * Every claim on the run of a set-up, judged by the package.
 * @type {(setup: Setup, signal: AbortSignal) => Promise<{step: number, setting: string, claims: Claim[]}>}
 */
export const verify = async (setup, signal) =>
  (await ask("api/verify", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(setup), signal })).json();

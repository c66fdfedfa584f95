// HTTP: JSON in, JSON out; a refusal becomes an error with its field.

export class Refusal extends Error {
  constructor(field, message, status) {
    super(message);
    this.field = field;
    this.status = status;
  }
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Refusal("request", "The server does not answer.", 0);
  }
  if (response.ok) return response;
  let said = null;
  try { said = await response.json(); } catch { /* not JSON */ }
  throw new Refusal(said?.field ?? "request", said?.message ?? `The server answered ${response.status}.`, response.status);
}

const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

export const catalogue = async () => (await ask("/api/catalogue")).json();
export const tour = async () => (await ask("/api/tour")).json();
export const check = async (setup, signal) => (await post("/api/check", setup, signal)).json();
export const curves = async (body, signal) => (await post("/api/curves", body, signal)).json();
export const flow = async (body, signal) => (await post("/api/flow", body, signal)).json();
export const toml = async (setup) => (await post("/api/toml", setup)).text();
export const claims = async (run) => (await ask(`/api/runs/${run}/claims`)).json();
export const lensModels = async () => (await ask("/api/lens")).json();
export const lens = async (name, query) =>
  (await ask(`/api/lens/${encodeURIComponent(name)}?query=${encodeURIComponent(query)}`)).json();
/** A text file of a run: "toml", "csv" or "film.html". */
export const file = async (run, what) => (await ask(`/api/runs/${run}/${what}`)).text();

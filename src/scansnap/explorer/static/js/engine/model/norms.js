// What may stand for the paper's LN: f = norm(v), forward and backward; the twin of dynamics/norms.py.

/**
 * ‖v‖ (l2) or the standard deviation (layernorm); ∞ of zero, which stays zero and passes no gradient.
 * @param {Float64Array} v
 * @param {number} n
 * @param {number} mean
 */
function sizeOf(v, n, mean) {
  let size = 0;
  for (let s = 0; s < n; s++) size += (v[s] - mean) * (v[s] - mean);
  return size;
}

/**
 * @param {Float64Array} v
 * @param {number} n
 */
function meanOf(v, n) {
  let total = 0;
  for (let s = 0; s < n; s++) total += v[s];
  return total / n;
}

/**
 * f = norm(v) of n numbers.
 * @param {string} kind
 * @param {Float64Array} v
 * @param {number} n
 * @param {Float64Array} f is filled from `at` on
 * @param {number} at
 */
export function applyNorm(kind, v, n, f, at = 0) {
  if (kind === "none") {
    for (let s = 0; s < n; s++) f[at + s] = v[s];
    return;
  }
  const mean = kind === "layernorm" ? meanOf(v, n) : 0, squares = sizeOf(v, n, mean);
  const size = kind === "layernorm" ? Math.sqrt(squares / n) : Math.sqrt(squares) || Infinity;
  for (let s = 0; s < n; s++) f[at + s] = (v[s] - mean) / size;
}

/**
 * g ← (∂f/∂v)ᵀ g.
 * @param {string} kind
 * @param {Float64Array} g
 * @param {Float64Array} v
 * @param {Float64Array} f
 * @param {number} at where f begins
 * @param {number} n
 */
export function pullBack(kind, g, v, f, at, n) {
  if (kind === "none") return;
  const isLayer = kind === "layernorm", mean = isLayer ? meanOf(v, n) : 0, meanG = isLayer ? meanOf(g, n) : 0, squares = sizeOf(v, n, mean);
  const size = isLayer ? Math.sqrt(squares / n) : Math.sqrt(squares) || Infinity;
  let along = 0;
  for (let s = 0; s < n; s++) along += f[at + s] * g[s];
  if (isLayer) along /= n;
  for (let s = 0; s < n; s++) g[s] = (g[s] - meanG - f[at + s] * along) / size;
}

// The closed forms of the theorems: the twin of theory/closed_form.py, theory/expansions.py and theory/token_growth.py.

/**
 * Rates and sizes of a run; momentum is counted in the rates.
 * @typedef {object} Sizes
 * @property {number} eta_y
 * @property {number} K classes
 * @property {number} M vocabulary
 */

/**
 * The logit gap u = M h after s visits of a class: e^u + (M − 1) u = M η_Y s + 1 (Lemma 6).
 * @param {number} s
 * @param {Sizes} sizes
 */
export function gap(s, { eta_y, M }) {
  const target = M * eta_y * s;
  let u = Math.min(target / M, Math.log1p(target)); // both are above the root of a convex function: Newton falls to it
  for (let i = 0; i < 200; i++) {
    const change = (Math.expm1(u) + (M - 1) * u - target) / (Math.exp(u) + M - 1);
    u -= change;
    if (!(Math.abs(change) > 1e-16 * u)) break;
  }
  return u;
}

/**
 * h(s), the solution of dh/ds = η_Y/(M − 1 + e^{Mh}), h(0) = 0 (Lemma 6).
 * @param {number} s
 * @param {Sizes} sizes
 */
export const h = (s, sizes) => gap(s, sizes) / sizes.M;

/**
 * The speed of attention, γ(t) = (M − 1)² h/(M − 1 + e^{Mh}), h = h(t/K) (Theorem 1).
 * @param {number} t
 * @param {Sizes} sizes
 */
export function gamma(t, sizes) {
  const u = gap(t / sizes.K, sizes), { M } = sizes;
  return (M - 1) / M * u / (1 + Math.exp(u) / (M - 1));
}

/**
 * Γ(t) = η_Z ∫₀ᵗ γ = (η_Z/η_Y) K (M − 1)² h(t/K)²/2 (Appendix F).
 * @param {number} t
 * @param {Sizes & {eta_z: number}} sizes
 */
export function gammaIntegral(t, sizes) {
  const { eta_y, eta_z, K, M } = sizes;
  return eta_z / eta_y * K * ((M - 1) / M * gap(t / K, sizes)) ** 2 / 2;
}

/**
 * The growth exponent B_n(t) = (p_n/P) ¼ ln(1 + 4 P Γ/C₀) (Theorem 4); P is the probability of the query.
 * @param {number} t
 * @param {Sizes & {eta_z: number, c0?: number, p_class?: number, p_query?: number}} sizes
 */
export function growth(t, { c0 = 1, p_class = 1, p_query = 1, ...sizes }) {
  return p_class / p_query * Math.log1p(4 * p_query * gammaIntegral(t, sizes) / c0) / 4;
}

/**
 * t₀′ = K ln M/η_Y, the end of pure scanning (Theorem 4).
 * @param {Sizes} sizes
 */
export const tScan = ({ eta_y, K, M }) => K * Math.log(M) / eta_y;

/**
 * t₀ = 2 K ln M/η_Y, the moment of snapping, to leading order (Theorem 4).
 * @param {Sizes} sizes
 */
export const tSnap = ({ eta_y, K, M }) => 2 * K * Math.log(M) / eta_y;

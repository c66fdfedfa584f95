// The 1-layer transformer in its Y, Z form: forward pass and exact gradients (Lemma 1), in count form. The twin of
// dynamics/yz.py for one run, in float64.
//
//     c_l ∝ k_l e^{z_ml}      f = norm(c) or its residual form      α = softmax(Yᵀ f)
//     dY = f (e_n − α)ᵀ       dz_m = (diag(c) − c cᵀ) (∂f/∂c)ᵀ Y (e_n − α)
//
// Only the counts k of the context tokens matter: T = ∞ is the same code with k_l = P(l|n), and a position bias is a
// real-valued count. Samples are taken class by class, so that the rows of Y that a class reads are read once for several.
//
//     H heads · B samples · K classes · S slots of a class (padded to a multiple of 4) · L rows and J columns of Y ·
//     Q queries · M tokens

import { exponential } from "../numeric.js";
import { applyNorm, pullBack } from "./norms.js";

/** @import { Layout, Model } from "./layout.js" */

/**
 * Sampled sequences: classes, token counts by slot, and weights in the mean (summing to 1).
 * @typedef {object} Batch
 * @property {Int32Array} cls (B,)
 * @property {Float64Array} counts (B, S)
 * @property {Float64Array} weight (B,)
 */

const UNDERFLOW = 1e-250; // of Σ_l k_l e^{z_l − max}: the class's favourite is not in the sample, by hundreds of nats

/** Room for the passes of one run. */
export class Passes {
  /**
   * @param {Layout} layout
   * @param {Model} model
   * @param {number} B most samples of a batch
   */
  constructor(layout, model, B) {
    const { K, S, J } = layout, H = model.heads, real = (/** @type {number} */ n) => new Float64Array(n);
    this.layout = layout;
    this.model = model;
    this.isPaper = model.norm === "l2" && model.residual === "none" && H === 1; // then dz_m = f ∘ (g − f fᵀ g) in one pass
    this.order = new Int32Array(B); // samples, class by class
    this.first = new Int32Array(K + 1); // where each class begins in it
    this.cursor = new Int32Array(K + 1);
    this.key = real(H * S); // e^{z − max} of the class at hand
    this.heads = real((B + 1) * H * S); // attention of each head, of the samples of a class
    this.c = real((B + 1) * S); // their mean
    this.v = real(S);
    this.own = real(S);
    this.inner = real(S);
    this.f = real((B + 1) * S); // of the samples of a class, and zeros: samples are taken two at a time
    this.r = real((B + 1) * J); // Yᵀ f, then (e_n − α) times the sample's weight
    this.g = real((B + 1) * S); // Y r
    this.gradient = real(S);
    this.logMultiplicity = layout.multiplicity.map(Math.log);
  }

  /**
   * Adds the batch's ascent directions to dy (L, J) and dz (H, Q, M).
   * @param {Float64Array} y (L, J)
   * @param {Float64Array} z (H, Q, M)
   * @param {Batch} batch
   * @param {Float64Array} dy
   * @param {Float64Array} dz
   */
  gradients(y, z, batch, dy, dz) {
    const { layout, model, order, first, heads, c, f, r, g, gradient, v, own, inner } = this, { K, S, J, Q, M, slots, nSlots, classQuery } = layout, H = model.heads;
    this.sort(batch.cls);
    for (let n = 0; n < K; n++) {
      const from = first[n], B = first[n + 1] - from, N = nSlots[n];
      if (B === 0) continue;
      this.forward(n, from, B, y, z, batch);
      for (let b = 0; b < B; b++) this.error(n, b, batch.weight[order[from + b]]);
      r.fill(0, B * J, (B + 1) * J);
      this.backward(n, B, y, dy);
      if (this.isPaper) {
        this.lemma(n, B, dz);
        continue;
      }
      for (let b = 0; b < B; b++) {
        for (let s = 0; s < N; s++) {
          own[s] = c[b * S + s];
          gradient[s] = g[b * S + s];
        }
        if (model.residual === "none") pullBack(model.norm, gradient, own, f, b * S, N);
        else {
          this.residual(n, own);
          pullBack(model.norm, gradient, v, f, b * S, N);
          if (model.residual === "normed") pullBack(model.norm, gradient, own, inner, 0, N);
        }
        for (let h = 0; h < H; h++) { // every head contributes 1/H of c
          const at = (b * H + h) * S, to = (h * Q + classQuery[n]) * M;
          let mean = 0;
          for (let s = 0; s < N; s++) mean += heads[at + s] * gradient[s];
          for (let s = 0; s < N; s++) dz[to + slots[n * S + s]] += heads[at + s] * (gradient[s] - mean) / H;
        }
      }
    }
    this.lumped(dy);
  }

  /**
   * dz_m += f ∘ (g − f fᵀ g) of B samples of class n: the paper's model.
   * @param {number} n
   * @param {number} B
   * @param {Float64Array} dz
   */
  lemma(n, B, dz) {
    const { f, g } = this, { S, M, slots, classQuery } = this.layout, N = this.layout.nSlots[n], row = classQuery[n] * M;
    for (let b = 0; b < B; b++) {
      const at = b * S;
      let along = 0;
      for (let s = 0; s < N; s++) along += f[at + s] * g[at + s];
      for (let s = 0; s < N; s++) dz[row + slots[n * S + s]] += f[at + s] * (g[at + s] - f[at + s] * along);
    }
  }

  /**
   * Attention (B, S) and loss (B,) of each sample.
   * @param {Float64Array} y
   * @param {Float64Array} z
   * @param {Batch} batch
   */
  look(y, z, batch) {
    const { layout, order, first, c, f, r } = this, { K, S, J, target, nSlots } = layout, B = batch.cls.length;
    const attention = new Float64Array(B * S), loss = new Float64Array(B);
    this.sort(batch.cls);
    for (let n = 0; n < K; n++) {
      this.forward(n, first[n], first[n + 1] - first[n], y, z, batch);
      for (let i = first[n], b = 0; i < first[n + 1]; i++, b++) {
        let sum = 0;
        for (let s = 0; s < nSlots[n]; s++) sum += f[b * S + s];
        for (let s = 0; s < nSlots[n]; s++) attention[order[i] * S + s] = this.isPaper ? f[b * S + s] / sum : c[b * S + s];
        let most = -Infinity, total = 0;
        for (let j = 0; j < J; j++) most = Math.max(most, r[b * J + j]);
        for (let j = 0; j < J; j++) total += Math.exp(r[b * J + j] - most);
        loss[order[i]] = Math.log(total) - (r[b * J + target[n]] - most);
      }
    }
    return { attention, loss };
  }

  /**
   * The samples of each class, one class after the other.
   * @param {Int32Array} cls
   */
  sort(cls) {
    const { order, first, cursor } = this;
    first.fill(0);
    for (let b = 0; b < cls.length; b++) first[cls[b] + 1]++;
    for (let n = 1; n < first.length; n++) first[n] += first[n - 1];
    cursor.set(first);
    for (let b = 0; b < cls.length; b++) order[cursor[cls[b]]++] = b;
  }

  /**
   * heads, c, f and Yᵀ f + ln multiplicity of the B samples of class n.
   * @param {number} n
   * @param {number} from
   * @param {number} B
   * @param {Float64Array} y
   * @param {Float64Array} z
   * @param {Batch} batch
   */
  forward(n, from, B, y, z, { counts }) {
    const { layout, model, order, key, heads, c, f, v, own, logMultiplicity, r } = this, { S, J, Q, M, slots, classQuery } = layout, N = layout.nSlots[n], H = model.heads;
    for (let h = 0; h < H; h++) {
      const row = (h * Q + classQuery[n]) * M;
      let most = -Infinity;
      for (let s = 0; s < N; s++) most = Math.max(most, z[row + slots[n * S + s]]);
      for (let s = 0; s < N; s++) key[h * S + s] = exponential(z[row + slots[n * S + s]] - most);
    }
    for (let b = 0; b < B; b++) {
      const k = order[from + b] * S;
      if (this.isPaper) {
        let squares = 0;
        for (let s = 0; s < N; s++) {
          const weight = f[b * S + s] = counts[k + s] * key[s];
          squares += weight * weight;
        }
        if (squares > UNDERFLOW) {
          const size = 1 / Math.sqrt(squares);
          for (let s = 0; s < N; s++) f[b * S + s] *= size;
          for (let s = N; s < S; s++) f[b * S + s] = 0;
          for (let j = 0; j < J; j++) r[b * J + j] = logMultiplicity[j];
          continue;
        }
      }
      own.fill(0);
      for (let h = 0; h < H; h++) {
        const at = (b * H + h) * S;
        let total = 0;
        for (let s = 0; s < N; s++) total += heads[at + s] = counts[k + s] * key[h * S + s];
        if (total < UNDERFLOW) total = this.shifted(n, (h * Q + classQuery[n]) * M, k, at, z, counts);
        for (let s = 0; s < N; s++) own[s] += (heads[at + s] /= total) / H;
      }
      for (let s = 0; s < N; s++) c[b * S + s] = own[s];
      if (model.residual === "none") applyNorm(model.norm, own, N, f, b * S);
      else {
        this.residual(n, own);
        applyNorm(model.norm, v, N, f, b * S);
      }
      f.fill(0, b * S + N, (b + 1) * S);
      for (let j = 0; j < J; j++) r[b * J + j] = logMultiplicity[j];
    }
    f.fill(0, B * S, (B + 1) * S);
    this.votes(n, B, y);
  }

  /**
   * k_l e^{z_l − max} of a head, the maximum over the tokens of the sample alone; returns their sum.
   * @param {number} n
   * @param {number} row
   * @param {number} k
   * @param {number} at
   * @param {Float64Array} z
   * @param {Float64Array} counts
   */
  shifted(n, row, k, at, z, counts) {
    const { heads } = this, { S, slots } = this.layout, N = this.layout.nSlots[n];
    let most = -Infinity, total = 0;
    for (let s = 0; s < N; s++) if (counts[k + s] > 0) most = Math.max(most, z[row + slots[n * S + s]]);
    for (let s = 0; s < N; s++) total += heads[at + s] = counts[k + s] > 0 ? counts[k + s] * exponential(z[row + slots[n * S + s]] - most) : 0;
    return total;
  }

  /**
   * v, what f is the norm of, from c: norm(c) + e_m or c + e_m.
   * @param {number} n
   * @param {Float64Array} own c
   */
  residual(n, own) {
    const { layout, model, inner, v } = this, N = layout.nSlots[n];
    if (model.residual === "normed") applyNorm(model.norm, own, N, inner);
    for (let s = 0; s < N; s++) v[s] = (model.residual === "normed" ? inner[s] : own[s]) + layout.slotQuery[n * layout.S + s];
  }

  /**
   * r_b += Yᵀ f_b of B samples of class n: two samples and four slots at a time.
   * @param {number} n
   * @param {number} B
   * @param {Float64Array} y
   */
  votes(n, B, y) {
    const { f, r } = this, { S, J, slotRow } = this.layout, N = this.layout.nSlots[n];
    for (let b = 0; b < B; b += 2) {
      const to = b * J, other = to + J;
      for (let s = 0; s < N; s += 4) {
        const row = n * S + s, i0 = slotRow[row] * J, i1 = slotRow[row + 1] * J, i2 = slotRow[row + 2] * J, i3 = slotRow[row + 3] * J;
        const at = b * S + s, f0 = f[at], f1 = f[at + 1], f2 = f[at + 2], f3 = f[at + 3], next = at + S, e0 = f[next], e1 = f[next + 1], e2 = f[next + 2], e3 = f[next + 3];
        for (let j = 0; j < J; j++) {
          const y0 = y[i0 + j], y1 = y[i1 + j], y2 = y[i2 + j], y3 = y[i3 + j];
          r[to + j] += f0 * y0 + f1 * y1 + f2 * y2 + f3 * y3;
          r[other + j] += e0 * y0 + e1 * y1 + e2 * y2 + e3 * y3;
        }
      }
    }
  }

  /**
   * r_b ← w (e_n − α), with 1 − α_n as the sum of the others: full precision however close α_n is to 1.
   * @param {number} n
   * @param {number} b
   * @param {number} w
   */
  error(n, b, w) {
    const { r } = this, { J, target } = this.layout, from = b * J, to = from + J, right = from + target[n];
    let most = -Infinity, others = 0;
    for (let i = from; i < to; i++) if (r[i] > most) most = r[i];
    const own = exponential(r[right] - most);
    r[right] = -Infinity;
    for (let i = from; i < to; i++) others += r[i] = exponential(r[i] - most);
    const scale = w / (others + own);
    for (let i = from; i < to; i++) r[i] *= -scale;
    r[right] = others * scale;
  }

  /**
   * g_b = Y r_b and dY += f_b r_bᵀ of B samples of class n: two samples and two slots at a time.
   * @param {number} n
   * @param {number} B
   * @param {Float64Array} y
   * @param {Float64Array} dy
   */
  backward(n, B, y, dy) {
    const { f, r, g } = this, { S, J, slotRow } = this.layout, N = this.layout.nSlots[n];
    for (let b = 0; b < B; b += 2) {
      const from = b * J, other = from + J;
      for (let s = 0; s < N; s += 2) {
        const row = n * S + s, i0 = slotRow[row] * J, i1 = slotRow[row + 1] * J;
        const at = b * S + s, next = at + S, f0 = f[at], f1 = f[at + 1], e0 = f[next], e1 = f[next + 1];
        let g0 = 0, g1 = 0, h0 = 0, h1 = 0;
        for (let j = 0; j < J; j++) {
          const y0 = y[i0 + j], y1 = y[i1 + j], r0 = r[from + j], r1 = r[other + j];
          g0 += y0 * r0;
          g1 += y1 * r0;
          h0 += y0 * r1;
          h1 += y1 * r1;
          dy[i0 + j] += f0 * r0 + e0 * r1;
          dy[i1 + j] += f1 * r0 + e1 * r1;
        }
        g[at] = g0;
        g[at + 1] = g1;
        g[next] = h0;
        g[next + 1] = h1;
      }
    }
  }

  /**
   * A column that stands for several outputs moves as one of them.
   * @param {Float64Array} dy
   */
  lumped(dy) {
    const { J, multiplicity } = this.layout, last = multiplicity[J - 1];
    if (last !== 1) for (let i = J - 1; i < dy.length; i += J) dy[i] /= last;
  }
}

// Philox4x32-10: random numbers as a pure function of (seed, purpose, step, place), the twin of sampling/philox.py.

export const PURPOSE = { CLASS: 1, COUNT: 2, TOKEN: 3, INIT_Y: 4, INIT_Z: 5 };

/** The two uniforms on [0, 1) of the last draw. */
export const uniform = new Float64Array(2);

/**
 * A seed below 2^53 as the two 32-bit words of the key.
 * @param {number} seed
 */
export const keyOf = (seed) => [seed % 4294967296 | 0, Math.floor(seed / 4294967296) | 0];

/**
 * Fills `uniform` with the draw at (minor, major, step, purpose), all 32-bit words. The high half of a 32 × 32-bit
 * product is the sum of the products of 16-bit halves; JavaScript has no wider integer product that is fast.
 * @param {number} low word of the key
 * @param {number} high word of the key
 * @param {number} purpose
 * @param {number} step
 * @param {number} major
 * @param {number} minor
 */
export function draw(low, high, purpose, step, major, minor) {
  let c0 = minor | 0, c1 = major | 0, c2 = step | 0, c3 = purpose | 0, k0 = low | 0, k1 = high | 0;
  for (let round = 0; round < 10; round++) {
    const a = c0 & 0xffff, b = c0 >>> 16, c = c2 & 0xffff, d = c2 >>> 16;
    const p = (Math.imul(b, 0x1f53) >>> 0) + (Math.imul(a, 0x1f53) >>> 16), q = (Math.imul(a, 0xd251) >>> 0) + (p & 0xffff);
    const r = (Math.imul(d, 0x8d57) >>> 0) + (Math.imul(c, 0x8d57) >>> 16), s = (Math.imul(c, 0xcd9e) >>> 0) + (r & 0xffff);
    const high0 = (Math.imul(b, 0xd251) + (p >>> 16) + (q >>> 16)) | 0, high1 = (Math.imul(d, 0xcd9e) + (r >>> 16) + (s >>> 16)) | 0;
    const low0 = Math.imul(c0, 0xd2511f53), low1 = Math.imul(c2, 0xcd9e8d57);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 = (k0 + 0x9e3779b9) | 0;
    k1 = (k1 + 0xbb67ae85) | 0;
  }
  uniform[0] = ((c0 >>> 0) * 2097152 + (c1 >>> 11)) * 2 ** -53;
  uniform[1] = ((c2 >>> 0) * 2097152 + (c3 >>> 11)) * 2 ** -53;
}

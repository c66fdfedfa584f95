// NumPy's default generator as far as the zipf preset needs it: SeedSequence, PCG64 (XSL RR 128/64) and permutation.
// The preset's numbers are then those of Python for every seed, and Python's own do not change.

const WORD = 0xffffffffn, LONG = (1n << 64n) - 1n, WIDE = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

/** numpy.random.default_rng(seed), for `permutation`. */
export class Generator {
  /** @param {number} seed a whole number from 0 to 2^53 − 1 */
  constructor(seed) {
    const [a, b, c, d] = seedWords(seed);
    this.increment = (((c << 64n) | d) << 1n | 1n) & WIDE;
    this.state = 0n;
    this.next();
    this.state = (this.state + ((a << 64n) | b)) & WIDE;
    this.next();
    /** @type {bigint | null} */
    this.half = null; // the upper half of a 64-bit number, used next
  }

  /** Steps the state. */
  next() {
    this.state = (this.state * MULTIPLIER + this.increment) & WIDE;
  }

  /** A 32-bit number: the halves of a 64-bit one in turn, the lower first. */
  word() {
    if (this.half !== null) {
      const upper = this.half;
      this.half = null;
      return upper;
    }
    this.next();
    const mixed = (this.state >> 64n) ^ (this.state & LONG), turn = this.state >> 122n;
    const long = ((mixed >> turn) | (mixed << ((64n - turn) & 63n))) & LONG;
    this.half = long >> 32n;
    return long & WORD;
  }

  /**
   * A number from 0 to `most`, by rejection of masked words.
   * @param {number} most
   */
  upTo(most) {
    const mask = 2 ** (32 - Math.clz32(most)) - 1;
    for (;;) {
      const value = Number(this.word() & BigInt(mask));
      if (value <= most) return value;
    }
  }

  /**
   * A permuted copy.
   * @param {number[]} values
   */
  permutation(values) {
    const out = [...values];
    for (let i = out.length - 1; i > 0; i--) {
      const j = this.upTo(i);
      [out[i], out[j]] = [out[j], out[i]];
    }
    return out;
  }
}

/**
 * SeedSequence(seed).generate_state(4, uint64).
 * @param {number} seed
 */
function seedWords(seed) {
  const mul = (/** @type {number} */ a, /** @type {number} */ b) => Math.imul(a, b) >>> 0;
  const entropy = [seed % 4294967296, Math.floor(seed / 4294967296)];
  let hash = 0x43b0d7e5;
  const mixHash = (/** @type {number} */ value) => {
    value = (value ^ hash) >>> 0;
    hash = mul(hash, 0x931e8875);
    value = mul(value, hash);
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mix = (/** @type {number} */ x, /** @type {number} */ y) => {
    const z = (mul(x, 0xca01f9dd) - mul(y, 0x4973f715)) >>> 0;
    return (z ^ (z >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map((i) => mixHash(entropy[i] ?? 0));
  for (let from = 0; from < 4; from++) for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mix(pool[to], mixHash(pool[from]));
  hash = 0x8b51f9dd;
  const words = Array.from({ length: 8 }, (_, i) => {
    let value = (pool[i % 4] ^ hash) >>> 0;
    hash = mul(hash, 0x58f38ded);
    value = mul(value, hash);
    return (value ^ (value >>> 16)) >>> 0;
  });
  return [0, 2, 4, 6].map((i) => BigInt(words[i]) | (BigInt(words[i + 1]) << 32n));
}

// Animated GIF (89a): frames of one size and at most 256 colours, each with only what differs from the one before.
//
// GIF and not a recording of the canvas: it is made as fast as frames can be drawn, is the same in every browser, and
// slides, chats and documents play it.

const CLEAR = 256, END = 257, MOST = 4096; // of the codes of LZW, 9 to 12 bits
const FIVE = (/** @type {number} */ r, /** @type {number} */ g, /** @type {number} */ b) => ((r >> 3) << 10) | ((g >> 3) << 5) | (b >> 3);

/** Bytes that grow. */
class Bytes {
  constructor() { this.data = new Uint8Array(1 << 16); this.length = 0; }

  /** @param {number} value */
  byte(value) {
    if (this.length === this.data.length) { const more = new Uint8Array(2 * this.data.length); more.set(this.data); this.data = more; }
    this.data[this.length++] = value;
  }

  /** @param {number} value */
  short(value) { this.byte(value & 255); this.byte(value >> 8); }

  /** @param {string} text */
  ascii(text) { for (const ch of text) this.byte(ch.charCodeAt(0)); }
}

/**
 * Indices of colours, compressed as GIF has it, in blocks of at most 255 bytes.
 * @param {Uint8Array} indices
 * @param {Bytes} out
 */
function compress(indices, out) {
  const table = new Int32Array(MOST * 256).fill(-1);
  /** @type {number[]} */
  let block = [];
  let bits = 0, buffer = 0, size = 9, next = END + 1, prefix = indices[0];
  const flush = () => { if (block.length) { out.byte(block.length); for (const b of block) out.byte(b); block = []; } };
  const write = (/** @type {number} */ code) => {
    buffer |= code << bits;
    bits += size;
    while (bits >= 8) { block.push(buffer & 255); buffer >>>= 8; bits -= 8; if (block.length === 255) flush(); }
  };
  out.byte(8); // bits of an index
  write(CLEAR);
  for (let i = 1; i < indices.length; i++) {
    const at = prefix * 256 + indices[i], known = table[at];
    if (known >= 0) { prefix = known; continue; }
    write(prefix);
    if (next < MOST) {
      table[at] = next++;
      if (next - 1 === 1 << size && size < 12) size++;
    } else {
      write(CLEAR);
      table.fill(-1);
      next = END + 1;
      size = 9;
    }
    prefix = indices[i];
  }
  write(prefix);
  write(END);
  if (bits) block.push(buffer & 255);
  flush();
  out.byte(0);
}

export class Gif {
  /**
   * @param {number} width
   * @param {number} height
   * @param {Uint8ClampedArray[]} samples  RGBA of a few frames, from which the colours are taken
   */
  constructor(width, height, samples) {
    this.width = width;
    this.height = height;
    /** @type {Map<number, [number, number, number, number]>} */
    const counts = new Map();
    for (const data of samples) for (let i = 0; i < data.length; i += 4) {
      const key = FIVE(data[i], data[i + 1], data[i + 2]), sum = counts.get(key);
      if (sum) { sum[0]++; sum[1] += data[i]; sum[2] += data[i + 1]; sum[3] += data[i + 2]; } else counts.set(key, [1, data[i], data[i + 1], data[i + 2]]);
    }
    const common = [...counts.values()].sort((a, b) => b[0] - a[0]).slice(0, 255);
    this.colours = common.map(([n, r, g, b]) => [r / n, g / n, b / n].map(Math.round)); // 255 is what does not change
    this.nearest = new Int16Array(1 << 15).fill(-1);
    /** @type {Uint8Array | null} */
    this.before = null;
    const out = (this.out = new Bytes());
    out.ascii("GIF89a");
    out.short(width); out.short(height);
    out.byte(0xf7); out.byte(0); out.byte(0); // a table of 256 colours
    for (let i = 0; i < 256; i++) for (let c = 0; c < 3; c++) out.byte(this.colours[i]?.[c] ?? 0);
    out.byte(0x21); out.byte(0xff); out.byte(11); out.ascii("NETSCAPE2.0"); out.byte(3); out.byte(1); out.short(0); out.byte(0); // again and again
  }

  /**
   * @param {number} r
   * @param {number} g
   * @param {number} b
   */
  indexOf(r, g, b) {
    const key = FIVE(r, g, b);
    if (this.nearest[key] < 0) {
      let best = 0, least = Infinity;
      this.colours.forEach(([x, y, z], i) => { const far = (x - r) ** 2 + (y - g) ** 2 + (z - b) ** 2; if (far < least) { least = far; best = i; } });
      this.nearest[key] = best;
    }
    return this.nearest[key];
  }

  /**
   * @param {Uint8ClampedArray} data  RGBA
   * @param {number} seconds  how long the frame stays
   */
  add(data, seconds) {
    const { width, height, before, out } = this, now = new Uint8Array(width * height);
    for (let i = 0; i < now.length; i++) now[i] = this.indexOf(data[4 * i], data[4 * i + 1], data[4 * i + 2]);
    let top = 0, bottom = height - 1;
    const same = (/** @type {number} */ y) => before !== null && now.subarray(y * width, (y + 1) * width).every((v, x) => v === before[y * width + x]);
    while (top < bottom && same(top)) top++;
    while (bottom > top && same(bottom)) bottom--;
    const part = now.slice(top * width, (bottom + 1) * width);
    if (before) part.forEach((v, i) => { if (v === before[top * width + i]) part[i] = 255; });
    out.byte(0x21); out.byte(0xf9); out.byte(4); out.byte(before ? 0x05 : 0x04); out.short(Math.round(100 * seconds)); out.byte(255); out.byte(0);
    out.byte(0x2c); out.short(0); out.short(top); out.short(width); out.short(bottom - top + 1); out.byte(0);
    compress(part, out);
    this.before = now;
  }

  /** @returns {Blob} */
  end() {
    this.out.byte(0x3b);
    return new Blob([this.out.data.slice(0, this.out.length)], { type: "image/gif" });
  }
}

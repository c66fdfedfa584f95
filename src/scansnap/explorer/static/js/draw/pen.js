// Drawing that can go to the screen or into a file: the same calls on a canvas and as SVG.

/** @typedef {{fill: string, size?: number, align?: "left" | "center" | "right", weight?: number}} Lettering */
/** @typedef {{x0: number, y0: number, x1: number, y1: number}} Extent */
/** @typedef {CanvasPen | SvgPen} Pen */

const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** How much larger than at 1280 pixels the page's letters are: drawings grow with them. */
export const unit = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 13.3;

/**
 * A pen for all of `box`, in units of the page's letters.
 * @param {HTMLCanvasElement} canvas
 * @param {Element} box
 */
export function penFor(canvas, box) {
  const u = unit();
  return new CanvasPen(canvas, box.clientWidth / u, box.clientHeight / u, (window.devicePixelRatio || 1) * u);
}

/**
 * What a canvas is drawn on with.
 * @param {HTMLCanvasElement} canvas
 */
export function context(canvas) {
  const c = canvas.getContext("2d");
  if (!c) throw new Error("this browser cannot draw");
  return c;
}

/** @type {CanvasRenderingContext2D | null} */
let ruler = null;

/**
 * How wide a text is.
 * @param {string} text
 * @param {{size?: number, weight?: number}} how
 */
export function widthOf(text, { size = 11, weight = 400 } = {}) {
  ruler ??= context(document.createElement("canvas"));
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

/**
 * The first of several ways to say something that fits into a width; if none does, the last, cut short.
 * @param {string[]} texts
 * @param {number} room
 * @param {{size?: number, weight?: number}} how
 */
export function fitting(texts, room, how = {}) {
  const fit = texts.find((t) => widthOf(t, how) <= room);
  if (fit !== undefined) return fit;
  let text = texts[texts.length - 1];
  while (text && widthOf(`${text}…`, how) > room) text = text.slice(0, -1);
  return text ? `${text}…` : "";
}

/**
 * Where a text lies that is written at (x, y).
 * @param {number} x
 * @param {number} y
 * @param {string} text
 * @param {Pick<Lettering, "size" | "align" | "weight">} how
 * @returns {Extent}
 */
export function extentOf(x, y, text, { size = 11, align = "left", weight = 400 }) {
  const w = widthOf(text, { size, weight }), x0 = align === "left" ? x : align === "right" ? x - w : x - w / 2;
  return { x0, y0: y - 0.78 * size, x1: x0 + w, y1: y + 0.22 * size };
}

const overlap = (/** @type {Extent} */ a, /** @type {Extent} */ b, gap = 2) => a.x0 < b.x1 + gap && b.x0 < a.x1 + gap && a.y0 < b.y1 && b.y0 < a.y1;

/** The labels of one drawing: each inside it and none over another. Those asked for first come first. */
export class Labels {
  /**
   * @param {number} width
   * @param {number} height
   */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    /** @type {Extent[]} */
    this.placed = [];
  }

  /**
   * Where a text may go that is wanted at (x, y): there, or moved to inside the drawing; null if another lies there.
   * @param {number} x
   * @param {number} y
   * @param {string} text
   * @param {Pick<Lettering, "size" | "align" | "weight">} how
   */
  place(x, y, text, how) {
    const box = extentOf(x, y, text, how);
    const right = Math.max(0, -box.x0) - Math.max(0, box.x1 - this.width), down = Math.max(0, -box.y0) - Math.max(0, box.y1 - this.height);
    const moved = { x0: box.x0 + right, y0: box.y0 + down, x1: box.x1 + right, y1: box.y1 + down };
    if (moved.x0 < 0 || moved.y0 < 0 || this.placed.some((other) => overlap(moved, other))) return null;
    this.placed.push(moved);
    return { x: x + right, y: y + down };
  }
}

/** What both pens are: a sheet of some size, and what is written on it. */
class Sheet {
  /**
   * @param {number} width
   * @param {number} height
   */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.labels = new Labels(width, height);
  }

  /**
   * Leaves a strip at the top as it is, and edges beside and below: from now on drawings have what is within.
   * @param {number} top
   * @param {number} edge
   */
  within(top, edge) {
    this.move(edge, top);
    this.width -= 2 * edge;
    this.height -= top + edge;
    this.labels = new Labels(this.width, this.height);
  }

  /**
   * A text where there is room for it; whether there was.
   * @type {(x: number, y: number, text: string, how: Lettering) => boolean}
   */
  label(x, y, text, how) {
    const at = this.labels.place(x, y, text, how);
    if (at) this.text(at.x, at.y, text, how);
    return at !== null;
  }

  /** @type {(x: number, y: number) => void} */
  move(x, y) { throw new Error(`${x}, ${y}`); }

  /** @type {(x: number, y: number, text: string, how: Lettering) => void} */
  text(x, y, text, how) { throw new Error(`${x}, ${y}: ${text} ${how.fill}`); }
}

export class CanvasPen extends Sheet {
  /**
   * Fits the canvas to its size (in CSS pixels, or units of `ratio` device pixels) and clears it.
   * @param {HTMLCanvasElement} canvas
   * @param {number} width
   * @param {number} height
   */
  constructor(canvas, width, height, ratio = window.devicePixelRatio || 1) {
    super(width, height);
    const w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    this.c = context(canvas);
    this.c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.c.clearRect(0, 0, width, height);
  }

  /** @override @type {Sheet["move"]} */
  move(x, y) { this.c.translate(x, y); }

  /** @type {(x: number, y: number, w: number, h: number, fill: string) => void} */
  rect(x, y, w, h, fill) { this.c.fillStyle = fill; this.c.fillRect(x, y, w, h); }

  /** @type {(x: number, y: number, w: number, h: number, stroke: string, width?: number) => void} */
  frame(x, y, w, h, stroke, width = 1) { this.c.strokeStyle = stroke; this.c.lineWidth = width; this.c.setLineDash([]); this.c.strokeRect(x, y, w, h); }

  /** @type {(x1: number, y1: number, x2: number, y2: number, stroke: string, width?: number, dash?: number[]) => void} */
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) { this.path([[x1, y1], [x2, y2]], stroke, width, dash); }

  /** @type {(points: [number, number][], stroke: string, width?: number, dash?: number[]) => void} */
  path(points, stroke, width = 1, dash = []) {
    const c = this.c;
    c.strokeStyle = stroke; c.lineWidth = width; c.lineJoin = "round"; c.setLineDash(dash);
    c.beginPath(); points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y))); c.stroke();
  }

  /** @override @type {Sheet["text"]} */
  text(x, y, text, { fill, size = 11, align = "left", weight = 400 }) {
    const c = this.c;
    c.font = `${weight} ${size}px ${FONT}`; c.fillStyle = fill; c.textAlign = align; c.textBaseline = "alphabetic";
    c.fillText(text, x, y);
  }

  /**
   * Letters from below to above, that end at (x, y).
   * @type {(x: number, y: number, text: string, how: Lettering) => void}
   */
  upright(x, y, text, how) {
    this.c.save();
    this.c.translate(x, y);
    this.c.rotate(-Math.PI / 2);
    this.text(0, 0, text, { ...how, align: "right" });
    this.c.restore();
  }

  /** @type {(points: [number, number][], fill: string) => void} */
  area(points, fill) {
    const c = this.c;
    c.fillStyle = fill;
    c.beginPath(); points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y))); c.fill();
  }

  /**
   * What `draw` draws is cut off at the edges of a box.
   * @type {(box: {x: number, y: number, w: number, h: number}, draw: () => void) => void}
   */
  clip({ x, y, w, h }, draw) {
    const c = this.c;
    c.save();
    c.beginPath(); c.rect(x, y, w, h); c.clip();
    draw();
    c.restore();
  }

  /** @type {(source: HTMLCanvasElement, x: number, y: number, w: number, h: number) => void} */
  image(source, x, y, w, h) { this.c.imageSmoothingEnabled = false; this.c.drawImage(source, x, y, w, h); }
}

const r = (/** @type {number} */ x) => Number(x.toFixed(2));
/** @type {Record<string, string>} */
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const esc = (/** @type {string} */ s) => s.replace(/[&<>"]/g, (m) => ENTITIES[m]);

export class SvgPen extends Sheet {
  /**
   * @param {number} width
   * @param {number} height
   * @param {string} background
   */
  constructor(width, height, background) {
    super(width, height);
    this.size = [width, height].map(r);
    this.open = 0; // groups
    this.out = [`<rect width="${r(width)}" height="${r(height)}" fill="${background}"/>`];
  }

  /** @override @type {Sheet["move"]} */
  move(x, y) { this.out.push(`<g transform="translate(${r(x)} ${r(y)})">`); this.open++; }

  /** @type {CanvasPen["rect"]} */
  rect(x, y, w, h, fill) { this.out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}"/>`); }

  /** @type {CanvasPen["frame"]} */
  frame(x, y, w, h, stroke, width = 1) { this.out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`); }

  /** @type {CanvasPen["line"]} */
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) { this.path([[x1, y1], [x2, y2]], stroke, width, dash); }

  /** @type {CanvasPen["path"]} */
  path(points, stroke, width = 1, dash = []) {
    const d = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.out.push(`<polyline points="${points.map(([x, y]) => `${r(x)},${r(y)}`).join(" ")}" fill="none" stroke="${stroke}" stroke-width="${width}" stroke-linejoin="round"${d}/>`);
  }

  /** @override @type {Sheet["text"]} */
  text(x, y, text, { fill, size = 11, align = "left", weight = 400 }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    this.out.push(`<text x="${r(x)}" y="${r(y)}" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}">${esc(text)}</text>`);
  }

  /** @type {CanvasPen["upright"]} */
  upright(x, y, text, { fill, size = 11, weight = 400 }) {
    this.out.push(`<text transform="translate(${r(x)} ${r(y)}) rotate(-90)" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="end">${esc(text)}</text>`);
  }

  /** @type {CanvasPen["area"]} */
  area(points, fill) { this.out.push(`<polygon points="${points.map(([x, y]) => `${r(x)},${r(y)}`).join(" ")}" fill="${fill}"/>`); }

  /** @type {CanvasPen["clip"]} */
  clip({ x, y, w, h }, draw) {
    const id = `clip${this.out.length}`;
    this.out.push(`<clipPath id="${id}"><rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}"/></clipPath><g clip-path="url(#${id})">`);
    draw();
    this.out.push("</g>");
  }

  /** @type {CanvasPen["image"]} */
  image(source, x, y, w, h) {
    this.out.push(`<image x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" preserveAspectRatio="none" image-rendering="pixelated" href="${source.toDataURL("image/png")}"/>`);
  }

  toString() {
    const [w, high] = this.size;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${high}" viewBox="0 0 ${w} ${high}" font-family="${esc(FONT)}">${this.out.join("")}${"</g>".repeat(this.open)}</svg>`;
  }
}

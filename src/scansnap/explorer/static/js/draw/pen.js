// Drawing that can go to the screen or into a file: the same calls on a canvas and as SVG.

/** @typedef {{fill: string, size?: number, align?: "left" | "center" | "right", weight?: number}} Lettering */
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

export class CanvasPen {
  /**
   * Fits the canvas to its size (in CSS pixels, or units of `ratio` device pixels) and clears it.
   * @param {HTMLCanvasElement} canvas
   * @param {number} width
   * @param {number} height
   */
  constructor(canvas, width, height, ratio = window.devicePixelRatio || 1) {
    const w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    this.c = context(canvas);
    this.c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.c.clearRect(0, 0, width, height);
    this.width = width;
    this.height = height;
  }

  /** @type {(x: number, y: number, w: number, h: number, fill: string) => void} */
  rect(x, y, w, h, fill) { this.c.fillStyle = fill; this.c.fillRect(x, y, w, h); }

  /** @type {(x: number, y: number, w: number, h: number, stroke: string, width?: number) => void} */
  frame(x, y, w, h, stroke, width = 1) { this.c.strokeStyle = stroke; this.c.lineWidth = width; this.c.setLineDash([]); this.c.strokeRect(x, y, w, h); }

  /** @type {(x1: number, y1: number, x2: number, y2: number, stroke: string, width?: number, dash?: number[]) => void} */
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) { this.path([[x1, y1], [x2, y2]], stroke, width, dash); }

  /** @type {(points: [number, number][], stroke: string, width?: number, dash?: number[]) => void} */
  path(points, stroke, width = 1, dash = []) {
    const c = this.c;
    c.strokeStyle = stroke; c.lineWidth = width; c.setLineDash(dash);
    c.beginPath(); points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y))); c.stroke();
  }

  /** @type {(x: number, y: number, text: string, how: Lettering) => void} */
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

  /** @type {(source: HTMLCanvasElement, x: number, y: number, w: number, h: number) => void} */
  image(source, x, y, w, h) { this.c.imageSmoothingEnabled = false; this.c.drawImage(source, x, y, w, h); }
}

const r = (/** @type {number} */ x) => Number(x.toFixed(2));
/** @type {Record<string, string>} */
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const esc = (/** @type {string} */ s) => s.replace(/[&<>"]/g, (m) => ENTITIES[m]);

export class SvgPen {
  /**
   * @param {number} width
   * @param {number} height
   * @param {string} background
   */
  constructor(width, height, background) {
    this.width = width;
    this.height = height;
    this.out = [`<rect width="${r(width)}" height="${r(height)}" fill="${background}"/>`];
  }

  /** @type {CanvasPen["rect"]} */
  rect(x, y, w, h, fill) { this.out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}"/>`); }

  /** @type {CanvasPen["frame"]} */
  frame(x, y, w, h, stroke, width = 1) { this.out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`); }

  /** @type {CanvasPen["line"]} */
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) { this.path([[x1, y1], [x2, y2]], stroke, width, dash); }

  /** @type {CanvasPen["path"]} */
  path(points, stroke, width = 1, dash = []) {
    const d = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.out.push(`<polyline points="${points.map(([x, y]) => `${r(x)},${r(y)}`).join(" ")}" fill="none" stroke="${stroke}" stroke-width="${width}"${d}/>`);
  }

  /** @type {CanvasPen["text"]} */
  text(x, y, text, { fill, size = 11, align = "left", weight = 400 }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    this.out.push(`<text x="${r(x)}" y="${r(y)}" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}">${esc(text)}</text>`);
  }

  /** @type {CanvasPen["upright"]} */
  upright(x, y, text, { fill, size = 11, weight = 400 }) {
    this.out.push(`<text transform="translate(${r(x)} ${r(y)}) rotate(-90)" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="end">${esc(text)}</text>`);
  }

  /** @type {CanvasPen["image"]} */
  image(source, x, y, w, h) {
    this.out.push(`<image x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" preserveAspectRatio="none" image-rendering="pixelated" href="${source.toDataURL("image/png")}"/>`);
  }

  toString() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${r(this.width)}" height="${r(this.height)}" viewBox="0 0 ${r(this.width)} ${r(this.height)}" font-family="${esc(FONT)}">${this.out.join("")}</svg>`;
  }
}

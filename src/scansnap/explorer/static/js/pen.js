// Drawing that can go to the screen or into a file: the same calls on a canvas and as SVG.

const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** How much larger than at 1280 pixels the page's letters are: drawings grow with them. */
export const unit = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 13.3;

/** A pen for all of `box`, in units of the page's letters. */
export function penFor(canvas, box) {
  const u = unit();
  return new CanvasPen(canvas, box.clientWidth / u, box.clientHeight / u, (window.devicePixelRatio || 1) * u);
}

export class CanvasPen {
  /** Fits the canvas to its size (in CSS pixels, or units of `ratio` device pixels) and clears it. */
  constructor(canvas, width, height, ratio = window.devicePixelRatio || 1) {
    const w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    this.c = canvas.getContext("2d");
    this.c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.c.clearRect(0, 0, width, height);
    this.width = width;
    this.height = height;
  }
  rect(x, y, w, h, fill) { this.c.fillStyle = fill; this.c.fillRect(x, y, w, h); }
  frame(x, y, w, h, stroke, width = 1) { this.c.strokeStyle = stroke; this.c.lineWidth = width; this.c.setLineDash([]); this.c.strokeRect(x, y, w, h); }
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) {
    const c = this.c;
    c.strokeStyle = stroke; c.lineWidth = width; c.setLineDash(dash);
    c.beginPath(); c.moveTo(x1, y1); c.lineTo(x2, y2); c.stroke();
  }
  path(points, stroke, width = 1, dash = []) {
    const c = this.c;
    c.strokeStyle = stroke; c.lineWidth = width; c.setLineDash(dash);
    c.beginPath(); points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y))); c.stroke();
  }
  text(x, y, text, { fill, size = 11, align = "left", weight = 400 }) {
    const c = this.c;
    c.font = `${weight} ${size}px ${FONT}`; c.fillStyle = fill; c.textAlign = align; c.textBaseline = "alphabetic";
    c.fillText(text, x, y);
  }
  image(source, x, y, w, h) { this.c.imageSmoothingEnabled = false; this.c.drawImage(source, x, y, w, h); }
}

const r = (x) => Number(x.toFixed(2));
const esc = (s) => String(s).replace(/[&<>"]/g, (m) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[m]);

export class SvgPen {
  constructor(width, height, background) {
    this.width = width;
    this.height = height;
    this.out = [`<rect width="${r(width)}" height="${r(height)}" fill="${background}"/>`];
  }
  rect(x, y, w, h, fill) { this.out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}"/>`); }
  frame(x, y, w, h, stroke, width = 1) { this.out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`); }
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) { this.path([[x1, y1], [x2, y2]], stroke, width, dash); }
  path(points, stroke, width = 1, dash = []) {
    const d = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.out.push(`<polyline points="${points.map(([x, y]) => `${r(x)},${r(y)}`).join(" ")}" fill="none" stroke="${stroke}" stroke-width="${width}"${d}/>`);
  }
  text(x, y, text, { fill, size = 11, align = "left", weight = 400 }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    this.out.push(`<text x="${r(x)}" y="${r(y)}" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}">${esc(text)}</text>`);
  }
  image(source, x, y, w, h) {
    this.out.push(`<image x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" preserveAspectRatio="none" image-rendering="pixelated" href="${source.toDataURL("image/png")}"/>`);
  }
  toString() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${r(this.width)}" height="${r(this.height)}" viewBox="0 0 ${r(this.width)} ${r(this.height)}" font-family="${esc(FONT)}">${this.out.join("")}</svg>`;
  }
}

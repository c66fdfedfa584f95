// Without it the report says the same: it marks where one is, folds the contents on small screens, and draws points.
"use strict";
(() => {
  const narrow = matchMedia("(max-width: 71.99rem)");
  const contents = document.querySelector(".contents details");
  const fold = () => { contents.open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
  contents.addEventListener("click", (event) => {
    if (event.target.closest("a") && narrow.matches) contents.open = false;
  });
  contents.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && narrow.matches) { contents.open = false; contents.querySelector("summary").focus(); }
  });

  // where one is: the last heading above the middle of the upper half
  const links = new Map([...contents.querySelectorAll("a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const places = [...links.keys()].map((id) => document.getElementById(id));
  let due = false;
  const mark = () => {
    due = false;
    const here = places.filter((e) => e.getBoundingClientRect().top < innerHeight / 4).pop();
    for (const [id, a] of links) {
      if (id === here?.id) a.setAttribute("aria-current", "location"); else a.removeAttribute("aria-current");
    }
  };
  addEventListener("scroll", () => { if (!due) { due = true; requestAnimationFrame(mark); } }, { passive: true });
  mark();

  // the points behind a finding
  const data = JSON.parse(document.getElementById("data").textContent);
  const box = document.getElementById("points");
  const SVG = "http://www.w3.org/2000/svg";
  const add = (parent, name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    if (text !== undefined) made.textContent = text;
    return parent.appendChild(made);
  };
  const number = (x) => (x && Math.abs(x) < 1e-3 ? x.toExponential(1) : String(Number(x.toPrecision(3)))).replaceAll("-", "−");
  /** η_Y with its index below. */
  const label = (parent, text) => {
    for (const [i, part] of text.split(/_(\w+)/).entries()) {
      if (i % 2) { add(parent, "tspan", { dy: 2, "font-size": 8 }, part); } else if (part) { add(parent, "tspan", i ? { dy: -2 } : {}, part); }
    }
  };
  const sum = (row) => row.reduce((a, b) => a + b, 0);
  const SIDES = { "rises": [1, 0], "falls": [0, 1], "does not rise": [0, 1], "does not fall": [1, 0] };

  /** Rows of dots with mean and interval; green where the statement holds. */
  const strip = ({ v, h, c, w, m }) => {
    const longest = Math.max(0, ...c.map((name) => name.length)), step = v.length > 32 ? 4 : v.length > 16 ? 6 : 15;
    const left = longest && step > 10 ? Math.min(200, 16 + 5.6 * longest) : 8, right = 392, top = 6, bottom = top + v.length * step;
    const rows = v.map((row) => row.filter((x) => x !== null));
    const ends = rows.flatMap((row, i) => (row.length ? [...row, sum(row) / row.length - (h[i] ?? 0), sum(row) / row.length + (h[i] ?? 0)] : []));
    const low = Math.min(...ends, w ? -m : Infinity), high = Math.max(...ends, w ? m : -Infinity), pad = (high - low || Math.abs(high) || 1) / 20;
    const x = (value) => left + ((value - low + pad) / (high - low + 2 * pad)) * (right - left);
    const svg = add(document.createDocumentFragment(), "svg", { viewBox: `0 0 400 ${bottom + 18}`, "aria-hidden": "true" });
    if (w in SIDES) {
      const edge = x(w === "rises" || w === "does not rise" ? m : -m), [up] = SIDES[w];
      add(svg, "rect", { class: "side", x: up ? edge : left, width: Math.max(0, up ? right - edge : edge - left), y: 0, height: bottom + 4 });
      add(svg, "line", { class: "zero", x1: edge, x2: edge, y1: 0, y2: bottom + 4 });
    }
    rows.forEach((row, i) => {
      const y = top + (i + 0.5) * step, mean = sum(row) / row.length, labelled = c.length && step > 10;
      if (labelled) label(add(svg, "text", { x: left - 6, y: y + 3, "text-anchor": "end" }), c[i].length > 34 ? `${c[i].slice(0, 33)}…` : c[i]);
      for (const value of row) add(svg, "circle", { cx: x(value), cy: y, r: step > 10 ? 2.6 : 1.6 });
      if (h[i]) add(svg, "line", { class: "mean", x1: x(mean - h[i]), x2: x(mean + h[i]), y1: y, y2: y });
      if (h.length && row.length > 1) add(svg, "line", { class: "mean", x1: x(mean), x2: x(mean), y1: y - 3, y2: y + 3 });
    });
    for (const [value, anchor] of [[low, "start"], [high, "end"]]) add(svg, "text", { x: anchor === "start" ? left : right, y: bottom + 14, "text-anchor": anchor }, number(value));
    if (w && low < 0 && high > 0) add(svg, "text", { x: x(0), y: bottom + 14, "text-anchor": "middle" }, "0");
    return svg;
  };

  let shown = null;
  const hide = () => { shown = null; box.hidden = true; };
  const show = (button) => {
    if (shown === button) return;
    const found = data[button.dataset.points];
    shown = button;
    const seeds = Math.max(...found.v.map((row) => row.length)), noise = found.h.some((x) => x !== 0);
    const said = found.w && noise
      ? `${found.v.length} case${found.v.length > 1 ? "s" : ""}, a dot for each of ${seeds} seed${seeds > 1 ? "s" : ""}: the difference tested; mean and 95% interval. Green: “${found.w}”.`
      : found.c.length ? "What was measured in each case; no noise." : `${seeds} value${seeds > 1 ? "s" : ""}, one for each case; no noise.`;
    const words = document.createElement("p");
    words.textContent = said;
    box.replaceChildren(words, strip(found));
    box.hidden = false;
    const at = button.getBoundingClientRect(), size = box.getBoundingClientRect();
    const below = at.bottom + size.height + 12 < innerHeight || at.top < size.height + 12;
    box.style.left = `${scrollX + Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8))}px`;
    box.style.top = `${scrollY + (below ? at.bottom + 6 : at.top - size.height - 6)}px`;
  };
  for (const button of document.querySelectorAll("[data-points]")) {
    for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => show(button));
    for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => document.activeElement === button && event === "mouseleave" || hide());
    button.addEventListener("click", () => show(button));
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();

// What every report has: light or dark, long text with "more", lists that filter, boxes that scroll by keyboard.

/** @template {Element} T @param {string} selector @param {new () => T} kind @param {ParentNode} within @returns {T} */
export function get(selector, kind, within = document) {
  const element = within.querySelector(selector);
  if (!(element instanceof kind)) throw new Error(`no ${selector}`);
  return element;
}

/** What page.py embeds for the script. @returns {any} */
export const embedded = () => JSON.parse(get("#data", HTMLScriptElement).textContent ?? "{}");

/** Three digits and no more. @param {number} value */
export const figure = (value) => String(Number(value.toPrecision(3))).replaceAll("-", "−");

get("#theme", HTMLElement).addEventListener("click", () => {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
});

/** Text of the class "clamp" ends after some lines, with a button for the rest. */
function clamp() {
  for (const text of document.querySelectorAll(".clamp")) {
    text.classList.add("clamped");
    if (text.scrollHeight <= text.clientHeight + 1) { text.classList.remove("clamped"); continue; }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "more";
    const label = () => { button.textContent = text.classList.contains("open") ? "less" : "more"; };
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      button.setAttribute("aria-expanded", String(text.classList.toggle("open")));
      label();
    });
    label();
    text.after(button);
  }
}

/** Choices with data-filter="word" mark what lacks the word among its data-tags as "off"; a second click undoes it. */
function filters() {
  const choices = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-filter]")]);
  const items = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-tags]")]);
  const groups = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-group]")]);
  const status = document.getElementById("filter-status");
  /** @param {HTMLElement | null} active */
  function apply(active) {
    for (const choice of choices) choice.setAttribute(choice instanceof HTMLAnchorElement ? "aria-current" : "aria-pressed", String(choice === active));
    for (const item of items) item.classList.toggle("off", active !== null && !(item.dataset.tags ?? "").split(" ").includes(active.dataset.filter ?? ""));
    for (const group of groups) group.hidden = active !== null && !group.querySelector("[data-tags]:not(.off)");
    document.body.classList.toggle("filtered", active !== null);
    if (!status) return;
    status.hidden = active === null;
    get("span", HTMLElement, status).textContent = active ? `${items.filter((item) => !item.classList.contains("off")).length} of ${items.length} shown: ${active.title || active.textContent}` : "";
  }
  for (const choice of choices) choice.addEventListener("click", (event) => {
    const active = choice.getAttribute("aria-pressed") === "true" || choice.getAttribute("aria-current") === "true" ? null : choice;
    apply(active);
    if (!(choice instanceof HTMLAnchorElement)) return;
    event.preventDefault();
    if (active) items.find((item) => !item.classList.contains("off"))?.scrollIntoView({ block: "center" });
  });
  status?.querySelector("button")?.addEventListener("click", () => apply(null));
}

/** Boxes that scroll are stops of the keyboard; others are none. */
function stops() {
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0"); else box.removeAttribute("tabindex");
  }
}

clamp();
filters();
stops();
addEventListener("resize", stops);

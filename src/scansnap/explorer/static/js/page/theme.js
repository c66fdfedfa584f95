// Light and dark: what the system wishes, unless the user chose.

import { $ } from "./dom.js";
import { emit } from "../app.js";

const system = window.matchMedia("(prefers-color-scheme: dark)");
/** @type {string | null} */
let chosen = null;
try { chosen = localStorage.getItem("scansnap-theme"); } catch { /* storage may be off */ }

const dark = () => (chosen ? chosen === "dark" : system.matches);

function apply() {
  document.documentElement.dataset.theme = dark() ? "dark" : "light";
  emit("theme");
}

export function toggle() {
  chosen = dark() ? "light" : "dark";
  try { localStorage.setItem("scansnap-theme", chosen); } catch { /* storage may be off */ }
  apply();
}

export function start() {
  system.addEventListener("change", apply);
  $("theme").addEventListener("click", toggle);
  apply();
}

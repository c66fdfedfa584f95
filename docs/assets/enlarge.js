/* A picture that is clicked, or chosen with Enter, fills the window; what is larger than the window scrolls. */
const WIDEST = 1600;

function enlarge(picture) {
  const dialog = document.createElement("dialog");
  const copy = new Image();
  copy.src = picture.currentSrc || picture.src;
  copy.alt = picture.alt;
  copy.style.width = `max(100%, ${Math.min(picture.naturalWidth, WIDEST)}px)`;
  dialog.className = "enlarged";
  dialog.setAttribute("aria-label", "Enlarged picture; Escape or a click closes it");
  dialog.append(copy);
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

for (const picture of document.querySelectorAll(".md-content img")) {
  if (picture.closest("a")) continue;
  picture.classList.add("can-enlarge");
  picture.tabIndex = 0;
  picture.setAttribute("aria-haspopup", "dialog");
  picture.addEventListener("click", () => enlarge(picture));
  picture.addEventListener("keydown", (event) => event.key === "Enter" && enlarge(picture));
}

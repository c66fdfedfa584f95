// Your own words: a text is pasted, its repeated pairs of words are counted, and those chosen become the classes.

import * as api from "../../compute/api.js";
import { debounce, errorMessage, h, refuse } from "../../page/dom.js";
import { app, emit } from "../../app.js";
import { whole } from "../../draw/format.js";
import { modal } from "../../page/popup.js";

/** @import { WordPair, TextSummary } from "../../messages.js" */

const EXAMPLE = `The kitten sits by the bowl in the kitchen and drinks milk.
In the office the tired clerk yawns and drinks coffee.
On the farm the lamb runs to the cow and drinks milk.
At the desk in the office she works late and drinks coffee.
The kitten wakes in the warm kitchen and drinks milk.
In the morning the tired nurse sits down and drinks coffee.
The lamb and the kitten play, and the small one drinks milk.
The clerk has a deadline in the morning, so he drinks coffee.
After the concert in the hall the old man plays piano.
On the wet grass behind the school the boy plays football.
In the hall, under the lamp, a girl sits down and plays piano.
The boy with the new boots scores a goal and plays football.
With ten fingers on the keys in the hall she plays piano.
On the grass the team cheers for the goal and plays football.
By the fire the lonely poet thinks of the moon and reads poems.
On the ship the sailor looks north and reads maps.
Under the moon the lonely girl holds a rose and reads poems.
With a compass on the river the sailor turns north and reads maps.
The poet with the rose sits in the garden and reads poems.
At the border the guide with the compass stops and reads maps.
`;

const text = h("textarea", { id: "words-text", rows: 11, spellcheck: "false", "aria-describedby": "words-counted words-refusal", oninput: () => ask() });
const counted = h("p", { class: "explain", id: "words-counted", "aria-live": "polite" });
const pairs = h("div", { class: "pairs", id: "words-pairs", role: "group", "aria-label": "Next words to tell apart" });
const refusal = h("p", { class: "refusal", id: "words-refusal", role: "alert", hidden: true });
/** @type {HTMLButtonElement} */
let use;
/** @type {TextSummary | null} */
let offer = null; // for what is in the field
/** @type {[string, string][] | null} */
let chosen = null; // null: the most frequent ones
let ran = ""; // the text of the run that was begun here, or found in the set-up

export function openWords() {
  const { text: own, pairs: before } = app.setup.classes;
  if (own !== undefined && own !== ran) { chosen = before ?? null; text.value = ran = own; } // otherwise what was written here stays
  const dialog = modal("Your own words", h("div", { class: "own-words" },
    h("p", { class: "lead" }, "Paste some twenty lines. Two words that follow each other again and again become a class: the first is the query, the second is to be predicted from the words before them in the sentence."),
    h("label", { htmlFor: "words-text" }, "Text"), text,
    h("div", { class: "buttons" }, h("button", { type: "button", id: "words-example", onclick: () => { text.value = EXAMPLE; chosen = null; look(); } }, "Use an example"), counted),
    pairs, refusal), [
    h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
    (use = h("button", { type: "button", class: "primary", id: "use-words", onclick: () => run(dialog) }, "Run these words")),
  ]);
  dialog.classList.add("wide");
  show(null, "");
  text.focus();
  if (text.value) look();
}

const ask = debounce(() => { chosen = null; look(); }, 300);

/** What the text gives. */
function look() {
  if (!text.value.trim()) return show(null, "");
  try {
    const answer = api.words({ text: text.value, pairs: chosen });
    show(answer, answer.refusal);
  } catch (e) { show(null, errorMessage(e)); }
}

/**
 * @param {TextSummary | null} answer
 * @param {string} why  what is wrong with it
 */
function show(answer, why) {
  const focused = document.activeElement?.id;
  offer = answer;
  refuse(refusal, why);
  use.disabled = !answer?.classes;
  counted.textContent = answer
    ? `${whole(answer.words)} words, ${whole(answer.different)} of them different, in ${whole(answer.sentences)} sentences; a sentence ends at . ! ? or with its line.`
    : `At most ${whole(app.catalogue.limits.text_characters)} characters; a sentence ends at . ! ? or with its line.`;
  pairs.replaceChildren(...(answer ? rows(answer.pairs) : []));
  if (focused?.startsWith("pair-")) document.getElementById(focused)?.focus(); // redrawn
}

/** @param {WordPair[]} all */
function rows(all) {
  const taken = new Map(all.filter((p) => p.chosen).map((p) => [p.next, p.query]));
  const queries = [...new Set([...all.filter((p) => p.chosen), ...all].map((p) => p.query))];
  return [h("h3", {}, "Classes: which next words are to be told apart?"), ...queries.map((query) => h("p", {}, h("b", {}, `… ${query}`), all.filter((p) => p.query === query).map((p) => {
    const owner = taken.get(p.next), blocked = owner !== undefined && owner !== query;
    return h("button", {
      type: "button", id: `pair-${query}-${p.next}`, "aria-pressed": String(p.chosen), disabled: blocked, onclick: () => toggle(p),
      title: blocked ? `“${p.next}” is the next word of “${owner}” already; a next word belongs to one class` : `“${query} ${p.next}” occurs ${p.count} times`,
    }, p.next, h("span", {}, String(p.count)));
  })))];
}

/** @param {WordPair} pair */
function toggle(pair) {
  const now = (offer?.pairs ?? []).filter((p) => p.chosen !== (p === pair));
  chosen = now.map((p) => [p.query, p.next]);
  look();
}

/** @param {HTMLDialogElement} dialog */
function run(dialog) {
  if (!offer?.classes) return;
  app.setup = { ...app.setup, classes: offer.classes };
  ran = text.value;
  app.preset = null;
  dialog.close();
  emit("classes-made");
}

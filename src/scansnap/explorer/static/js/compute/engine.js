// The engine: in two workers made of its own text for what takes time, and here for short answers.

import { data } from "./data.js";
import { Cancelled, Refused, Workers } from "../engine/workers.js";
import { InputError } from "../engine/errors.js";

/** @import { Catalogue } from "../messages.js" */
/** @import { Declared } from "../engine/setup/settings.js" */

/** @type {Catalogue} */
export const catalogue = data("catalogue");
/** What the engine reads set-ups by. @type {Declared} */
export const declared = /** @type {any} */ ((({ decks: _decks, scenes: _scenes, applies: _applies, ...rest }) => rest)(catalogue));

const text = URL.createObjectURL(new Blob([data("engine")], { type: "text/javascript" }));
export const workers = new Workers(() => new Worker(text), declared);

/**
 * Whether something ended because nobody wants its answer any more.
 * @param {unknown} error
 */
export const isAbort = (error) => error instanceof Cancelled || (error instanceof DOMException && error.name === "AbortError");

/**
 * The control that an error belongs to; "request" where it belongs to none.
 * @param {unknown} error
 */
export const fieldOf = (error) => (error instanceof Refused || error instanceof InputError ? error.field : "request");

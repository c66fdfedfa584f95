// A value that cannot be used, with the control that shows the message.

/** The twin of Python's InputError: `field` names the control, the message says what is expected. */
export class InputError extends Error {
  /**
   * @param {string} field
   * @param {unknown} value
   * @param {string} expected
   */
  constructor(field, value, expected) {
    super(`${field}: expected ${expected}, got ${shown(value)}`);
    this.name = "InputError";
    this.field = field;
  }
}

/** @param {unknown} value */
function shown(value) {
  const text = typeof value === "string" || (typeof value === "object" && value !== null) ? JSON.stringify(value) : String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

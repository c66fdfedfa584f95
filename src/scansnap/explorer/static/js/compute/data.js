// What was put into the file when it was built, and the file itself.

// first of all: later the document holds what the page has made
const source = document.documentElement.outerHTML;

/**
 * JSON of an element data-NAME.
 * @type {<T = any>(name: string) => T}
 */
export const data = (name) => JSON.parse(document.getElementById(`data-${name}`)?.textContent ?? "null");

/**
 * This page as a file, with other data in the place of some of its own.
 * @param {Record<string, unknown>} [changes] by name
 */
export function pageSource(changes = {}) {
  return Object.entries(changes).reduce((text, [name, value]) => {
    const begin = `<script type="application/json" id="data-${name}">`, at = text.indexOf(begin) + begin.length;
    return text.slice(0, at) + asJson(value) + text.slice(text.indexOf("</script>", at));
  }, `<!doctype html>\n${source}\n</body>\n</html>\n`);
}

/**
 * JSON in which nothing looks like an element.
 * @param {unknown} value
 */
export const asJson = (value) => JSON.stringify(value).replaceAll("<", "\\u003c");

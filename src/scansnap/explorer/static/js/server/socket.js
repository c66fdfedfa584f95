// One WebSocket, one run: sends wishes, hands on answers, comes back after a dropped connection.

import { url } from "./api.js";

/** @import { ClosedText, ErrorText, MarkSaid, MarkText, RunText, Setup, StateText } from "../messages.js" */
/**
 * What comes in.
 * @typedef {object} Heard
 * @property {(message: RunText) => void} [run]
 * @property {(message: StateText) => void} [state]
 * @property {(message: MarkText) => void} [mark]
 * @property {(steps: Uint32Array, values: Float32Array, floats: number, flags: number) => void} [frames]
 * @property {(step: number, values: Float32Array) => void} [table]
 * @property {() => void} [reset]
 * @property {(message: ErrorText) => void} [error]
 * @property {(message: ClosedText) => void} [closed]
 * @property {(status: "connecting" | "open" | "lost" | "back") => void} [link]
 */

const FRAMES = 1, TABLE_Y = 2;
export const RESTART = 2;

export class Link {
  /** @param {Heard} on */
  constructor(on) {
    this.on = on;
    /** @type {string | null} */
    this.run = null; // id to take up again
    this.seen = () => -1; // last step the page has
    this.tries = 0;
    this.ended = false;
    /** @type {string | null} */
    this.wanted = null; // the start that has no answer yet: sent again after a dropped connection
    this.ws = this.open();
  }

  /** @returns {WebSocket} */
  open() {
    this.on.link?.(this.tries ? "lost" : "connecting");
    const ws = (this.ws = new WebSocket(url("/ws").replace(/^http/, "ws")));
    ws.binaryType = "arraybuffer";
    ws.onopen = () => {
      const again = this.tries > 0;
      this.tries = 0;
      if (this.wanted) ws.send(this.wanted);
      else if (this.run) ws.send(JSON.stringify({ op: "attach", run: this.run, since: this.seen() }));
      this.on.link?.(again ? "back" : "open");
    };
    ws.onmessage = (event) => (typeof event.data === "string" ? this.said(JSON.parse(event.data)) : this.binary(event.data));
    ws.onclose = () => {
      if (this.ended || ws !== this.ws) return;
      this.tries++;
      this.on.link?.("lost");
      setTimeout(() => this.ended || this.open(), Math.min(3000, 200 * 1.7 ** Math.min(this.tries, 8)));
    };
    return ws;
  }

  /** @param {any} message */
  said(message) {
    if (message.type === "run" || message.type === "error") this.wanted = null;
    if (message.type === "run") this.run = message.run;
    if (message.type === "closed") this.run = null;
    if (message.type === "error" && message.field === "run") this.run = null;
    /** @type {Record<string, (message: any) => void>} */ (this.on)[message.type]?.(message);
  }

  /** @param {ArrayBuffer} buffer */
  binary(buffer) {
    const { kind, steps, values, floats, flags } = unpack(buffer, 0);
    if (kind === FRAMES) this.on.frames?.(steps, values, floats, flags);
    if (kind === TABLE_Y) this.on.table?.(steps[0], values);
  }

  /**
   * Sends a wish; a new run waits for a connection, the rest would be stale.
   * @param {{op: string, [key: string]: any}} message
   */
  send(message) {
    const text = JSON.stringify(message);
    if (message.op === "start") { this.run = null; this.wanted = text; }
    if (this.ws.readyState === WebSocket.OPEN) this.ws.send(text);
  }

  end() {
    this.ended = true;
    this.ws.close();
  }
}

/**
 * Reads a binary message that begins at a byte of a buffer.
 * @param {ArrayBuffer} buffer
 * @param {number} at
 */
export function unpack(buffer, at) {
  const [kind, n, floats, flags] = new Uint32Array(buffer, at, 4);
  return { kind, floats, flags, steps: new Uint32Array(buffer, at + 16, n), values: new Float32Array(buffer, at + 16 + 4 * n, n * floats) };
}

/**
 * Runs a set-up beside the one on screen, with changes of its rates, as fast as it goes, to its end.
 * @param {Setup} setup
 * @param {MarkSaid[]} marks
 * @param {Pick<Heard, "run" | "frames" | "mark" | "error">} on
 */
export function aside(setup, marks, on) {
  const link = new Link({
    run: on.run, frames: on.frames, mark: on.mark,
    state: (m) => { if (m.state === "done" || m.state === "failed") link.end(); },
    error: (m) => { on.error?.(m); link.end(); },
  });
  link.send({ op: "start", setup, marks, speed: "max", play: true });
  return link;
}

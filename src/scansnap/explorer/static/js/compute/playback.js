// Playback: moves through the steps of a film by the clock, and waits where the film is still being computed.

import { emit } from "../app.js";

/**
 * The step after so many seconds, and the seconds to a step.
 * @typedef {{from: number, step: (seconds: number) => number, time: (step: number) => number}} Pacing
 */

/** @type {{frame: number, done: () => void} | null} */
let playing = null;

export const isPlaying = () => playing !== null;

/** Stops, and resolves the promise of the end. */
export function stop() {
  if (!playing) return;
  const { frame, done } = playing;
  cancelAnimationFrame(frame);
  playing = null;
  done();
  emit("state");
}

/**
 * Plays to the step `to()`, as far as the film reaches; both may change meanwhile.
 * @param {Pacing} pacing
 * @param {() => number} to
 * @param {() => number} reach
 * @param {(step: number) => void} show
 * @returns {Promise<void>}
 */
export function play({ from, step, time }, to, reach, show) {
  stop();
  return new Promise((done) => {
    let begun = performance.now(), last = from;
    const mine = (playing = { frame: 0, done });
    const tick = () => {
      const now = performance.now(), goal = to(), there = reach();
      let s = step((now - begun) / 1000);
      if (s > there && there < goal) { // not computed yet: time stands still
        s = Math.max(last, there);
        begun = now - 1000 * time(s);
      }
      last = Math.min(s, goal);
      show(last);
      if (last >= goal && there >= goal) { if (playing === mine) stop(); return; }
      if (playing === mine) mine.frame = requestAnimationFrame(tick);
    };
    show(from);
    mine.frame = requestAnimationFrame(tick);
    emit("state");
  });
}

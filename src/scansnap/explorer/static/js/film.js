// The frames of one run in the order of their steps, and how to read them.

const BYTES = 48 << 20;

export class Film {
  constructor(run) {
    this.run = run; // the `run` message
    this.marks = [...run.marks];
    this.fields = Object.fromEntries(run.layout.fields.map((f) => [f.name, f]));
    this.most = Math.max(200, Math.min(3000, Math.floor(BYTES / (4 * run.layout.floats))));
    this.tokenOffset = offsets(run.layout.tokens); // where a class starts within "attention"
    this.queryOffset = offsets(run.layout.query_tokens);
    this.clear();
  }

  clear() {
    this.steps = [];
    this.frames = []; // Float32Array each
    this.peak = 0; // largest attention so far
    this.version = (this.version ?? 0) + 1;
  }

  get length() { return this.steps.length; }
  get lastStep() { return this.length ? this.steps[this.length - 1] : -1; }

  /** Takes frames in; a step at or before the last one is known already. */
  add(steps, values, floats) {
    const a = this.fields.attention;
    for (let i = 0; i < steps.length; i++) {
      if (steps[i] <= this.lastStep) continue;
      const frame = values.slice(i * floats, (i + 1) * floats);
      this.steps.push(steps[i]);
      this.frames.push(frame);
      for (let j = a.offset; j < a.offset + a.size; j++) if (frame[j] > this.peak) this.peak = frame[j];
    }
    if (this.length > this.most) this.thin();
    this.version++;
  }

  /** Fewer frames, evenly in log step; the first and the last stay. */
  thin() {
    const gap = Math.log(this.lastStep + 1) / (0.6 * this.most);
    let kept = -Infinity;
    const keep = this.steps.map((step, i) => {
      const x = Math.log(step + 1);
      if (i !== 0 && i !== this.length - 1 && x - kept < gap) return false;
      kept = x;
      return true;
    });
    this.steps = this.steps.filter((_, i) => keep[i]);
    this.frames = this.frames.filter((_, i) => keep[i]);
  }

  /** Index of the last frame at or before `step`. */
  at(step) {
    let low = 0, high = this.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.steps[mid] <= step) low = mid; else high = mid - 1;
    }
    return low;
  }

  value(name, i, j = 0) { return this.frames[i][this.fields[name].offset + j]; }

  /** Attention of class k in frame i, token by token. */
  attention(i, k) {
    const at = this.fields.attention.offset + this.tokenOffset[k];
    return this.frames[i].subarray(at, at + this.run.layout.tokens[k].length);
  }

  /** z of query q in frame i. */
  z(i, q) {
    const at = this.fields.z.offset + this.queryOffset[q];
    return this.frames[i].subarray(at, at + this.run.layout.query_tokens[q].length);
  }

  /** At most `n` frame indices, spread evenly on the time axis `x`, with both ends. */
  pick(n, x) {
    const last = this.length - 1;
    if (last < n) return Array.from({ length: last + 1 }, (_, i) => i);
    const from = x(this.steps[0]), gap = (x(this.steps[last]) - from) / n, out = [0];
    for (let i = 1; i < last; i++) if (x(this.steps[i]) - x(this.steps[out[out.length - 1]]) >= gap) out.push(i);
    out.push(last);
    return out;
  }

  /** For each of `rows` moments from step 0 to the last step of the run: the frame shown there, −1 where there is none yet. */
  rowFrames(rows, x) {
    const end = x(Math.max(1, this.run.steps ?? 1, this.lastStep)), out = new Int32Array(rows);
    const reached = this.length ? x(this.lastStep) : -1;
    let i = 0;
    for (let r = 0; r < rows; r++) {
      const here = ((r + 0.5) / rows) * end;
      if (here > reached) { out[r] = r === 0 && this.length ? 0 : -1; continue; }
      while (i + 1 < this.length && x(this.steps[i + 1]) <= here) i++;
      out[r] = i;
    }
    return out;
  }

  /** "distinct" or "common" for a token of class k. */
  kind(k, token) {
    const c = this.run.classes.classes[k], j = c.tokens.indexOf(token);
    return j < 0 ? "query" : c.kinds[j];
  }
}

function offsets(lists) {
  let at = 0;
  return lists.map((list) => { const here = at; at += list.length; return here; });
}

/** How a token reads: its word where there is one. */
export function word(classes, token) {
  return classes.words?.[token] ?? `token ${token}`;
}

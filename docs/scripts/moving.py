"""Makes the moving picture of README.md from a run of its own: python docs/scripts/moving.py [--out docs/moving.svg].

Two classes of the preset ``words`` with one last word, the run that the explorer begins with. The picture is an SVG
that moves by CSS: it follows the reader's light or dark page, stands still for those who ask for less motion, and
where nothing moves it shows the last step. Time runs evenly in ln t, and the snap is where ``snap_time`` finds it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

import scansnap as ss
from scansnap.measure.snap import snap_time

RATES = {"eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9, "seed": 0}
STEPS, FRAMES = 1000, 64
SHOWN = (0, 1)  # … drinks milk, … drinks coffee
BEFORE, MOVING, AFTER = 0.8, 8.0, 3.2  # seconds at step 0, from 1 to the last, at the last
LOOP = BEFORE + MOVING + AFTER
WIDTH, HEIGHT = 920, 470
KINDS = ("common", "shared", "distinct")
KIND_WORDS = ("in every context", "in two contexts", "in this context only")

STYLE = """
svg{--ink:#1f2328;--dim:#656d76;--line:#d0d7de;--card:#ffffff;--common:#e69f00;--shared:#7f8892;--distinct:#0072b2;--snap:#0072b21a}
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--dim:#9198a1;--line:#3d444d;--card:#0d1117;--common:#e6a817;--shared:#7d8590;--distinct:#4aa8e8;--snap:#4aa8e826}}
text{font-family:-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--ink);font-size:14px}
.dim{fill:var(--dim);font-size:13px}.title{font-size:17px;font-weight:600}.word{font-size:13px}
.axis{stroke:var(--line);fill:none}.card{fill:var(--card);stroke:var(--line)}.snap{fill:var(--snap)}
.common{fill:var(--common)}.shared{fill:var(--shared)}.distinct{fill:var(--distinct)}
.curve{fill:none;stroke-width:3;stroke-linejoin:round}.curve.common{stroke:var(--common)}.curve.shared{stroke:var(--shared)}.curve.distinct{stroke:var(--distinct)}
.faint{opacity:.25}.cursor{stroke:var(--ink);stroke-width:1.5}
.bar,.seen,.cursor{animation-duration:var(--loop);animation-iteration-count:infinite;animation-timing-function:linear}
.seen{transform-box:fill-box;transform-origin:0 50%}
.step{opacity:0;animation:flash var(--loop) step-end infinite;font-variant-numeric:tabular-nums}.step.last{opacity:1}
@media(prefers-reduced-motion:reduce){*{animation:none!important}}
"""


@dataclass(frozen=True)
class Moments:
    """What is drawn: times, the attention of the classes shown, and their words by kind."""

    steps: np.ndarray  # (frame,)
    attention: np.ndarray  # (frame, shown, word)
    words: list[list[str]]
    kinds: list[list[str]]
    titles: list[str]
    snap: float

    @property
    def shares(self) -> dict[str, np.ndarray]:
        """(frame,): the share of each kind, the mean of the classes shown."""
        kinds = np.array(self.kinds)
        return {kind: (self.attention * (kinds == kind)).sum(2).mean(1) for kind in KINDS}

    @property
    def at(self) -> np.ndarray:
        """(frame,): when in the loop each is on, from 0 to 1; even in ln t after step 0."""
        even = np.log(self.steps[1:]) / np.log(self.steps[-1])
        return np.concatenate([[BEFORE / 2], BEFORE + MOVING * even]) / LOOP


def compute() -> Moments:
    """The run, at steps even in ln t as far as there are whole ones."""
    classes = ss.SequenceClasses.bundled_words()
    recorded = np.unique(np.concatenate([[0], np.geomspace(1, STEPS, 120).round()]).astype(int))
    data = ss.simulate(classes, steps=STEPS, record=recorded.tolist(), **RATES)
    snap = snap_time(data, classes, pool=False).isel(run=0)
    if not bool(snap.has_snapped):
        raise SystemExit(f"Attention does not snap in this run: {snap.reason.item()}")
    steps = np.unique(np.concatenate([[0], np.geomspace(1, STEPS, FRAMES).round()]).astype(int))
    attention = (
        data.attention.isel(run=0).sel(step=steps, method="nearest").transpose("step", "seq_class", "token").values
    )
    in_contexts = (classes.p_context > 0).sum(0)
    assert classes.words is not None
    words, kinds, titles, rows = [], [], [], []
    for n in SHOWN:
        tokens = np.flatnonzero(classes.p_context[n])
        words.append([classes.words[token] for token in tokens])
        kinds.append([_kind(in_contexts[token], classes.n_classes) for token in tokens])
        titles.append(f"… {classes.words[classes.query[n]]} {classes.words[classes.next_token[n]]}")
        rows.append(attention[:, n, tokens])
    return Moments(data.step.sel(step=steps, method="nearest").values, np.stack(rows, 1), words, kinds, titles,
                   float(snap.t_snap))  # fmt: skip


def _kind(contexts: int, of: int) -> str:
    return "common" if contexts == of else "distinct" if contexts == 1 else "shared"


def draw(moments: Moments) -> str:
    """The SVG."""
    rules, parts = [], []
    for panel in range(len(SHOWN)):
        more_rules, more = _bars(moments, panel, left=40 + panel * 445)
        rules += more_rules
        parts += more
    more_rules, more = _shares(moments, left=58, right=740, top=300, bottom=420)
    rules += more_rules
    parts += more + _legend(762, 318)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" style="--loop:{LOOP:g}s"><title>Attention of two sequence classes while they are learnt</title>'
    )
    style = f"<style>{STYLE}{''.join(rules)}</style>"
    card = f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>'
    return "\n".join([head, style, card, *parts, "</svg>", ""])


def _bars(moments: Moments, panel: int, left: int) -> tuple[list[str], list[str]]:
    """One class: a bar for each word of its context, as high as its attention."""
    base, high, pitch, wide = 200, 140, 31, 23
    top = moments.attention.max()
    rules = []
    parts = [
        f'<text class="title" x="{left}" y="34">{escape(moments.titles[panel])}'
        f'<tspan class="dim" font-weight="400" dx="10">attention on the words of its context</tspan></text>'
    ]
    room = f'x="{left}" y="{base - high}" width="{pitch * len(moments.words[panel])}" height="{high}"'
    parts.append(f'<clipPath id="p{panel}"><rect {room}/></clipPath><g clip-path="url(#p{panel})">')
    labels = []
    labels.append(f'<path class="axis" d="M{left} {base + 0.5}h{pitch * len(moments.words[panel])}"/>')
    for i, word in enumerate(moments.words[panel]):
        down = high * (1 - moments.attention[:, panel, i] / top)  # moved, not scaled: their edges stay sharp
        x = left + i * pitch + (pitch - wide) // 2
        name = f"b{panel}_{i}"
        rules.append(_keyframes(name, moments.at, [f"transform:translateY({y:.1f}px)" for y in down]))
        parts.append(
            f'<rect class="bar {moments.kinds[panel][i]}" x="{x:g}" y="{base - high}" width="{wide}" height="{high}" '
            f'style="transform:translateY({down[-1]:.1f}px);animation-name:{name}"/>'
        )
        middle = x + wide / 2 + 4
        labels.append(
            f'<text class="word" x="{middle:g}" y="{base + 16}" text-anchor="end" '
            f'transform="rotate(-45 {middle:g} {base + 16})">{escape(word)}</text>'
        )
    return rules, [*parts, "</g>", *labels]


def _shares(moments: Moments, left: float, right: float, top: float, bottom: float) -> tuple[list[str], list[str]]:
    """How the kinds share the attention, on ln t; before step 1, a little room for step 0."""
    first, last = left + 40, moments.steps[-1]

    def x(step: float) -> float:
        return left if step == 0 else first + (right - first) * float(np.log(step) / np.log(last))

    def y(share: float) -> float:
        return bottom - (bottom - top) * share / 0.8

    places = [x(step) for step in moments.steps]
    parts = [f'<text class="dim" x="{left}" y="{top - 12}">share of attention</text>']
    at = x(moments.snap)
    parts.append(f'<rect class="snap" x="{at:.1f}" y="{top}" width="{right - at:.1f}" height="{bottom - top}"/>')
    parts.append(f'<text class="dim" x="{at - 8:.1f}" y="{top - 12}" text-anchor="end">scan</text>')
    parts.append(
        f'<text class="dim" x="{at + 8:.1f}" y="{top - 12}">snap at step {moments.snap:.0f}: almost frozen</text>'
    )
    parts.append(f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>')
    for tick in (0, 1, 10, 100, 1000):
        parts.append(f'<text class="dim" x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick:,}</text>')
    parts.append(
        f'<text class="dim" x="{(left + right) / 2}" y="{bottom + 37}" text-anchor="middle">step (ln t)</text>'
    )
    for share in (0.2, 0.4, 0.6):
        parts.append(f'<text class="dim" x="{left - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    seen = [f"transform:scaleX({(place - left) / (right - left):.4f})" for place in places]
    moved = [f"transform:translateX({place - right:.1f}px)" for place in places]
    rules = [_keyframes("seen", moments.at, seen), _keyframes("cursor", moments.at, moved)]
    curves = []
    for kind, shares in moments.shares.items():
        line = "M" + "L".join(f"{place:.1f} {y(share):.1f}" for place, share in zip(places, shares, strict=True))
        curves.append(f'<path class="curve {kind}" d="{line}"/>')
    room = f'x="{left}" y="{top - 10}" width="{right - left}" height="{bottom - top + 20}"'
    parts.append(f'<clipPath id="seen"><rect class="seen" {room} style="animation-name:seen"/></clipPath>')
    parts.append(f'<g class="faint">{"".join(curves)}</g><g clip-path="url(#seen)">{"".join(curves)}</g>')
    parts.append(f'<path class="cursor" style="animation-name:cursor" d="M{right} {top}V{bottom}"/>')
    return rules + _flash(moments), parts + _counter(moments, 762, 420)


def _counter(moments: Moments, x: float, y: float) -> list[str]:
    """The step in figures: all stand there, each is seen for its time."""
    parts, at = [], moments.at
    for i, step in enumerate(moments.steps):
        name = "first" if i == 0 else "last" if i == len(at) - 1 else f"f{i}"
        parts.append(
            f'<text class="step title {"last" if name == "last" else ""}" style="animation-name:{name}" '
            f'x="{x}" y="{y}">step {step:,}</text>'
        )
    return parts


def _flash(moments: Moments) -> list[str]:
    at, rules = 100 * moments.at, []
    for i in range(len(at)):
        name = "first" if i == 0 else "last" if i == len(at) - 1 else f"f{i}"
        on = "" if i == 0 else f"0%{{opacity:0}}{at[i]:.2f}%{{opacity:1}}"
        off = "100%{opacity:1}" if i == len(at) - 1 else f"{at[i + 1]:.2f}%{{opacity:0}}100%{{opacity:0}}"
        rules.append(f"@keyframes {name}{{{on or '0%{opacity:1}'}{off}}}")
    return rules


def _legend(x: float, y: float) -> list[str]:
    parts = []
    for i, (kind, words) in enumerate(zip(KINDS, KIND_WORDS, strict=True)):
        parts.append(f'<rect class="{kind}" x="{x}" y="{y + 24 * i - 11}" width="12" height="12" rx="2"/>')
        parts.append(f'<text class="dim" x="{x + 18}" y="{y + 24 * i}">{words}</text>')
    return parts


def _keyframes(name: str, at: np.ndarray, states: list[str]) -> str:
    """A CSS animation through these states, the first kept before and the last after."""
    kept: list[tuple[float, str]] = []
    for i, state in enumerate(states):  # of three that are alike the middle one says nothing
        if not (0 < i < len(states) - 1 and states[i - 1] == state == states[i + 1]):
            kept.append((100 * at[i], state))
    frames = "".join(f"{place:.2f}%{{{state}}}" for place, state in kept)
    return f"@keyframes {name}{{0%{{{states[0]}}}{frames}100%{{{states[-1]}}}}}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "moving.svg")
    target = parser.parse_args().out
    target.write_text(draw(compute()), encoding="utf-8")
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB")

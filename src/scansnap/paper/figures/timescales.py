"""Two time scales: how the logit gap of attention grows to 10¹² t₀, and its speed in t and in ln t."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.claims.ours.late import FIRST, NONE_TOLERANCE, loglog_exponent, split_windows
from scansnap.claims.ours.symmetric import SymmetricClasses, find_symmetry
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.snap_curves import FROZEN, in_t, over_e_folds, snapped
from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.plots.style import styled
from scansnap.progress import Progress
from scansnap.theory import t_snap

TITLE = "When does attention stop, in t and in ln t?"
CAPTION = (
    "Attention of two classes on the exact flow to 10¹² t₀. (a) The logit gap, z of the distinct token less that of "
    "the common one: κ ln ln t with the l2 norm, 2 ln ln t without a norm, ln t if the decoder stands still or its "
    "weights decay; decay of Z undoes the scan. Dashed: guides. (b) Its speed per unit of t falls for all of them, "
    "dotted where it goes back. (c) Its speed per unit of ln t tells them apart. Dots: when attention was fastest, "
    "filled where it has snapped in that time."
)

ETA_Y, ETA_Z, DECAY = 0.9, 0.45, 1e-5
LAST = 1e12  # in t₀
PER_DECADE = 16
TEXTBOOK = "l2 norm, preset textbook"
LABELS = {"l2": "l2 norm", "none": "no norm", "fixed": "no norm, Y fixed at t₀", "decay_y": "l2 norm, decay of Y",
          "decay_z": "l2 norm, decay of Z", "textbook": TEXTBOOK}  # fmt: skip
LOST = 1e-5  # gaps below it are smaller than the tolerance of the flow
STILL = 1e-3  # of its greatest speed in t


def two_classes() -> SequenceClasses:
    """One common token and one distinct token each, M = 44: attention moves by O(1)."""
    p = np.zeros((2, 44))
    p[:, 0] = p[0, 1] = p[1, 2] = 0.5
    return SequenceClasses(p_context=p, query=[3, 3], next_token=[4, 5])


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Six flows; each row is a flow at a time. Quick: to 10⁹ t₀."""
    last = 1e9 if effort.quick else LAST
    small, textbook = two_classes(), SequenceClasses.preset("textbook")
    start = _t0(small, ETA_Y)
    y = flow(small, ETA_Y, ETA_Z, [start], norm="none", variables=("y",)).y[0]
    runs: dict[str, tuple[SequenceClasses, float, float, dict[str, Any]]] = {
        "l2": (small, ETA_Y, ETA_Z, {}),
        "none": (small, ETA_Y, ETA_Z, {"norm": "none"}),
        "fixed": (small, 0.0, ETA_Z, {"norm": "none", "y0": y}),
        "decay_y": (small, ETA_Y, ETA_Z, {"weight_decay_y": DECAY, "rtol": 1e-6}),
        "decay_z": (small, ETA_Y, ETA_Z, {"weight_decay_z": DECAY, "rtol": 1e-6}),
        "textbook": (textbook, 0.9, 0.02, {}),
    }
    parts = []
    for i, (name, (classes, eta_y, eta_z, options)) in enumerate(runs.items()):
        parts.append(curve(classes, eta_y, eta_z, last, **options).assign(flow=name))
        if progress:
            progress(i + 1, len(runs))
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "flow", table.pop("flow"))
    settings = {"eta_y": ETA_Y, "eta_z": ETA_Z, "weight_decay": DECAY, "t_end_over_t0": last, "vocab_size": 44,
                "textbook": {"eta_y": 0.9, "eta_z": 0.02}, "snaps": snaps(table)}  # fmt: skip
    return Computed(table, settings, findings(table), "quick: to 10⁹ t₀" if effort.quick else "")


def curve(classes: SequenceClasses, eta_y: float, eta_z: float, last: float, **options: Any) -> pd.DataFrame:
    """The gap and its speeds, the decoder's gap, and the attention outside the largest entry."""
    family = find_symmetry(classes)
    assert isinstance(family, SymmetricClasses)
    common, dominant = family.common, family.tokens[0, 0]
    t_0 = _t0(classes, eta_y or ETA_Y)
    x = np.geomspace(1e-2, last, round(PER_DECADE * math.log10(last / 1e-2)) + 1)
    data = flow(classes, eta_y, eta_z, x * t_0, variables=("z", "z_rate", "attention", "gap"), **options)
    z, rate = (data[name].values[:, 0] for name in ("z", "z_rate"))
    speed = rate[:, dominant] - rate[:, common]
    return pd.DataFrame({"t": x * t_0, "t_over_t0": x, "gap": z[:, dominant] - z[:, common], "speed_t": speed,
                         "speed_ln": speed * x * t_0, "u": data.gap.values[:, 0], "z_common": z[:, common],
                         "not_largest": np.sort(data.attention.values[:, 0])[:, :-1].sum(-1)})  # fmt: skip


def snaps(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """When each flow is fastest in t and in ln t, in its t₀, and why that is no snap."""
    result: dict[str, dict[str, Any]] = {}
    for name, part in table.groupby("flow", sort=False):
        x, gone = np.log(part.t_over_t0.to_numpy()), np.maximum(part.gap.to_numpy(), 0.0)
        scales = {"t": in_t(x, gone, between=True), "ln t": snapped(*over_e_folds(x, gone), between=True)}
        result[str(name)] = {scale: {"fastest": float(np.exp(fastest)), "why_not": str(reason)}
                             for scale, (fastest, reason) in scales.items()}  # fmt: skip
    return result


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """A case is a window of ln t unless the finding says otherwise; flows have no noise."""
    of = {str(name): part for name, part in table.groupby("flow", sort=False)}
    when = snaps(table)
    none, l2, late = of["none"], of["l2"], "Beyond the paper, late times"

    def exponents(part: pd.DataFrame, speed: np.ndarray) -> np.ndarray:
        x = np.log(part.t.to_numpy())
        return np.array([loglog_exponent(x[w], speed[w]) for w in split_windows(x, x[0] + math.log(100 * FIRST))])

    def speeds(name: str, first: float) -> np.ndarray:
        return of[name].speed_ln[of[name].t_over_t0 >= first].to_numpy()

    gap, left = exponents(none, none.speed_ln.to_numpy()), exponents(none, _slope(none.t, -np.log(none.not_largest)))
    u, z = np.log(l2.u.to_numpy()), l2.z_common.to_numpy()
    kappa = np.array([-np.polyfit(u[w], z[w], 1)[0] for w in split_windows(u, math.log(12.0))])
    fixed, decay = speeds("fixed", FIRST), speeds("decay_y", 1e8)
    undone = of["decay_z"].gap.iloc[-1] / of["decay_z"].gap.max()
    in_time, in_log = (
        pd.Series({name: abs(part[speed].iloc[-1]) / part[speed].max() for name, part in of.items()})
        for speed in ("speed_t", "speed_ln")
    )
    return (
        _near("Without a norm the gap grows as 2 ln ln t", late, gap, 2.0, "κ of κ ln ln t"),
        _near("Without a norm attention becomes one-hot, 1 − c_max ∝ 1/ln² t", late, left, 2.0, "Exponent of 1/ln t"),
        _near("Without a norm and with Y fixed the gap grows as ln t", late, fixed, 1.0, "Speed per ln t", "times"),
        _near("Decay of Y restores ln t, with the l2 norm ½ ln t", late, decay, 0.5, "Speed per ln t", "times"),
        Finding("Decay of Z undoes the scan", late, int(undone < 0.1), 1, "flows",
                f"Of its largest value {of['decay_z'].gap.max():.2f} the gap ends at {undone:.1g}.",
                points=Points.without_noise(undone)),
        Finding("With the l2 norm the gap has no last exponent: κ of −κ ln u falls from window to window", late,
                int((np.diff(kappa) < 0).sum()), len(kappa) - 1, "neighbouring windows",
                f"−dz_c/d ln u {', '.join(f'{value:.3f}' for value in kappa)}; attention stays a mixture, "
                f"c_max = {1 - l2.not_largest.iloc[-1]:.3f} at the end.", points=Points.without_noise(kappa)),
        Finding("In t every flow ends at less than a thousandth of its greatest speed", late,
                int((in_time < STILL).sum()), len(in_time), "flows", f"At most {in_time.max():.1g} of it.",
                points=_shares(in_time)),
        Finding("In ln t every flow ends at less than half its greatest speed", late, int((in_log < FROZEN).sum()),
                len(in_log), "flows", f"{_listed(in_log)} of it. {LABELS['textbook']}: fastest in ln t at "
                f"{when['textbook']['ln t']['fastest']:.2g} t₀.", points=_shares(in_log), headline=6),
    )  # fmt: skip


def _near(says: str, reference: str, values: np.ndarray, truth: float, what: str, cases: str = "windows") -> Finding:
    close = np.abs(values / truth - 1) <= NONE_TOLERANCE
    over = f"{what} {values.min():.3f} to {values.max():.3f} over {len(values)} {cases}, the last {values[-1]:.3f}; "
    return Finding(says, reference, int(close.sum()), len(values), cases, f"{over}counted within {NONE_TOLERANCE:.0%}.",
                   points=Points.without_noise(values))  # fmt: skip


def _shares(shares: pd.Series) -> Points:
    return Points.without_noise(shares, tuple(LABELS[str(name)] for name in shares.index))


def _listed(shares: pd.Series) -> str:
    return ", ".join(f"{LABELS[str(name)]} {share:.2g}" for name, share in shares.items())


def _slope(t: pd.Series, values: pd.Series) -> np.ndarray:
    """d values/d ln t at times evenly spaced in ln t."""
    return np.asarray(np.gradient(values.to_numpy(), np.log(t.to_numpy())))


def _t0(classes: SequenceClasses, eta_y: float) -> float:
    return float(t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))


def draw(computed: Computed) -> Figure:
    """The gap with its guides, and below it the speeds in t and in ln t."""
    table, when = computed.table, snaps(computed.table)
    colours = dict(zip(LABELS, ("#0072B2", "#D55E00", "#000000", "#009E73", "#CC79A7", "#56B4E9"), strict=True))
    with styled(7.6, 7.2) as figure:
        top, *below = figure.subplots(3, 1, gridspec_kw={"height_ratios": (1.7, 1, 1)})
        parts = {str(name): part for name, part in table.groupby("flow", sort=False)}
        for name, part in parts.items():
            style: dict[str, Any] = {"color": colours[name], "linewidth": 1.8}
            top.plot(part.t_over_t0, part.gap, label=LABELS[name], **style)
            for ax, scale, speed in zip(below, ("t", "ln t"), ("speed_t", "speed_ln"), strict=True):
                shown = part[speed].where(part[speed] > 0)
                ax.plot(part.t_over_t0, shown.where(part.gap > LOST), **style)
                ax.plot(
                    part.t_over_t0, (-part[speed]).where((part[speed] < 0) & (part.gap > LOST)), linestyle=":", **style
                )
                fastest, reason = when[name][scale].values()
                if np.isfinite(fastest) and fastest > 0:
                    height = np.exp(np.interp(math.log(fastest), np.log(part.t_over_t0), np.log(shown)))
                    face = colours[name] if not reason else "white"
                    ax.plot(fastest, height, "o", markersize=5, color=colours[name], markerfacecolor=face)
        _guides(top, parts)
        top.set(ylim=(-0.3, 13.5), ylabel="logit gap of attention", title="a  Attention goes on for ever, or not")
        top.legend(loc="upper left")
        below[0].set(
            yscale="log",
            ylim=(1e-19, 1),
            ylabel="speed per t",
            title="b  In time t all of them freeze (dotted: back)",
        )
        below[1].set(yscale="log", ylim=(1e-6, 3), ylabel="speed per ln t", xlabel=r"$t/t_0$ (log scale)",
                     title="c  In log time ln t some never do")  # fmt: skip
        for ax in (top, *below):
            ax.set(xscale="log", xlim=(table.t_over_t0.min(), table.t_over_t0.max()))
    return figure


def _guides(ax: Any, parts: dict[str, pd.DataFrame]) -> None:
    """Each guide goes through the last point of its curve, so that only its slope counts."""
    for name, power, words in (("l2", 0.25, r"¼ ln ln t"), ("none", 2.0, "2 ln ln t"), ("fixed", 0.0, "ln t"),
                               ("decay_y", -1.0, "½ ln t")):  # fmt: skip
        part = parts[name][parts[name].t_over_t0 >= 1e3]
        x, gap = np.log(part.t.to_numpy()), part.gap.to_numpy()
        guide = {0.0: x, -1.0: x / 2}.get(power, power * np.log(x))
        guide = guide - guide[-1] + gap[-1]
        ax.plot(part.t_over_t0, guide, color="0.35", linestyle="--", linewidth=0.9, zorder=1)
        shown = np.flatnonzero(guide <= 12.5)
        at = shown[-1] if shown[-1] < len(guide) - 1 else len(guide) - 1
        ax.annotate(words, (part.t_over_t0.iloc[at], guide[at]), xytext=(6, -2) if name == "fixed" else (-4, 4),
                    textcoords="offset points", ha="left" if name == "fixed" else "right",
                    fontsize=8, color="0.3")  # fmt: skip

"""Draws the figures of docs/theory.md into docs/theory/, as SVG for the page and PDF for `make paper`.

    scansnap reproduce fig6 --out out && python docs/scripts/theory.py out

The ratios of least entropy are read from that folder; everything else is computed here, in about a minute.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

import scansnap as ss
from scansnap import theory
from scansnap.plots.style import SERIES, save_figure, settle, styled

PICTURES = Path(__file__).parents[1] / "theory"
ETA_Y = 0.9


def snap(classes: ss.SequenceClasses, eta_y: float = ETA_Y) -> float:
    return float(theory.t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))


def leaning() -> ss.SequenceClasses:
    """Two classes that meet every assumption; the second has most of its attention on the common token."""
    p = np.zeros((2, 3000))
    p[0, :4], p[1, [0, 4, 5]] = [0.126, 0.112, 0.386, 0.376], [0.5, 0.357, 0.143]
    return ss.SequenceClasses(p, query=[10, 10], next_token=[11, 12])


def symmetric(m: int, rho: float = 0.24, n: int = 5) -> ss.SequenceClasses:
    """Two classes of one query with n equal distinct tokens each and overlap ρ."""
    return ss.SequenceClasses.synthetic(
        1, 2, common=1, distinct=n, common_weight=np.sqrt(rho), distinct_weights=[np.sqrt((1 - rho) / n)] * n,
        unused=m - 1 - 2 * n - 3,
    )  # fmt: skip


def order(ax: Axes) -> None:
    """Gains of the distinct tokens of one class, from a random start."""
    classes = ss.SequenceClasses.syn_medium(1)
    z0 = np.random.default_rng(5).normal(size=(1, classes.vocab_size))
    t = np.append(0.0, np.geomspace(0.02, 100, 80) * snap(classes))
    flow = ss.flow(classes, ETA_Y, 0.3, t, z0=z0, variables=("z", "attention"))
    ids = classes.distinct(0)
    ranked = ids[np.argsort(-flow.attention.values[0, 0, ids])]
    for i, token in enumerate(ranked):
        shade = 0.15 + 0.75 * i / len(ids)  # strong ones are dark
        color = (shade * 0.85, 0.3 + 0.55 * shade, 0.7 + 0.28 * shade)
        ax.plot(t[1:] / snap(classes), flow.z.values[1:, 0, token] - z0[0, token], color=color, linewidth=1)
    ax.set(
        xscale="log", yscale="log", xlabel="$t/t_0$", ylabel="$z_l - z_l(0)$", title="(a) scan order", ylim=(1e-5, 2)
    )


def fall(ax: Axes) -> None:
    """The distinct tokens of the leaning class: flow and memory equation."""
    classes, m = leaning(), 3000
    t = np.geomspace(0.03, 10, 60) * snap(classes)
    z = ss.flow(classes, ETA_Y, 0.09, t, variables="z").z.values[:, 0]
    p = classes.p_context[:, :6]
    u = theory.u(t / 2, eta_y=ETA_Y, vocab_size=m)
    memory = theory.memory_by_token(u, eta_y=ETA_Y, eta_z=0.09, f=p / np.linalg.norm(p, axis=1, keepdims=True),
                                    vocab_size=m, form="exact").z  # fmt: skip
    for token, color, name in ((4, SERIES[0], "$P = 0.357$"), (5, SERIES[4], "$P = 0.143$")):
        ax.plot(t / snap(classes), 1e4 * z[:, token], color=color, label=name)
        ax.plot(t / snap(classes), 1e4 * memory[:, token], color="k", linestyle=":", linewidth=1)
    ax.axhline(0, color="0.7", linewidth=0.7)
    ax.set(xscale="log", xlabel="$t/t_0$", ylabel="$10^4\\, z_l$", title="(b) distinct tokens fall")
    ax.legend(loc="lower left")


def force(ax: Axes) -> None:
    """ξ_n/γ of two classes against ρ: Eq. 26 with both signs of Eq. 88, and gradient descent."""
    rho = np.geomspace(1e-5, 0.4, 50)
    rates: dict[str, Any] = {"eta_y": 0.5, "vocab_size": 1000}
    decoders = [theory.modified_decoder([[1, x], [x, 1]], [100, 100], **rates, steps=False) for x in rho]
    printed = np.array([(d.beta_printed * d.e).sum(1)[0] for d in decoders])
    ax.plot(rho, [d.xi[0] / d.gamma for d in decoders], color=SERIES[0], label="Eq. 26")
    ax.plot(rho, [d.force[0] for d in decoders], ".", color=SERIES[0], markersize=3, label="$q_1\\Vert FE'e_n\\Vert^2$")
    ax.plot(rho[printed < 0], -printed[printed < 0], color=SERIES[1], linestyle="--", label="printed, negative")
    for spans, style in ((0.1, ":"), (1.0, "-.")):
        t = spans * theory.t_snap(**rates, n_classes=2)
        frozen = theory.frozen_decoder(t, **rates, n_classes=2, overlap=rho)
        gamma = theory.gamma(t, **rates, n_classes=2)
        ax.plot(rho, rho * frozen.gamma_beta / gamma, color="k", linestyle=style, linewidth=1,
                label=f"gradient, {spans:g} $t_0$")  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel=r"overlap $\rho$", ylabel=r"$\xi_n/\gamma$", title="(c) the force",
           ylim=(1e-9, 1))  # fmt: skip
    ax.legend(loc="upper left", fontsize=6.5, handlelength=1.6, borderaxespad=0, labelspacing=0.2)


def ratio_of_predictions(ax: Axes) -> None:
    """z of textbook's dominant token at ν = 45: prediction over flow."""
    classes, eta_z = ss.SequenceClasses.textbook(), ETA_Y / 45
    f = classes.p_context[0] / np.linalg.norm(classes.p_context[0])
    ids = classes.distinct(0)
    top = int(np.argmax(f[ids]))
    t = np.geomspace(0.05, 100, 40) * snap(classes)
    sizes: dict[str, Any] = {"eta_y": ETA_Y, "eta_z": eta_z, "n_classes": 2, "vocab_size": classes.vocab_size}
    rho = float(1 - (f[ids] ** 2).sum())
    x = theory.frozen_decoder(t, eta_y=ETA_Y, n_classes=2, vocab_size=classes.vocab_size, overlap=rho).x
    z = ss.flow(classes, ETA_Y, eta_z, t, variables="z", rtol=1e-9).z.values[:, 0, ids[top]]
    linear = ss.response(classes, ETA_Y, eta_z, t, variables=["z"]).z.values[:, 0, ids[top]]
    curves = {
        "drive": f[ids][top] ** 2 * theory.growth_drive(t, **sizes, overlap=rho, form="exact"),
        "drive and memory": theory.memory_tokens(x, **sizes, f_distinct=f[ids], form="exact").z[:, top],
        "response": linear,
    }
    for (name, values), color, style in zip(curves.items(), SERIES, ("-", "-", "--"), strict=False):
        ax.plot(t / snap(classes), values / z, color=color, linestyle=style, label=name)
    ax.axhline(1, color="0.7", linewidth=0.7)
    ax.set(xscale="log", xlabel="$t/t_0$", ylabel="predicted/flow", title=r"(a) $z$ at $\nu = 45$")
    ax.legend(loc="upper left", fontsize=7)


def slopes(ax: Axes) -> None:
    """∂ln z/∂ln η_Y against ν at three times: closed form, flow, Theorem 4."""
    m, rho, n = 100_000, 0.24, 5
    classes = symmetric(m)
    token, family = int(classes.distinct(0)[0]), {"n_classes": 2, "vocab_size": m, "overlap": rho, "n_distinct": n}
    ratio, points = np.geomspace(0.3, 1000, 80), np.geomspace(0.3, 1000, 8)
    for i, spans in enumerate((0.1, 1, 10)):
        t = spans * theory.t_snap(eta_y=5.0, n_classes=2, vocab_size=m)
        ax.plot(ratio, theory.decoder_slope(t, eta_y=ratio, eta_z=1.0, **family), color=SERIES[i], label=f"{spans:g}")
        logs = [[np.log(float(ss.flow(classes, nu * np.exp(side), 1.0, [t], rtol=1e-9, variables="z").z[0, 0, token]))
                 for side in (-0.02, 0.02)] for nu in points]  # fmt: skip
        ax.plot(points, np.diff(logs, axis=1)[:, 0] / 0.04, "o", color=SERIES[i], markersize=3)
        growth = np.log(theory.growth(t, eta_y=ratio, eta_z=1.0, n_classes=2, vocab_size=m))
        ax.plot(ratio, np.gradient(growth, np.log(ratio)), color=SERIES[i], linestyle=":", linewidth=1)
    ax.axhline(0, color="0.7", linewidth=0.7)
    ax.set(xscale="log", xlabel=r"$\nu = \eta_Y/\eta_Z$", ylabel=r"$\partial \ln z/\partial \ln \eta_Y$",
           title="(b) a faster decoder")  # fmt: skip
    ax.legend(title=r"$t/t_0(\nu = 5)$", title_fontsize=7, fontsize=7)


def sgd(ax: Axes) -> None:
    """z at fixed η_Z and t against ν: SGD, flow, closed form; each over the largest of the flow."""
    m, eta_z = 20_000, 0.1
    classes = symmetric(m)
    tokens = [classes.distinct(n) for n in range(2)]
    steps = round(10 * float(theory.t_snap(eta_y=5 * eta_z, n_classes=2, vocab_size=m)))
    ratio, points = np.geomspace(0.5, 10, 40), np.geomspace(0.5, 10, 8)
    flow = np.array([float(ss.flow(classes, nu * eta_z, eta_z, [float(steps)], variables="z").z[0, 0, tokens[0][0]])
                     for nu in ratio])  # fmt: skip
    ax.plot(ratio, 1e4 * flow, color=SERIES[0], label="flow")
    f = [np.sqrt(0.76 / 5)] * 5
    closed = [theory.memory_tokens(theory.u(steps / 2, eta_y=nu * eta_z, vocab_size=m), eta_y=nu * eta_z, eta_z=eta_z,
                                   n_classes=2, vocab_size=m, f_distinct=f).z[0] for nu in ratio]  # fmt: skip
    ax.plot(ratio, 1e4 * np.array(closed), color="k", linestyle=":", label="closed form")
    runs = ss.grid(eta_z=[eta_z], ratio=points.tolist(), seed=range(10))
    data = ss.simulate(classes, runs, steps=steps, batch_size=128, context=np.inf, record=[steps], variables=["z"],
                       device="cpu")  # fmt: skip
    z = data.z.values[:, -1, 0][:, np.concatenate(tokens)].mean(1).reshape(len(points), -1) * 1e4
    ax.errorbar(points, z.mean(1), z.std(1, ddof=1), fmt="o", color=SERIES[1], markersize=3, capsize=2, label="SGD")
    turn = theory.crossover(steps, eta_z=eta_z, n_classes=2, vocab_size=m, overlap=0.24, n_distinct=5)
    ax.axvline(turn, color="0.6", linewidth=0.7, linestyle="--")
    ax.set(
        xscale="log", xlabel=r"$\nu = \eta_Y/\eta_Z$", ylabel="$10^4\\, z_l$", title=r"(c) at fixed $\eta_Z$ and $t$"
    )
    ax.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    ax.minorticks_off()
    ax.legend(loc="lower right", fontsize=7)


def least_entropy(ax: Axes, reproduced: Path) -> None:
    """Figure 6's ratio of least entropy against K: SGD and the heavy-ball equation."""
    settings = json.loads((reproduced / "manifest.json").read_text(encoding="utf-8"))["targets"]["fig6"]["settings"]
    rows = settings["least_entropy"]
    for i, eta_z in enumerate(sorted({row["eta_z"] for row in rows})):
        part = [row for row in rows if row["eta_z"] == eta_z]
        k = np.array([row["n_next"] for row in part])
        ratio, half = ([row[name] for row in part] for name in ("sgd", "half_width"))
        ax.errorbar(k * (1 + 0.05 * (i - 1.5)), ratio, half, fmt="o", color=SERIES[i], markersize=3, capsize=2,
                    label=rf"$\eta_Z = {eta_z:g}$")  # fmt: skip
        ax.plot(k, [row["equation"] for row in part], color=SERIES[i], linestyle="--", linewidth=1)
    ax.axhline(2, color="0.6", linestyle=":", linewidth=0.9)
    ax.set(xscale="log", xlabel="classes $K$", ylabel=r"$\eta_Y/\eta_Z$", ylim=(0, None), title="(a) least entropy")
    ax.set_xticks([2, 6, 10, 20], ["2", "6", "10", "20"])
    ax.minorticks_off()
    ax.legend(fontsize=6.5, loc="lower right", labelspacing=0.2)


def residual(ax: Axes) -> None:
    """A token of one class in each of two queries, with a residual connection: z with and without a common token."""
    m = 3000
    for common, color in ((0.1, SERIES[0]), (0.0, SERIES[1])):
        p = np.zeros((4, m))
        p[:, 0], p[[0, 2], 1] = np.sqrt(common), np.sqrt(0.2)
        for n, own in enumerate((2, 5, 8, 11)):
            p[n, own : own + 3] = np.sqrt((1 - common - 0.2 * (n % 2 == 0)) / 3)
        classes = ss.SequenceClasses(p / p.sum(1, keepdims=True), query=[20, 20, 21, 21], next_token=[22, 23, 24, 25])
        t = snap(classes) * np.linspace(0.005, 0.6, 100)
        z = ss.flow(classes, ETA_Y, ETA_Y / 1000, t, residual="normed", variables=("z",)).z.values[:, 0, 1]
        ax.plot(t / snap(classes), 1e6 * z, color=color, label=f"$f_c^2 = {common:g}$")
        f = p[:, :14] / np.linalg.norm(p, axis=1, keepdims=True)
        rise = theory.rise_time(eta_y=ETA_Y, f=f, vocab_size=m, query=[0, 0, 1, 1])[0, 1] / snap(classes)
        if np.isfinite(rise):
            ax.axvline(rise, color=color, linewidth=0.8, linestyle="--")
    ax.axhline(0, color="0.7", linewidth=0.7)
    ax.set(xlabel="$t/t_0$", ylabel="$10^6\\, z_l$", title="(b) residual connection")
    ax.legend(loc="lower left")


def draws(ax: Axes) -> None:
    """The largest deviation of class counts against t/(K ln K), its Chernoff bound, and Hoeffding's."""
    rng = np.random.default_rng(0)
    share = np.geomspace(1, 1000, 13)
    for i, k in enumerate((10, 100, 1000)):
        t = np.rint(share * k * np.log(k)).astype(int)
        largest = [np.abs(rng.multinomial(n, np.full(k, 1 / k), size=100) * (k / n) - 1).max(1).mean() for n in t]
        ax.plot(share, largest, "o", color=SERIES[i], markersize=2.5, label=f"$K = {k}$")
        logarithm = np.log(2 * k / 0.05)
        ax.plot(share, np.sqrt(3 * k * logarithm / t), color=SERIES[i], linewidth=1)
        ax.plot(share, k * np.sqrt(logarithm / (2 * t)), color=SERIES[i], linewidth=1, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel=r"$t/(K \ln K)$", ylabel=r"$\max_n |K N_n/t - 1|$",
           title=r"(c) $t \gg K \ln K$")  # fmt: skip
    ax.legend(loc="lower left", fontsize=7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the --out of scansnap reproduce fig6")
    folder = parser.parse_args().folder
    for name, panels in {
        "order": (order, fall, force),
        "crossover": (ratio_of_predictions, slopes, sgd),
        "threshold": (lambda ax: least_entropy(ax, folder), residual, draws),
    }.items():
        with styled(7.2, 2.25) as figure:
            for panel, ax in zip(panels, figure.subplots(1, len(panels)), strict=True):
                panel(ax)
        settle(figure)
        for ending in ("svg", "pdf"):
            save_figure(figure, PICTURES / f"{name}.{ending}")
        print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()

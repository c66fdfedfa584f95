"""The numbers of docs/errata.md, computed: ``python examples/errata_numbers.py [PART …]``; all take half a minute.

Each part compares a formula as the paper prints it with a corrected one, on the dynamics that the formula is about.
It returns its numbers by name; tests/docs/test_errata_page.py finds each of them on the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import numpy as np

import scansnap as ss
from scansnap import theory

Numbers = dict[str, float]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@cache
def run() -> SimpleNamespace:
    """400 steps of batch size 1 by the paper's Eq. 26, Y += η_Y (f_n − F E′e_n) r_nᵀ; K = 4, M = 200, η_Y = 0.8."""
    rng = np.random.default_rng(0)
    k, m, eta_y = 4, 200, 0.8
    f = np.zeros((k, m))
    f[:, 0] = np.sqrt(rng.uniform(0.02, 0.12, k))  # the common token: |λ₁(E)| < 1/K
    f[np.arange(k), 1 + np.arange(k)] = np.sqrt(1 - f[:, 0] ** 2)
    e_prime = np.eye(k) - np.linalg.inv(f @ f.T)
    one_hot, y, visits = np.eye(m), np.zeros((m, m)), np.zeros(k, int)
    for n in rng.integers(k, size=400):
        logits = np.exp(y.T @ f[n])
        y += eta_y * np.outer(f[n] - f.T @ e_prime[n], one_hot[n] - logits / logits.sum())
        visits[n] += 1
    logits = np.exp(f @ y)
    r = one_hot[:k] - logits / logits.sum(1, keepdims=True)
    return SimpleNamespace(f=f, y=y, r=r, visits=visits, m=m, eta_y=eta_y,
                           zeta=(m * one_hot[:k] - 1) / (m - 1))  # fmt: skip


def error(measured: np.ndarray, formula: np.ndarray) -> float:
    """The largest difference over the largest value."""
    return float(np.abs(measured - formula).max() / np.abs(measured).max())


def e_prime() -> Numbers:
    """Appendix D.1: by how much a step of one class moves the row of another, over the step, at ρ = 0.24."""
    overlap = np.array([[1, 0.24], [0.24, 1]])
    of_lemma_14 = np.eye(2) - np.linalg.inv(overlap)
    moved = {sign: overlap @ (np.eye(2) - sign * of_lemma_14) for sign in (1, -1)}  # Fᵀ(F − F E′)
    return {"corrected": abs(moved[1][0, 1]), "printed": moved[-1][0, 1]}


def equal_overlaps() -> Numbers:
    """Remark 1: the logit gap at t₀ and 10 t₀, to nobody's token (K = 2) or another class's (K = M), and by Eq. 43."""
    numbers = {}
    for name, k, m, rho in (("K = 2", 2, 2000, 0.24), ("K = M", 50, 50, 0.2)):
        t = np.array([1, 10]) * theory.t_snap(eta_y=1.0, n_classes=k, vocab_size=m)
        frozen = theory.frozen_decoder(t, eta_y=1.0, n_classes=k, vocab_size=m, overlap=rho)
        gap = np.asarray(frozen.gap) - (0.0 if k < m else frozen.gap_other)  # to nobody's token; to another class's
        full, small = (theory.u(t / k, eta_y=rate, vocab_size=m) for rate in (1.0, 1 - rho))
        for i, spans in enumerate(("t₀", "10 t₀")):
            numbers |= {f"{name}, {spans}, flow": gap[i], f"{name}, {spans}, rate η_Y": full[i],
                        f"{name}, {spans}, rate (1−ρ)η_Y": small[i],
                        f"{name}, {spans}, printed": (1 - rho) * full[i]}  # fmt: skip
    return numbers


def remark_2() -> Numbers:
    """By how many visits steps are ahead of the flow, and ½ ln(η_Y s); M = 50, η_Y = ½."""
    steps = 10 ** np.arange(3, 6)
    gap = 50 * theory.h_recursion(int(steps[-1]), eta_y=0.5, vocab_size=50)[steps]
    lead = theory.visits_at(gap, eta_y=0.5, vocab_size=50) - steps
    half = np.log(0.5 * steps) / 2
    leads = {f"s = {s}, lead": x for s, x in zip(steps, lead, strict=True)}
    return leads | {f"s = {s}, half the logarithm": x for s, x in zip(steps, half, strict=True)} | {"ln M": np.log(50)}


def start_of_late_times() -> Numbers:
    """e^{Mh}/((M−1)Mh), which is to exceed 1, at s₁ as printed and as meant; M = 1000, η_Y = ½."""
    w = float(theory.snap_delta(1000))
    numbers = {}
    for name, s in (("printed", 2 * np.log1p(w) / 0.5), ("corrected", 2 * (1 + w) * np.log(1000) / 0.5)):
        u = float(theory.u(s, eta_y=0.5, vocab_size=1000))
        numbers |= {f"{name}, s₁": s, f"{name}, ratio": float(np.exp(u) / (999 * u))}
    return numbers


def prediction_error() -> Numbers:
    """Eq. 71: relative error of e_n − α_n with h of the flow, as printed, and with h* of the steps."""
    at = run()
    heights = {
        "printed": theory.h(at.visits, eta_y=at.eta_y, vocab_size=at.m),
        "corrected": theory.h_recursion(int(at.visits.max()), eta_y=at.eta_y, vocab_size=at.m)[at.visits],
    }
    return {
        name: error(at.r, at.zeta * ((at.m - 1) / (at.m - 1 + np.exp(at.m * h)))[:, None])
        for name, h in heights.items()
    }


def late_order() -> Numbers:
    """γ over the printed order and over that of Lemma 9, at the first t of the statement, M = 10², 10³, 10⁵, 10⁹."""
    numbers = {}
    for power in (2, 3, 5, 9):
        m = 10.0**power
        s = 2 * (1 + theory.snap_delta(m)) * np.log(m)  # η_Y t/K
        gamma = theory.gamma(s, eta_y=1.0, n_classes=1, vocab_size=m)
        numbers |= {
            f"M = 10^{power}, printed": gamma * s / np.log(s),
            f"M = 10^{power}, Lemma 9": gamma * s / np.log(m * s),
        }
    return numbers


def steps_to_error() -> Numbers:
    """Corollary 1: visits until ‖e_n − α_n‖ = ε, the sum and the printed product; M = 1000, η_Y = ½."""
    numbers = {}
    for epsilon in (0.1, 0.01, 0.001):
        logarithm = np.log(1000 / epsilon)
        numbers |= {f"ε = {epsilon}, visits": theory.visits_to_error(epsilon, eta_y=0.5, vocab_size=1000),
                    f"ε = {epsilon}, sum": (1 / epsilon + logarithm) / 0.5,
                    f"ε = {epsilon}, printed": logarithm / epsilon / 0.5}  # fmt: skip
    return numbers


def random_overlap(rng: np.random.Generator, share: float = 0.5) -> np.ndarray:
    """A symmetric E ≥ 0 with zero diagonal, about half of its pairs overlapping, and |λ₁(E)| < 1/K."""
    k = int(rng.integers(2, 13))
    e = np.triu(rng.gamma(0.5, size=(k, k)) * (rng.random((k, k)) < share), 1)
    e += e.T
    largest = np.linalg.eigvalsh(e)[-1]
    return e if largest == 0 else e * rng.uniform(0.02, 1) / (k * largest)


def lower_bound() -> Numbers:
    """Assumption 2 on random E with |λ₁| < 1/K: classes with ξ_n > 0, and those that printed Eq. 88 would turn."""
    rng, m = np.random.default_rng(20261119), 1000
    counts = {"matrices": 0, "below 6/√M": 0, "classes": 0, "ξ ≤ 0": 0, "printed ξ ≤ 0": 0, "some β < 0": 0}
    for _ in range(1000):
        e = random_overlap(rng)
        row = e.sum(1)
        if not row.any():
            continue
        low = row.max() + 1e-3  # of min h/max h, just above R of the theorem
        visits = theory.visits_at(6 * rng.uniform(low, 1, len(e)), eta_y=0.5, vocab_size=m)
        decoder = theory.modified_decoder(np.eye(len(e)) + e, visits, eta_y=0.5, vocab_size=m, steps=False)
        overlaps = row > 0
        counts["matrices"] += 1
        counts["below 6/√M"] += int(np.abs(np.linalg.eigvalsh(e)).min() < 6 / np.sqrt(m))
        counts["classes"] += int(overlaps.sum())
        counts["ξ ≤ 0"] += int((decoder.xi[overlaps] <= 0).sum())
        counts["printed ξ ≤ 0"] += int(((decoder.beta_printed * e).sum(1)[overlaps] <= 0).sum())
        counts["some β < 0"] += int((decoder.beta < 0).any(1)[overlaps].sum())
    return {name: float(number) for name, number in counts.items()}


def many_steps() -> Numbers:
    """t ≫ K²: the spread of draws at t = 10 K ln K, K = 1000, and the bounds at δ = 0.05; shares of t/K."""
    k, delta = 1000, 0.05
    t = int(10 * k * np.log(k))
    drawn = np.random.default_rng(0).multinomial(t, np.full(k, 1 / k), size=200) * (k / t) - 1
    return {"t/K²": t / k**2, "spread": float(drawn.std()), "largest": float(np.abs(drawn).max(1).mean()),
            "Hoeffding": k * np.sqrt(np.log(2 * k / delta) / (2 * t)),
            "Chernoff": np.sqrt(3 * k * np.log(2 * k / delta) / t)}  # fmt: skip


def completion() -> Numbers:
    """Lemma 12: Y = F′^{−⊤}(I + Θ′)W̄′ with the columns of F° orthogonal to F, and with random ones."""
    at = run()
    k, m = at.f.shape
    w = np.vstack([at.f @ at.y, np.zeros((m - k, m))])  # (I + Θ′)W̄′, by Lemma 5
    orthogonal = np.linalg.svd(at.f)[2][k:].T  # (M, M−K)
    random = np.random.default_rng(1).normal(size=(m, m - k))
    return {name: error(at.y, np.linalg.solve(np.hstack([at.f.T, rest]).T, w))
            for name, rest in (("corrected", orthogonal), ("printed", random))}  # fmt: skip


def beta() -> Numbers:
    """Eq. 88 against the coefficients of g_n on the run; and ξ_n/γ of two classes, ρ = 10⁻⁴, M = 1000."""
    at = run()
    decoder = theory.modified_decoder(at.f @ at.f.T, at.visits, eta_y=at.eta_y, vocab_size=at.m)
    g = at.r @ at.y.T
    exact = -np.linalg.solve(at.f @ at.f.T, at.f @ g.T).T / decoder.gamma * (1 - np.eye(len(at.f)))
    numbers = {"corrected": error(exact, decoder.beta), "printed": error(exact, decoder.beta_printed)}
    small = np.array([[1, 1e-4], [1e-4, 1]])
    pair = theory.modified_decoder(small, [100, 100], eta_y=0.5, vocab_size=1000, steps=False)
    return numbers | {"ξ/γ": pair.xi[0] / pair.gamma, "ξ/γ, printed": float((pair.beta_printed * pair.e).sum(1)[0])}


def diagonal_bound() -> Numbers:
    """Eq. 93, first step, K = 2, ρ = 0.3: −E′_nn, the printed lower bound and the corrected one."""
    rho = 0.3
    return {"value": -theory.overlap_complement([[1, rho], [rho, 1]])[0, 0], "printed": rho**2 / (1 - rho),
            "corrected": rho**2 / (1 + rho)}  # fmt: skip


def lemma_17() -> Numbers:
    """Both sides of Lemma 17 for a symmetric E with λ₁ = −1.2, K = 3."""
    e = -0.6 * (np.ones((3, 3)) - np.eye(3))
    e_prime = np.eye(3) - np.linalg.inv(np.eye(3) + e)
    return {"left": float(np.abs(e_prime - e).max()), "right": 1.2**2 / (1 - 1.2)}


def class_share() -> Numbers:
    """Eq. 10 without p_n, over ż of the flow; the dominant token of textbook at t₀."""
    classes = ss.SequenceClasses.textbook()
    t = theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=classes.vocab_size)
    flow = ss.flow(classes, 0.9, 0.02, [t], variables=("f", "g", "z_rate"))
    f, g = flow.f.values[0, 0], np.nan_to_num(flow.g.values[0, 0])  # g is known where class 0 has tokens
    token = int(classes.distinct(0)[np.argmax(f[classes.distinct(0)])])
    printed = 0.02 * f[token] * (g[token] - f[token] * (f @ g))
    return {"printed over measured": printed / flow.z_rate.values[0, 0, token]}


def lower_limit() -> Numbers:
    """Eq. 124: B_n as printed and with the lower limit of its integral, at t = 0 and t₀; C₀ = 0.1, K = 2, M = 2014."""
    known = {"eta_y": 0.9, "eta_z": 0.02, "n_classes": 2, "vocab_size": 2014, "c0": 0.1}
    t = np.array([0.0, theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=2014)])
    return {f"{at}, {form}": x for form in ("printed", "corrected")
            for at, x in zip(("0", "t₀"), theory.growth(t, **known, form=form), strict=True)}  # fmt: skip


def insight_c() -> Numbers:
    """∂ln z/∂ln η_Y at 10 t₀ of ν = 5, M = 10⁵: Theorem 4 (C₀ = 1), flow and closed form; and the crossover."""
    m = 100_000
    family = {"n_classes": 2, "vocab_size": m, "overlap": 0.24, "n_distinct": 5}
    classes = ss.SequenceClasses.synthetic(
        1, 2, common=1, distinct=5, common_weight=np.sqrt(0.24), distinct_weights=[np.sqrt(0.76 / 5)] * 5,
        unused=m - 1 - 10 - 1 - 2,
    )  # fmt: skip
    t, token = 10 * theory.t_snap(eta_y=5.0, n_classes=2, vocab_size=m), int(classes.distinct(0)[0])

    def flow(eta_y: float) -> float:
        return float(ss.flow(classes, eta_y, 1.0, [t], rtol=1e-9, variables="z").z[0, 0, token])

    def paper(eta_y: float) -> float:
        return float(theory.growth(t, eta_y=eta_y, eta_z=1.0, n_classes=2, vocab_size=m))

    def slope(of: Callable[[float], float], ratio: float) -> float:
        return float(np.log(of(ratio * 1.02) / of(ratio / 1.02)) / (2 * np.log(1.02)))

    numbers = {"crossover": theory.crossover(t, eta_z=1.0, **family)}
    for ratio in (1000.0, 50.0, 5.0, 1.0):
        closed_form = theory.decoder_slope(t, eta_y=ratio, eta_z=1.0, **family)
        for name, x in (("flow", slope(flow, ratio)), ("closed form", closed_form), ("Theorem 4", slope(paper, ratio))):
            numbers[f"ν = {ratio:g}, {name}"] = x
    return numbers


def four(common: float, shared: float, m: int = 3000) -> ss.SequenceClasses:
    """Two queries of two classes; token 0 is common to all, token 1 to one class of each query."""
    p = np.zeros((4, m))
    p[:, 0], p[[0, 2], 1] = np.sqrt(common), np.sqrt(shared)
    for n, own in enumerate((2, 5, 8, 11)):
        p[n, own : own + 3] = np.sqrt((1 - common - shared * (n % 2 == 0)) / 3)
    return ss.SequenceClasses(p / p.sum(1, keepdims=True), query=[20, 20, 21, 21], next_token=[22, 23, 24, 25])


def section_7() -> Numbers:
    """When a token that two queries share begins to rise, in t₀: flow at ν = 1000, and formula."""
    numbers = {}
    for common, shared in ((0.1, 0.2), (0.05, 0.3), (0.02, 0.1), (0.3, 0.1), (0.0, 0.2)):
        classes = four(common, shared)
        snap = theory.t_snap(eta_y=0.9, n_classes=4, vocab_size=3000)
        t = snap * np.geomspace(0.02, 3, 400)
        rate = ss.flow(classes, 0.9, 9e-4, t, residual="normed", variables=("z_rate",)).z_rate.values[:, 0, 1]
        below = np.flatnonzero(rate <= 0)
        last = -1 if not len(below) else below[-1]
        flow = 0.0 if last < 0 else np.inf if last + 1 == len(t) else float(
            np.interp(0, rate[last : last + 2], t[last : last + 2]) / snap)  # fmt: skip
        rise = theory.rise_time(eta_y=0.9, f=unit(classes.p_context[:, :14]), vocab_size=3000, query=[0, 0, 1, 1])
        numbers |= {f"{common:g}, {shared:g}, flow": flow, f"{common:g}, {shared:g}, formula": rise[0, 1] / snap}
    return numbers


PARTS: dict[str, Callable[[], Numbers]] = {
    "e-prime": e_prime, "remark-1": equal_overlaps, "remark-2": remark_2, "remark-2-start": start_of_late_times,
    "equation-71": prediction_error, "theorem-1b": late_order, "corollary-1": steps_to_error,
    "assumption-2": lower_bound, "many-steps": many_steps, "lemma-12": completion, "equation-88": beta,
    "equation-93": diagonal_bound, "lemma-17": lemma_17, "equation-10": class_share, "equation-124": lower_limit,
    "insight-c": insight_c, "section-7": section_7,
}  # fmt: skip


def shown(x: float) -> str:
    """Four digits; a size below 1e-9 as its power of ten."""
    return f"{x:.0e}" if 0 < abs(x) < 1e-9 else f"{x:.4g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The numbers of docs/errata.md.")
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help=f"any of {', '.join(PARTS)}; all without")
    for part in parser.parse_args().part or PARTS:
        print(part)
        for name, number in PARTS[part]().items():
            print(f"   {name}: {shown(number)}")

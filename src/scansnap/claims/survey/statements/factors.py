"""Separate W_Q and W_K prefer low rank: the nuclear norm of their product instead of the Frobenius norm of Z.

Source 1: with (K, Q) the attention layer goes to the separator of least nuclear norm, with the merged W to that of
least Frobenius norm (proved for vanishing regularisation). Source 2: L2 on both factors becomes a nuclear norm on the
product exponentially fast.

Setting: fixed head that wants the first token, 5 contexts of 4 random unit tokens in R⁶ with random queries, the same
data for both, factors from 10⁻³, flow to 10¹⁰⁰; each seed draws data and factors. Judged by
- the stable rank ‖W‖_F²/‖W‖₂² of the product over that of the merged W: lower by a twentieth or more;
- the nuclear norm of the product, and the Frobenius norm of the merged W, per margin and over the least possible: 1,
  a tenth more being allowed to a direction that is reached like 1/ln t;
- with decay λ: ½(‖A‖² + ‖B‖²) − ‖ABᵀ‖_* falls exponentially. AᵀA − BᵀB falls like e^{−2λt} exactly; in directions
  that the loss uses the difference is quadratic in it (4λ), in those it does not use it is linear, and these are left
  in the end: 2λ (ours; the source says exponentially). A quarter is allowed, as to estimates.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.finding import Finding, Sizes, Source, surveyed
from scansnap.claims.survey.margin import Contexts, factors, least_frobenius, least_nuclear, merged

SVM = Source(
    "Tarzanagh, Li, Thrampoulidis and Oymak 2023", "Transformers as Support Vector Machines", "2308.16898", "abstract"
)
KOBAYASHI = Source(
    "Kobayashi, Akram and von Oswald 2024", "Weight decay induces low-rank attention layers", "2410.23819", "abstract"
)
LAMBDA = 1e-2
_SETTING = "fixed head, no norm, 5 contexts of 4 random tokens in R⁶, flow to 10¹⁰⁰"

RANK = surveyed("factors-rank", "separate W_Q, W_K have lower rank than Z", source=SVM, setting=_SETTING)
NUCLEAR = surveyed(
    "factors-nuclear", "separate W_Q, W_K go to the separator of least nuclear norm", source=SVM, setting=_SETTING
)
FROBENIUS = surveyed(
    "merged-frobenius", "the merged Z goes to the separator of least Frobenius norm", source=SVM, setting=_SETTING
)
DECAY = surveyed(
    "factors-decay", "L2 on the factors becomes a nuclear norm on the product exponentially fast", source=KOBAYASHI,
    setting="the same data, factors from 0.3, decay 10⁻², flow to 400",
)  # fmt: skip
STATEMENTS = (RANK, NUCLEAR, FROBENIUS, DECAY)


def draw(seed: int) -> Contexts:
    rng = np.random.default_rng(seed)
    x, q = rng.normal(size=(5, 4, 6)), rng.normal(size=(5, 6))
    x, q = x / np.linalg.norm(x, axis=2, keepdims=True), q / np.linalg.norm(q, axis=1, keepdims=True)
    return Contexts(x, q, np.tile([4.0, 0.0, 0.0, 0.0], (5, 1)))


def measures(seed: int) -> FloatArray:
    """ln of the stable ranks' ratio (flows; programs), and both norms per margin over the least possible, (4,)."""
    problem, times = draw(seed), np.array([1e100])
    a, b = factors(problem, times, np.random.default_rng(seed + 1000))
    apart, together = a[0] @ b[0].T, merged(problem, times)[0]
    constraints = problem.constraints(np.zeros(5, dtype=np.int64))
    nuclear, frobenius = least_nuclear(constraints), least_frobenius(constraints)

    def per_margin(w: FloatArray, norm: Literal["nuc", "fro"]) -> float:
        return float(np.linalg.norm(w, norm) / (constraints * w).sum((1, 2)).min())

    return np.array([
        np.log(stable_rank(apart) / stable_rank(together)), np.log(stable_rank(nuclear) / stable_rank(frobenius)),
        per_margin(apart, "nuc") / per_margin(nuclear, "nuc"),
        per_margin(together, "fro") / per_margin(frobenius, "fro"),
    ])  # fmt: skip


def stable_rank(w: FloatArray) -> float:
    return float(np.linalg.norm(w) ** 2 / np.linalg.norm(w, 2) ** 2)


def excess_rate(seed: int, decay: float = LAMBDA) -> float:
    """−d ln[½(‖A‖² + ‖B‖²) − ‖ABᵀ‖_*]/dt over the second half of the flow to 400."""
    times = np.array([200.0, 400.0])
    a, b = factors(draw(seed), times, np.random.default_rng(seed + 1000), size=0.3, decay=decay)
    half = 0.5 * ((a**2).sum((1, 2)) + (b**2).sum((1, 2)))
    excess = half - np.linalg.svd(a @ b.transpose(0, 2, 1), compute_uv=False).sum(1)
    return float(-np.diff(np.log(excess))[0] / np.diff(times)[0])


def judge(each: FloatArray) -> list[Finding]:
    """From (seeds, 4) of :func:`measures`."""
    ratio, programs, nuclear, frobenius = each.T
    return [
        RANK.found(ratio, predicted=float(programs.mean()), bound=-0.05, where="the rank is no lower",
                   quantity="ln of the product's stable rank over the merged one's"),
        NUCLEAR.found(nuclear, predicted=1.0, bound=1.1, where="the norm is larger",
                      quantity="nuclear norm per margin over the least possible"),
        FROBENIUS.found(frobenius, predicted=1.0, bound=1.1, where="the norm is larger",
                        quantity="Frobenius norm per margin over the least possible"),
    ]  # fmt: skip


def judge_decay(rates: FloatArray) -> Finding:
    return DECAY.found(
        rates / LAMBDA, predicted=2.0, bound=1.5, both_sides=True, where="another rate, or none",
        quantity="rate at which ½(‖A‖² + ‖B‖²) − ‖ABᵀ‖_* falls, over λ",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    seeds = range(sizes.seeds)
    return [*judge(np.array([measures(s) for s in seeds])), judge_decay(np.array([excess_rate(s) for s in seeds]))]

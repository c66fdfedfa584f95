"""Lemma 3: with frozen attention every class learns its own row of logits, as if the overlaps were not there.

W = FᵀY are the logits of the K classes. The original dynamics is Ẇ = η_Y FᵀF diag(p)(I − α); Lemma 3 drops the
overlaps E = FᵀF − I, and each row solves w_n = (M − 1)h on the right output, −h on all others, h = h(t/K). Two
things follow, both judged on the original dynamics (the decoder flow) with F the first recorded attention:

* the gap of the right output to one that is never right is u(t/K) = M h, up to a share Σ_n' |E_nn'| e^{u E_nn'}/M;
* the whole W differs from the independent rows by a share of at most |λ₁(E)|, "small if λ₁ is small".

The lemma does not quantify the error of dropping E, so the first share is **ours**: class n' votes in the context of n
with weight E_nn', for an output whose probability there is e^{u E_nn'}/M.

The second is needed because the gap is nearly independent of E, and early on fully: all wrong outputs fall equally,
whichever class is shown. E adds votes, with weight f_nᵀf_n', for the *other classes'* outputs, and these remain.
(Remark 1 finds a smaller rate (1 − ρ)η_Y for equal cosines ρ. The gap does not show it: the derivation takes Σ_n ζ_n
over the K classes to be 0, which is so only for M = K.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.time_windows import WINDOW_END
from scansnap.dynamics.flow.decoder import decoder_flow
from scansnap.theory import u

GAP = Statement("lemma-3", "Lemma 3", "with F frozen the rows of W = FᵀY learn independently: the logit gap is u(t/K)")
ROWS = Statement(
    "lemma-3-rows", "Lemma 3 (size of the modification)",
    "with F frozen all logits W = FᵀY are those of independent rows up to a share |λ₁(E)|",
)  # fmt: skip
STATEMENTS = (GAP, ROWS)

# The share by which the gap may be off is the leading order above, in the order of the lemma's own claim: integrated
# for K from 2 to 20, M from K + 1 to 10⁴ and overlaps up to Assumption 2's edge |λ₁(E)| = 1/K, equal or not, the gap is
# off by 0.2 to 0.86 of it. Where overlaps are strong it grows beyond any use; the gap is to be right to a tenth there.
GAP_CAP = 0.1
# The excess over |λ₁(E)| of the rows' share, relative to |λ₁(E)|. On the same grid the share is below |λ₁(E)|.
ROWS_TOLERANCE = 0.01
# Without overlap both are exact and only the integrator's error is left, 1e-8 at most on the same grid.
INTEGRATED = 1e-6

_TIMES = 60
_FIRST = 0.01  # in t₀′: the decoder flow is integrated here, from well before attention could have moved
_WINDOW = f"{_FIRST:g} t₀′ ≤ t ≤ {WINDOW_END:g} t₀"

Decoder = Callable[..., xr.Dataset]


def check(evidence: Evidence, *, decoder: Decoder = decoder_flow) -> list[Claim]:
    """From t₀′/100 to 10 t₀. ``decoder`` has the signature of ``decoder_flow``."""
    classes = evidence.classes
    k, m = classes.n_classes, classes.vocab_size
    if m == 1:
        reason = "with a single output there is nothing to learn"
        return [statement.not_applicable(reason) for statement in STATEMENTS]
    c = evidence.attention[0]  # (K, M)
    f = (c / np.linalg.norm(c, axis=-1, keepdims=True)).T  # (M, K)
    t = np.geomspace(_FIRST * evidence.t_scan, WINDOW_END * evidence.t_snap, _TIMES)
    data = decoder(f, classes.p_class, evidence.eta_y, t, m)
    predicted = np.asarray(u(t / k, eta_y=evidence.eta_y, vocab_size=m))  # (n,)
    e = f.T @ f
    np.fill_diagonal(e, 0.0)  # E = FᵀF − I
    return [
        _gap(evidence, t, data["gap"].values, predicted, e),
        _rows(evidence, t, data["logits"].values, predicted, e),
    ]


def gap_share(e: Array, u: Array, vocab_size: int) -> Array:
    """(n,) the error of the gap without E (K, K), at leading order in u: the largest Σ_n' |E_nn'| e^{u E_nn'}/M."""
    votes = np.abs(e) * np.exp(np.minimum(e * u[:, None, None], 500))  # (n, K, K)
    largest: Array = votes.sum(-1).max(-1) / vocab_size
    return largest


def _gap(evidence: Evidence, t: Array, gap: Array, predicted: Array, e: Array) -> Claim:
    assumptions = evidence.select_assumptions("weak overlap", "uniform classes")
    if evidence.classes.vocab_size == evidence.classes.n_classes:
        reason = "every output is some class's next token, so no output is never right and the gap has no meaning"
        return GAP.not_applicable(reason, assumptions)
    error = np.abs(gap / predicted[:, None] - 1)  # (n, K)
    allowed = np.minimum(gap_share(e, predicted, evidence.classes.vocab_size), GAP_CAP) + INTEGRATED  # (n,)
    excess = error / allowed[:, None]
    i, n = index_of_largest(excess)
    return GAP.judge(
        quantity=f"logit gap of class {n} at t = {t[i]:.4g} ({_WINDOW})",
        measured=gap[i, n], predicted=predicted[i], deviation=error[i, n], tolerance=allowed[i],
        assumptions=assumptions,
        failure=f"off by {error[i, n]:.2g}, {excess[i, n]:.2g} times what is allowed, for class {n} "
        f"at t = {t[i]:.4g} ({t[i] / evidence.t_snap:.2g} t₀)",
        curve=Curve("t", f"logit gap of class {n}", t, gap[:, n], predicted),
    )  # fmt: skip


def _rows(evidence: Evidence, t: Array, logits: Array, predicted: Array, e: Array) -> Claim:
    """In the spectral norm: if both dynamics had the same Y = F A, W would differ by exactly E A."""
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    largest = float(np.abs(np.linalg.eigvalsh(e)).max())
    independent = (np.eye(k, k + 1) - 1 / m) * predicted[:, None, None]  # (n, K, K + 1)
    if m == k:
        logits, independent = logits[..., :k], independent[..., :k]
    count = np.append(np.ones(k), m - k)[: logits.shape[-1]]  # the last column stands for M − K alike
    share = _spectral(np.sqrt(count) * (logits - independent)) / _spectral(np.sqrt(count) * independent)  # (n,)
    i = int(share.argmax())
    return ROWS.judge(
        quantity=f"‖W − independent rows‖/‖independent rows‖ at t = {t[i]:.4g}, against |λ₁(E)| ({_WINDOW})",
        measured=share[i], predicted=largest, deviation=np.maximum(share[i] - largest, 0),
        tolerance=ROWS_TOLERANCE * largest + INTEGRATED,
        assumptions=evidence.select_assumptions("weak overlap", "uniform classes"),
        failure=f"W is off by {share[i]:.2g} at t = {t[i]:.4g} ({t[i] / evidence.t_snap:.2g} t₀)",
        curve=Curve("t", "‖W − independent rows‖/‖independent rows‖", t, share, np.full_like(t, largest)),
    )  # fmt: skip


def _spectral(table: Array) -> Array:
    """Largest singular value of each (K, J) table; NaN where one has a NaN."""
    known = np.isfinite(table).all((1, 2))
    size = np.full(len(table), np.nan)
    size[known] = np.linalg.norm(table[known], 2, axis=(1, 2))
    return size

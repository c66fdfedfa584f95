"""Lemma 1: the gradients in Y and Z, against automatic differentiation of the loss.

With f_n = c_n/‖c_n‖ and r_n = e_n − α_n, one sequence of class n moves the tables along

    dY = f_n r_nᵀ        dz_m = diag(f_n)(I − f_n f_nᵀ) Y r_n,   m = ψ(n)

The claim takes the expectation over the classes at T → ∞ and compares it, at every recorded Y and Z, with what
PyTorch's autograd makes of Σ p_n log α_n. It is an identity: it holds at any state, however it was reached.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.classes import SequenceClasses

STATEMENT = Statement(
    "lemma-1", "Lemma 1", "dY = f(e_n − α)ᵀ and dz_m = diag(f)(I − ffᵀ)Y(e_n − α) are the gradients of log α_n"
)

# Both sides are exact in float64 up to sums of K and M terms of either sign, about 1e-15 to 1e-13 of their size.
# 1e-9 leaves four digits for larger tables and is far below any wrong term (1/M, 1/T, a missing projection).
TOLERANCE = 1e-9

# dz is a difference: (I − ffᵀ) cancels all of Y r for a single class, and at a balance between classes their sum
# cancels. Its error is then relative to the terms, whose size max|Y| ‖dY‖ bounds; this share of it is the floor.
_CANCELLED = 1e-3

Gradients = Callable[[Array, Array, SequenceClasses], tuple[Array, Array]]


def check(evidence: Evidence, *, gradients: Gradients | None = None) -> Claim:
    """``gradients`` (y, z, classes) → (dy, dz) replaces the lemma's formula."""
    if evidence.y is None or evidence.y_times is None:
        return STATEMENT.not_applicable("the trajectory holds no y")
    if evidence.classes.vocab_size == 1:
        return STATEMENT.not_applicable("with a single output there is nothing to learn")
    gradients = gradients or formula
    size = np.zeros((len(evidence.y), 2, 2))  # state; Y or Z; formula or autograd
    share = np.zeros((len(evidence.y), 2))
    cells = []
    for i, (y, time) in enumerate(zip(evidence.y, evidence.y_times, strict=True)):
        z = evidence.z[time]
        ours, true = gradients(y, z, evidence.classes), by_autograd(y, z, evidence.classes)
        scale = [np.linalg.norm(true[0]), np.linalg.norm(true[1])]
        scale[1] = max(scale[1], _CANCELLED * np.abs(y).max() * scale[0])
        for part in range(2):
            error = ours[part] - true[part]
            size[i, part] = np.linalg.norm(ours[part]), np.linalg.norm(true[part])
            share[i, part] = _share(float(np.linalg.norm(error)), float(scale[part]))
            cells.append(np.unravel_index(np.abs(error).argmax(), error.shape))
    i, part = (int(j) for j in np.unravel_index(share.argmax(), share.shape))  # NaN counts as the largest
    row, column = (int(j) for j in cells[2 * i + part])
    t = evidence.t[evidence.y_times]
    name = "dY" if part == 0 else "dz"
    place = f"Y[{row}, {column}]" if part == 0 else f"query {evidence.classes.queries[row]}, token {column}"
    seen = (t > 0) & (size[:, part] > 0).all(-1)  # what a logarithmic plot can show
    curve = Curve("t", f"‖{name}‖", t[seen], size[seen, part, 0], size[seen, part, 1], log_y=True)
    return STATEMENT.judge(
        quantity=f"norm of {name} by the formula against autograd, at t = {t[i]:.4g}",
        measured=float(size[i, part, 0]),
        predicted=float(size[i, part, 1]),
        deviation=float(share[i, part]),
        tolerance=TOLERANCE,
        where=f"{name} off by {share[i, part]:.2g} of its norm at t = {t[i]:.4g}, most at {place}",
        curve=curve if seen.any() else None,
    )


def formula(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    """Lemma 1 in expectation over the classes: dY (M, M) and dz (Q, M)."""
    row = np.searchsorted(classes.queries, classes.query)
    p = classes.p_context  # (K, M)
    logit = np.where(p > 0, z[row], -np.inf)
    c = p * np.exp(logit - logit.max(-1, keepdims=True))  # c_n up to a factor, which f does not have
    f = c / np.linalg.norm(c, axis=-1, keepdims=True)  # (K, M)
    k = np.arange(classes.n_classes)
    w = f @ y  # (K, M) logits
    alpha = np.exp(w - w.max(-1, keepdims=True))
    alpha /= alpha.sum(-1, keepdims=True)
    alpha[k, classes.next_token] = 0.0
    r = -alpha
    r[k, classes.next_token] = alpha.sum(-1)  # 1 − α_n from the other α: does not cancel once α_n is near 1
    r *= classes.p_class[:, None]
    g = r @ y.T  # (K, M)  Y (e_n − α)
    by_class = f * (g - f * (f * g).sum(-1, keepdims=True))
    dz = np.zeros_like(z)
    np.add.at(dz, row, by_class)
    return f.T @ r, dz


def by_autograd(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    """The same from a plain forward pass and automatic differentiation."""
    y_ = torch.tensor(y, dtype=torch.float64, requires_grad=True)
    z_ = torch.tensor(z, dtype=torch.float64, requires_grad=True)
    row = torch.as_tensor(np.searchsorted(classes.queries, classes.query))
    c = torch.softmax(z_[row] + torch.tensor(classes.p_context).log(), dim=-1)  # (K, M)  P e^z, normalised
    f = c / c.norm(dim=-1, keepdim=True)
    w = f @ y_  # (K, M)
    right = torch.tensor(classes.next_token)[:, None]
    others = (w - w.gather(-1, right)).scatter(-1, right, -torch.inf)
    # log α_n = log σ(−ln Σ_{j≠n} e^{w_j − w_n}): log_softmax, but with 1 − α_n to full precision
    log_alpha = torch.nn.functional.logsigmoid(-others.logsumexp(-1))
    objective = (torch.tensor(classes.p_class) * log_alpha).sum()
    dy, dz = torch.autograd.grad(objective, (y_, z_))
    return dy.numpy(), dz.numpy()


def _share(error: float, scale: float) -> float:
    if error == 0:
        return 0.0  # both gradients may be exactly 0, as dz is at Y = 0
    return error / scale if scale > 0 else np.inf

"""Fates in the long run, and with a residual connection: which tokens rise and which fall, and when (docs/theory.md).

`late-fates`: Theorem 2(a) has every distinct token rise. By drive and memory of the decoder together
(`scansnap.theory.memory_by_token`) those of a class that leans on the common token fall in the end: with one common
token c and two classes if (f_1c/f_0c)² > 1 + 1/n_0, in general by the sign of A⁺b′ (`scansnap.theory.held_speed`).

`section-7` and `residual-fates`: Section 7 has every token rise that is distinct within its query, also where other
queries share it. With the residual connection LN(LN(c) + e_m) such a token feels

    ż_l ∝ Σ_n Σ_n' γβ(ρ̄_nn') f_nl (ρ_nn' f_nl − f_n'l),     ρ̄_nn' = (ρ_nn' + 1[ψ(n) = ψ(n')])/2

over the frozen decoder. All γβ begin as u/M, so that at first it falls as it does without residual connection. In time
e^{ρ̄u} favours the classes of the same query, which raise it if they share a context token (ρ_nn' > 0). Both are judged
on a flow of their own, of the same classes and rates with the residual connection.
"""

from __future__ import annotations

import numpy as np

from scansnap import theory
from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.drive import weak_memory
from scansnap.claims.ours.memory import linear_assumptions, thinned_times
from scansnap.claims.ours.path import PredictedPath, make_path
from scansnap.claims.theorems.gradient_decomposition import ROUNDING, nonzero
from scansnap.claims.theorems.theorem2 import EQUAL, cancelling
from scansnap.claims.time_windows import TRAINING, WINDOW_END
from scansnap.classes import SequenceClasses

LATE = Statement(
    "late-fates", "Late fates (ours, docs/theory.md)",
    "every distinct token rises and falls at the times that drive and memory of the decoder give", kind="ours",
)  # fmt: skip
SECTION_7 = Statement(
    "section-7", "Section 7",
    "with a residual connection every token that is distinct within its query gains attention: ż_ml > 0",
    alternatives=("residual-fates",),
)  # fmt: skip
RESIDUAL = Statement(
    "residual-fates", "Residual connection (ours, docs/theory.md)",
    "with a residual connection a token that is distinct within its query and shared by queries falls at first, and "
    "rises from a computable time on or never", kind="ours",
)  # fmt: skip
STATEMENTS = (LATE,)
RESIDUAL_STATEMENTS = (SECTION_7, RESIDUAL)

UNDECIDED = 1 / MUCH  # a predicted speed below this share of what cancels in it has no sign: theory leaves out as much
_CLOSE = 1e-6  # f of two classes that differ by less are equal
_MOST_ENTRIES = 200_000  # of Y, for the flow with a residual connection


def predict_path(evidence: Evidence) -> PredictedPath | None:
    """The path of drive and memory up to 10 t₀; None where `late-fates` does not apply."""
    if _reason(evidence):
        return None
    t = np.append(0.0, thinned_times(evidence))
    ids, memory, _ = _predict(evidence, t)
    z = np.zeros((len(t), 1, evidence.z.shape[-1]))
    z[:, 0, ids] = memory.z
    return make_path(evidence, t, z)


def check(evidence: Evidence) -> Claim:
    """The sign of ż of every distinct token, at the recorded times up to 10 t₀."""
    times = TRAINING.select(evidence)
    reason = _reason(evidence)
    if not reason and not len(times):
        reason = f"no time is recorded in {TRAINING.describe(evidence)}"
    if reason or evidence.z_rate is None:
        return LATE.not_applicable(reason)
    t = evidence.t[times]
    ids, memory, alone = _predict(evidence, t)
    distinct = np.flatnonzero(~np.isin(ids, evidence.classes.common))
    predicted = memory.v[:, distinct] / alone[:, distinct]  # of what the drive alone would be; 1 early
    rate = evidence.z_rate[times][:, 0, ids[distinct]]
    measured = rate / nonzero(cancelling(evidence, times)[:, 0, ids[distinct]])
    known = np.abs(predicted) > UNDECIDED
    agrees = (np.sign(predicted) == np.sign(measured)) & (np.abs(measured) > ROUNDING)
    if not known.any():
        return LATE.not_applicable("no predicted speed is above a tenth of the drive's")
    j = int(np.argmin(predicted[-1]))
    token, scale = int(ids[distinct[j]]), np.abs(rate[:, j]).max()
    wrong = np.argwhere(known & ~agrees)
    at, where = (t[wrong[0, 0]], int(ids[distinct[wrong[0, 1]]])) if len(wrong) else (0.0, -1)
    speed = np.gradient(np.append(0.0, _gap(evidence, t)), np.append(0.0, t))[1:]  # du/dt
    falling = [i for i in range(len(distinct)) if (predicted[:, i] < 0).any()]
    return LATE.judge_cases(
        agrees[known], assumptions=_assumptions(evidence, t[-1:], memory.z[-1]),
        quantity=f"share of distinct tokens and times, {TRAINING.describe(evidence)}, with ż of the predicted sign, "
        f"where that is decided ({known.mean():.0%}); {len(falling)} of {len(distinct)} are predicted to fall"
        + "".join(f", token {ids[distinct[i]]} {_when(evidence, t, predicted[:, i], rate[:, i])}" for i in falling),
        failure=f"token {where} at {evidence.format_time(at)}",
        curve=Curve("t", f"ż of token {token}, over its largest", t, rate[:, j] / scale,
                    memory.v[:, distinct[j]] * speed / scale,
                    along=lambda path: (path.t[1:], path.z_rate[1:, 0, token] / scale)),
    )  # fmt: skip


def _when(evidence: Evidence, t: Array, predicted: Array, rate: Array) -> str:
    def first(values: Array) -> str:
        return f"{t[np.argmax(values < 0)] / evidence.t_snap:.2g} t₀" if (values < 0).any() else "never"

    return f"from {first(predicted)} on (measured: {first(rate)})"


def _reason(evidence: Evidence) -> str:
    classes = evidence.classes
    if evidence.z_rate is None:
        return "needs the gradients g, that is y at every recorded time"
    if evidence.sampled:
        return "updates are sampled, and their noise hides the sign of ż"
    if len(classes.queries) > 1:
        return f"there are {len(classes.queries)} queries, not one"
    return _uneven(classes) or ("" if _moves(evidence) else "attention does not move, or two classes have the same one")


def _uneven(classes: SequenceClasses) -> str:
    return "" if np.abs(classes.n_classes * classes.p_class - 1).max() <= EQUAL else "classes are not equally frequent"


def _moves(evidence: Evidence) -> bool:
    """Whether two classes overlap, none are equal, and there are distinct tokens."""
    overlap = evidence.overlap[0][~np.eye(evidence.classes.n_classes, dtype=bool)]
    return bool(overlap.size and 0 < overlap.max() < 1 - _CLOSE and evidence.classes_with_distinct)


def _context(evidence: Evidence) -> tuple[Array, Array]:
    """The tokens of all contexts, (L,), and f at the start, (K, L)."""
    ids = np.flatnonzero(evidence.classes.p_context[:, : evidence.f.shape[-1]].any(0))
    return ids, evidence.f[0][:, ids]


def _gap(evidence: Evidence, t: Array) -> Array:
    """The time scale of the frozen decoder at the mean overlap."""
    k = evidence.classes.n_classes
    return np.asarray(
        theory.frozen_decoder(t, eta_y=evidence.eta_y, n_classes=k, vocab_size=evidence.classes.vocab_size,
                              overlap=(evidence.overlap[0].sum() - k) / (k * (k - 1))).x
    )  # fmt: skip


def _predict(evidence: Evidence, t: Array) -> tuple[Array, theory.TokenMemory, Array]:
    """The tokens (L,), their z and v = dz/du at t, and what v would be by the drive alone, (n, L)."""
    ids, f = _context(evidence)
    u, m = _gap(evidence, t), evidence.classes.vocab_size
    memory = theory.memory_by_token(u, eta_y=evidence.eta_y, eta_z=evidence.eta_z, f=f, vocab_size=m, form="exact")
    up, down = theory.token_push(u, f=f, vocab_size=m, form="exact")
    return ids, memory, nonzero(evidence.eta_z / evidence.eta_y * (up - down)[:, 0])


def _assumptions(evidence: Evidence, t: Array, z: Array) -> list[Assumption]:
    overlap = evidence.overlap[0] - np.eye(evidence.classes.n_classes)
    return linear_assumptions(evidence, float(overlap.max()), float(_gap(evidence, t)[0]), float(np.abs(z).max()))


# --- with a residual connection ----------------------------------------------------------------------------------


def check_residual(evidence: Evidence) -> list[Claim]:
    """Section 7, and what holds, at the rates of the evidence, up to 10 t₀."""
    classes, m = evidence.classes, evidence.classes.vocab_size
    pairs = _local(classes)  # (query, token)
    reason = _uneven(classes)
    if not len(pairs):
        reason = "no token is distinct within its query and shared with another query"
    elif m * (classes.n_classes + 1) > _MOST_ENTRIES:
        reason = f"flows with a residual connection are integrated up to {_MOST_ENTRIES} entries of Y"
    elif classes.p_context[:, classes.queries].any():
        reason = "a query is a context token, and the residual connection adds to its attention"
    elif not len(thinned_times(evidence)):
        reason = f"no time is recorded in {TRAINING.describe(evidence)}"
    if reason:
        return [statement.not_applicable(reason) for statement in RESIDUAL_STATEMENTS]
    return judge_residual(evidence, pairs)


def judge_residual(evidence: Evidence, pairs: Array, residual: str = "normed") -> list[Claim]:
    """Both claims; ``residual="none"`` is a control in which they must fail."""
    from scansnap.dynamics.flow.integrate import flow

    classes, t = evidence.classes, thinned_times(evidence)
    rows, tokens = pairs.T
    rate = flow(classes, evidence.eta_y, evidence.eta_z, t, residual=residual, variables=("z_rate",)).z_rate.values
    measured = rate[:, rows, tokens]
    gap = np.asarray(theory.u(t / classes.n_classes, eta_y=evidence.eta_y, vocab_size=classes.vocab_size))
    f = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    ids = np.flatnonzero(f.any(0))
    up, down = (
        part[:, rows, np.searchsorted(ids, tokens)]
        for part in theory.token_push(gap, f=f[:, ids], vocab_size=classes.vocab_size, query=evidence.class_query,
                                      residual=True)
    )  # fmt: skip
    push = up - down
    known = np.abs(push) > UNDECIDED * (up + down)
    agrees = np.sign(push) == np.sign(measured)
    i, j = index_of_largest(np.where(known & ~agrees, 1, 0)) if (known & ~agrees).any() else (0, 0)
    name = f"token {tokens[j]} of query {classes.queries[rows[j]]}"
    scale = np.abs(measured[:, j]).max(), np.abs(push[:, j]).max()
    turn = theory.rise_time(eta_y=evidence.eta_y, f=f[:, ids], vocab_size=classes.vocab_size,
                            query=evidence.class_query)[rows[j], np.searchsorted(ids, tokens[j])]  # fmt: skip
    falls = np.flatnonzero(measured[:, j] <= 0)
    rises = 0.0 if not len(falls) else float(np.append(t, np.inf)[falls[-1] + 1])
    rising = measured > 0
    window = f"0 < t ≤ {WINDOW_END:g} t₀"
    curve = Curve("t", f"ż of {name}, over its largest", t, measured[:, j] / scale[0], push[:, j] / scale[1])
    return [
        SECTION_7.judge_cases(
            rising, assumptions=evidence.select_assumptions("fast decoder", "large vocabulary", "uniform classes"),
            quantity=f"share of the {len(pairs)} tokens that are distinct within their query and shared by queries, "
            f"and times, {window}, with ż > 0; at the end {rising[-1].mean():.0%}",
            failure=f"token {tokens[np.argmin(rising.sum(0))]} rises at {rising.mean(0).min():.0%} of the times",
            curve=curve,
        ),
        RESIDUAL.judge_cases(
            agrees[known], assumptions=[weak_memory(evidence)],
            quantity=f"share of these tokens and times, {window}, with ż of the predicted sign, where that is decided "
            f"({known.mean():.0%}); {name} rises from {turn / evidence.t_snap:.3g} t₀ on, first recorded at "
            f"{rises / evidence.t_snap:.3g} t₀",
            failure=f"{name} at {evidence.format_time(t[i])}", curve=curve,
        ),
    ]  # fmt: skip


def _local(classes: SequenceClasses) -> Array:
    """(n, 2) row of the query and token of each that is distinct within its query and shared with another query."""
    rows = np.searchsorted(classes.queries, classes.query)
    pairs = [(rows[n], token) for n in range(classes.n_classes)
             for token in np.intersect1d(classes.distinct(n, local=True), classes.common)]  # fmt: skip
    return np.array(sorted(set(pairs))).reshape(-1, 2)

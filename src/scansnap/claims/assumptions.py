"""Which assumptions of the theorems a setting meets, with numbers.

The theorems speak of long sequences, large vocabularies and weak overlap in the limit. `check_assumptions`
says how far a real setting is from each limit, so that a prediction can be trusted, doubted or set aside.

Two assumptions of the paper are stronger than its statements need (docs/theory.md): |λ_i(E)| ≥ 6/√M, where it is
enough that no class stands alone, and t ≫ K², where t ≫ K ln K is. Claims ask for the weaker ones. The paper's own
are listed beside them, with ``weaker`` naming what replaces them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from scansnap.checks import InputError, check_float
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import attention_of
from scansnap.theory.arguments import FloatArray

# "≫" has no number in the paper. The terms dropped in the proofs are of relative order 1/factor, so a factor
# of 10 keeps each below a tenth, about what can be told apart in a plot. "≪" is the same read backwards.
MUCH = 10.0
# Assumption 2 asks |λ_i(E)| ≥ 6/√M; nothing needs it.
_LOWEST_EIGENVALUE = 6.0
_UNIFORM_TOLERANCE = 1e-6  # p_class given in single precision is still uniform
_DENSE_BLOCK = 1024  # common tokens multiplied at once: (K, 1024) doubles are 25 MB for 3000 classes

# What the paper's statements assume, by the names of the assumptions below; WEAKER replaces two of them.
ASSUMPTION_2 = ("weak overlap", "overlap not degenerate", "vocabulary larger than classes squared")
PAPER = (
    "long sequences", "fast decoder", *ASSUMPTION_2, "large vocabulary", "eta_y not too small", "eta_y below 1",
    "uniform classes", "steps above classes squared",
)  # fmt: skip
WEAKER = {"overlap not degenerate": "no class alone", "steps above classes squared": "many steps"}
THEOREM_1 = tuple(WEAKER.get(name, name) for name in PAPER)


@dataclass(frozen=True)
class Assumption:
    """One assumption, held against a setting."""

    name: str
    statement: str  # what the theorem asks, with its place in the paper
    value: float  # what the setting has
    threshold: float  # the bound on it; the statement says on which side
    met: bool
    note: str  # what the number means, or what fails without it
    weaker: str = ""  # the assumption that is enough in its place; no claim asks for this one then


def met_level(assumptions: Iterable[Assumption]) -> int:
    """2 where all assumptions of the paper are met, 1 where only those that its statements need, else 0."""
    unmet = {a.name for a in assumptions if not a.met}
    return 2 if not unmet else 1 if unmet <= WEAKER.keys() else 0


def check_assumptions(
    classes: SequenceClasses, *, eta_y: float, eta_z: float, context: float = math.inf, t: float | None = None,
    overlap: FloatArray | None = None,
) -> list[Assumption]:  # fmt: skip
    """Every assumption of Theorems 1–4 that depends on the setting.

    ``context`` is T, the sequence length including the query (inf for the limit); ``t`` the number of
    batch-size-1 steps, left out where classes are not sampled (the population flow). ``overlap`` is FᵀF along a run,
    (n, K, K), whose worst time counts; left out, that at Z = 0. "≫" means a factor of at least `MUCH`.
    """
    eta_y = check_float("eta_y", eta_y, above=0)
    eta_z = check_float("eta_z", eta_z, above=0)
    if context != math.inf:
        context = check_float("context", context, least=2)
    m, k = classes.vocab_size, classes.n_classes
    assumptions = [_long_sequences(classes, context), *_rates(eta_y, eta_z, m), *_sizes(k, m)]
    assumptions += [*_weak_correlations(classes, overlap), _uniform(classes)]
    if t is not None:
        assumptions += _many_steps(check_float("t", t, least=0), k)
    return assumptions


def overlap_matrix(classes: SequenceClasses, z: ArrayLike | None = None) -> FloatArray:
    """FᵀF, (K, K): the cosines f_nᵀ f_n' between the attention of the classes, c_n ∝ P(·|n) e^{z_m·}, m = ψ(n).

    ``z`` has one row of M logits per query, in the order of ``classes.queries``; left out, z = 0. Theorem 1 writes
    the result as I + E. Only common tokens make overlap, so the cost does not depend on the distinct ones.
    """
    f = _attention(classes, z)  # (K, M) sparse
    shared = f.tocsc()[:, classes.common]  # (K, number of common tokens)
    n_with = np.diff(shared.indptr)
    # A token of n classes costs n² in a sparse product, at a speed about 100 times below a dense one: tokens
    # that more than a tenth of the classes have go through the dense product, in blocks of bounded memory.
    rare, frequent = shared[:, n_with <= classes.n_classes / 10], shared[:, n_with > classes.n_classes / 10]
    overlap: FloatArray = (rare @ rare.T).toarray()
    for start in range(0, frequent.shape[1], _DENSE_BLOCK):
        block = frequent[:, start : start + _DENSE_BLOCK].toarray()
        overlap += block @ block.T
    np.fill_diagonal(overlap, 1.0)  # ‖f_n‖ = 1
    return overlap


def _attention(classes: SequenceClasses, z: ArrayLike | None) -> Any:
    """The rows f_n = c_n/‖c_n‖ as a sparse (K, M) array."""
    queries = classes.queries
    logits = None
    if z is not None:
        logits = np.asarray(z)
        if logits.dtype.kind not in "iuf" or logits.shape != (len(queries), classes.vocab_size):
            allowed = f"numbers of shape {(len(queries), classes.vocab_size)}, a row per query"
            raise InputError("z", f"{logits.dtype} of shape {logits.shape}", allowed)
        if not np.isfinite(logits).all():
            raise InputError("z", logits[~np.isfinite(logits)][0].item(), "finite")
        rows = np.searchsorted(queries, classes.query)
    tokens, values = [], []
    for n in range(classes.n_classes):
        ids, p = classes.support(n)
        c = attention_of(p, 0.0 if logits is None else logits[rows[n], ids])
        tokens.append(ids)
        values.append(c / np.linalg.norm(c))
    starts = np.concatenate([[0], np.cumsum(classes.support_sizes)])
    shape = (classes.n_classes, classes.vocab_size)
    return sparse.csr_array((np.concatenate(values), np.concatenate(tokens), starts), shape=shape)


def _long_sequences(classes: SequenceClasses, context: float) -> Assumption:
    # For T − 1 independent draws E‖k/(T−1) − P‖² = (1 − ‖P‖²)/(T − 1), exactly.
    squared = np.array([np.sum(classes.support(n)[1] ** 2) for n in range(classes.n_classes)])
    spread = max(float((1 / squared - 1).max()), 0.0)  # 0 for one-token contexts, whatever the rounding
    value = math.sqrt(spread / (context - 1))
    return Assumption(
        "long sequences",
        f"T → ∞ (Assumption 1b): root-mean-square error of c_n at z = 0, relative to ‖c_n‖, at most 1/{MUCH:g}",
        value,
        1 / MUCH,
        value <= 1 / MUCH,
        "the largest over the classes; it falls as 1/√T (Lemma 2), slower the more tokens share the context",
    )


def _rates(eta_y: float, eta_z: float, m: int) -> list[Assumption]:
    lowest = MUCH * m**-0.99
    return [
        Assumption(
            "fast decoder", f"η_Y ≫ η_Z (Assumption 1c): η_Y/η_Z at least {MUCH:g}",
            eta_y / eta_z, MUCH, eta_y / eta_z >= MUCH,
            "Y is derived for frozen attention; otherwise it remembers earlier f_n",
        ),
        Assumption(
            "eta_y not too small", f"η_Y ≫ M^−0.99 (Theorem 1): η_Y at least {MUCH:g} M^−0.99",
            eta_y, lowest, eta_y >= lowest,
            "keeps the first steps out of the range where e^u > (M−1)u near u = 0 (Lemma 8)",
        ),
        Assumption(
            "eta_y below 1", "η_Y < 1 (Theorem 1)", eta_y, 1.0, eta_y < 1,
            "continuous time is then a good clock: the step-wise gap u = M h exceeds it by at most 2η_Y (Lemma 7)",
        ),
    ]  # fmt: skip


def _sizes(k: int, m: int) -> list[Assumption]:
    return [
        Assumption(
            "vocabulary larger than classes squared", f"M ≫ K² (Assumption 2): M/K² at least {MUCH:g}",
            m / k**2, MUCH, m / k**2 >= MUCH, "leaves room for K nearly orthogonal f_n",
        ),
        Assumption(
            "large vocabulary", f"M ≫ 100 (Theorem 1): M at least {MUCH * 100:g}",
            float(m), MUCH * 100, m >= MUCH * 100, "terms of order 1/M and 1/ln M are dropped",
        ),
    ]  # fmt: skip


def _weak_correlations(classes: SequenceClasses, overlap: FloatArray | None) -> list[Assumption]:
    m, k = classes.vocab_size, classes.n_classes
    e = np.atleast_3d(overlap_matrix(classes)).reshape(1, k, k) if overlap is None else np.array(overlap)
    finite = np.isfinite(e).all((1, 2))  # a run that breaks down is judged by its statements
    e = e[finite] if finite.any() else np.full((1, k, k), 1.0)
    e = e * (1 - np.eye(k))  # (n, K, K)  E = FᵀF − I
    when = "at Z = 0" if overlap is None else "along the run"
    size = np.abs(np.linalg.eigvalsh(e))
    largest, smallest, lowest = float(size.max()), float(size.min()), _LOWEST_EIGENVALUE / math.sqrt(m)
    alone = float(e.max(-1).min())
    return [
        Assumption(
            "weak overlap", f"|λ₁(E)| < 1/K with FᵀF = I + E {when} (Assumption 2)",
            largest, 1 / k, largest < 1 / k, "the largest eigenvalue; for equal cosines ρ it is (K−1)ρ",
        ),
        Assumption(
            "no class alone", f"every class overlaps with another {when} (weaker than the paper's |λ_i(E)| ≥ 6/√M)",
            alone, 0.0, alone > 0, "the least over the classes of the largest overlap; nothing moves attention without",
        ),
        Assumption(
            "overlap not degenerate", f"|λ_i(E)| ≥ 6/√M for every i {when} (Assumption 2)",
            smallest, lowest, smallest >= lowest,
            "by the paper makes ξ_n > 0 certain for every class; it is enough that no class stands alone",
            weaker=WEAKER["overlap not degenerate"],
        ),
    ]  # fmt: skip


def _uniform(classes: SequenceClasses) -> Assumption:
    value = float(np.abs(classes.n_classes * classes.p_class - 1).max())
    return Assumption(
        "uniform classes",
        "each class is drawn with p_n = 1/K (Theorem 1): |K p_n − 1| = 0 up to rounding",
        value,
        _UNIFORM_TOLERANCE,
        value <= _UNIFORM_TOLERANCE,
        "the largest over the classes; a rarer class is a slower clock, s = p_n t instead of t/K",
    )


def steps_needed(k: int) -> float:
    """K ln K, the number of draws at which about one class is still undrawn; 1 for a single class."""
    return max(k * math.log(k), 1.0)


def _many_steps(t: float, k: int) -> list[Assumption]:
    return [
        Assumption(
            "many steps",
            f"t ≫ K ln K (weaker than the paper's t ≫ K²): t/(K ln K) at least {MUCH:g}",
            t / steps_needed(k), MUCH, t / steps_needed(k) >= MUCH,
            "so that each class has been drawn about t/K times, to a share of √(2K ln K/t)",
        ),
        Assumption(
            "steps above classes squared", f"t ≫ K² (Theorem 1): t/K² at least {MUCH:g}",
            t / k**2, MUCH, t / k**2 >= MUCH, "Hoeffding's inequality ignores that the count of a class varies little",
            weaker=WEAKER["steps above classes squared"],
        ),
    ]  # fmt: skip

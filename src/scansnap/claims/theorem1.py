"""Theorem 1: the gradient that reaches attention is a combination of the K attention outputs.

    g_n := Y(e_n − α_n) = γ (ι_n f_n − Σ_{n'≠n} β_nn' f_n')          (Eq. 9)

Measured are a_n = γ ι_n and b_nn' = γ β_nn', by least squares on the context of class n: entries of g_n elsewhere
meet f_nl = 0 and never act. A class that shares no token with n has f_n' = 0 there, so its β cannot be seen and
does nothing. Where several f_n' are parallel on that context only their joint pull is determined; least squares
then shares it out evenly, which leaves its sign, a_n and ξ_n as they are.

The proof is about a modified update of Y (Lemma 3, Eq. 26), for which β_nn' = E'_nn' + O(1/M) with (I + E)⁻¹ = I − E'.
The update that is really made (Eq. 7) keeps the span and, mostly, the signs, but β is about e^{u f_nᵀf_n'}/M as long
as that is small, u the logit gap: far less than E'. Hence a claim on the sign of ξ and another on its size.

Because β is so small, nearly all of g_n lies along f_n, where (I − f_n f_nᵀ) takes it away: with every assumption met
the rest, P⊥g_n, is less than 1% of ‖g_n‖, and it is all that moves attention. The span is therefore asked of P⊥g_n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scansnap.claims import premises
from scansnap.claims.assumptions import MUCH, Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.windows import TRAINING, TRANSITION
from scansnap.classes import SequenceClasses
from scansnap.theory import gamma

SPAN = Statement(
    "theorem-1-span",
    "Theorem 1, Eq. 9",
    "g_n is a combination of f_1 … f_K: nothing else is back-propagated that could move attention",
    kind="measured",
)
BETA = Statement(
    "theorem-1-beta",
    "Theorem 1, Eqs. 9, 89",
    "β_nn' > 0: g_n points away from the f_n' of every class that overlaps with n",
    kind="measured",
)
XI = Statement(
    "theorem-1-xi", "Theorem 1(a)", "ξ_n = γ Σ β_nn' f_nᵀf_n' > 0 for every class at every time", kind="measured"
)
XI_SIZE = Statement(
    "theorem-1-xi-size",
    "Theorem 1, Eqs. 87, 89, 93",
    "ξ_n = −γ E'_nn up to O(1/M), since β_nn' = E'_nn' + O(1/M)",
    kind="measured",
)
GAMMA = Statement(
    "theorem-1-gamma",
    "Theorem 1(b), Eq. 85",
    "g_n is about γ(t) f_n with γ = (M−1)² h/(M−1+e^{Mh}), h = h(t/K)",
    kind="measured",
)

# "≫" is read as a factor of MUCH throughout, so what the proof drops may be this share of what it keeps, where it
# matters: of P⊥g_n. (Of ‖g_n‖, a decomposition without any f_n' would do.)
SPAN_TOLERANCE = 1 / MUCH
# Eq. 89 knows β up to |δ₃| < 3/M. The sign of β is asked as the theorem states it, without this slack, which is three
# times what β begins with; the size of ξ only where the slack is no more than the tolerance of what is predicted.
BETA_SLACK = 3.0
# γ leaves out ι_n − 1 ≤ λ₁²/(1 − λ₁), which weak overlap (λ₁ < 1/K) bounds by 1/6 for three classes and by less for
# more; a quarter also covers 1/M, and two classes up to an overlap of 0.4.
GAMMA_TOLERANCE = 0.25
XI_SIZE_TOLERANCE = GAMMA_TOLERANCE  # the same factor, 1 + δ₁, stands before ξ; 3/M for each β comes on top
# "For every …": one exception is too many, half a one is not.
EVERY = 0.5
# A sign counts beyond this share of the terms that cancel in it. Double precision leaves 1e-16 and the flow 1e-9 of
# Y, mostly common to those terms; what is measured is f_nᵀf_n'/M of them or more, above 1e-8 for any M in use.
ROUNDING = 1e-11
# Of a fitted coefficient, in standard errors. There may be thousands (pairs × times), and chance is to give none.
SIGN_SIGMAS = 4.0
# Directions in which the unit vectors f_n'/‖f_n'‖ differ by less are one direction: equal classes of the flow agree
# to 1e-9 or better, and what trained classes differ by is larger.
_RANK = 1e-6
_DETERMINED = 1e-3  # what may be unseen of the directions that decide about a_n, relative to them; far above _RANK
_WORK = 3e9  # K³ × context × times; keeps the fit below about ten seconds by looking at fewer times

_NO_XI = "ξ_n is 0 or undetermined: no class overlaps with another whose f is not a combination of the others"


@dataclass(frozen=True)
class Decomposition:
    """g_n = a_n f_n − Σ b_nn' f_n' + rest, on the context of class n, at some of the recorded times."""

    own: Array  # (n, K)  a_n
    others: Array  # (n, K, K)  b_nn'; 0 where classes do not overlap
    error: Array  # (n, K, K)  standard error of b_nn', from the rest
    size: Array  # (n, K)  ‖g_n‖
    across: Array  # (n, K)  ‖P⊥g_n‖, the part that moves attention
    rest: Array  # (n, K)  ‖rest‖
    spare: Array  # (n, K)  dimensions of the context that the f_n' leave free
    determined: Array  # (n, K)  whether a_n is: f_n is no combination of the other f_n' on this context


def window(evidence: Evidence) -> Array:
    """Indices of the times the theorem is held against (:data:`scansnap.claims.windows.TRAINING`), thinned."""
    return thin(evidence, TRAINING.times(evidence))


def thin(evidence: Evidence, times: Array) -> Array:
    """The first and the last of the times, and between them as many as a large problem allows to look at."""
    work = evidence.classes.n_classes**3 * float(evidence.classes.support_sizes.max())
    most = max(8, int(_WORK / work))
    if len(times) <= most:
        return times
    return times[np.linspace(0, len(times) - 1, most).round().astype(int)]


def overlapping(classes: SequenceClasses) -> Array:
    """(K, K) whether two different classes share a context token."""
    has = (classes.p_context > 0).astype(np.float64)
    shared: Array = has @ has.T > 0
    np.fill_diagonal(shared, False)
    return shared


def decompose(evidence: Evidence, times: Array) -> Decomposition:
    """Least squares by singular values, with f_n taken out first.

    What is left, g_n − f_n f_nᵀg_n, is small (ξ_n/γ ≪ 1) and is all that moves attention; fitting it apart from the
    large part along f_n keeps its digits. Numbers that are not finite give NaN.
    """
    assert evidence.g is not None
    classes, k = evidence.classes, evidence.classes.n_classes
    f, g = evidence.f[times], evidence.g[times]  # (n, K, M)
    near = overlapping(classes)
    flat, square = (len(times), k), (len(times), k, k)
    found = Decomposition(
        np.zeros(flat), np.zeros(square), np.zeros(square), np.zeros(flat), np.zeros(flat), np.zeros(flat),
        np.zeros(flat, dtype=int), np.ones(flat, dtype=bool),
    )  # fmt: skip
    for n in range(k):
        ids = classes.support(n)[0]
        fn, gn = f[:, n, ids], g[:, n, ids]  # (n, S)
        v = f[:, near[n]][:, :, ids]  # (n, R, S)
        finite = np.isfinite(fn).all(-1) & np.isfinite(gn).all(-1) & np.isfinite(v).all((-2, -1))
        fn, gn = np.where(finite[:, None], fn, 0), np.where(finite[:, None], gn, 0)
        length = np.linalg.norm(v, axis=-1)  # (n, R)
        usable = finite[:, None] & (length > 0)
        length = np.where(usable, length, 1)
        v = np.where(usable[..., None], v, 0) / length[..., None]
        along = (v * fn[:, None]).sum(-1)  # (n, R)
        across = v - along[..., None] * fn[:, None]
        fg = (fn * gn).sum(-1)
        rest = gn - fn * fg[:, None]
        found.across[:, n] = np.linalg.norm(rest, axis=-1)
        if v.shape[1]:
            u, s, w = np.linalg.svd(across, full_matrices=False)  # (n, R, r), (n, r), (n, r, S)
            kept = s > _RANK
            inverse = np.where(kept, 1 / np.where(kept, s, 1), 0)
            c = -(u * (inverse * (w @ rest[..., None])[..., 0])[:, None]).sum(-1)  # (n, R)
            rest = rest + (c[..., None] * across).sum(-2)
            seen = u * kept[:, None]
            unseen = along - (seen * (seen * along[..., None]).sum(-2, keepdims=True)).sum(-1)
            found.determined[:, n] = np.linalg.norm(unseen, axis=-1) <= _DETERMINED * np.linalg.norm(along, axis=-1)
            found.spare[:, n] = len(ids) - 1 - kept.sum(-1)
            noise = np.linalg.norm(rest, axis=-1) / np.sqrt(np.maximum(found.spare[:, n], 1))
            spread = np.sqrt(((u * inverse[:, None]) ** 2).sum(-1))
            found.others[:, n, near[n]] = c / length
            found.error[:, n, near[n]] = noise[:, None] * spread / length
            found.own[:, n] = fg + (c * along).sum(-1)
        else:
            found.spare[:, n] = len(ids) - 1
            found.own[:, n] = fg
        found.size[:, n] = np.linalg.norm(gn, axis=-1)
        found.rest[:, n] = np.linalg.norm(rest, axis=-1)
        for numbers in (found.own, found.others, found.error, found.size, found.across, found.rest):
            numbers[~finite, n] = np.nan
    return found


def xi(evidence: Evidence, times: Array, fit: Decomposition) -> Array:
    """ξ_n, (n, K), without the coefficients b where the class has distinct tokens.

    A distinct token l sees only f_n: g_nl = a_n f_nl. With a_n from those tokens alone, a_n f_nl − g_nl = Σ b f_n'l on
    the common ones, so

        ξ_n = Σ_{l common} f_nl (a_n f_nl − g_nl),   a_n = Σ_{l distinct} f_nl g_nl / Σ_{l distinct} f_nl²

    This is also Σ ż_ml/(η_Z p_n Σ f_nl²) over the distinct tokens: ξ_n is the speed Theorem 2(a) speaks of. Without
    distinct tokens ξ_n = a_n − f_nᵀg_n with the fitted a_n.
    """
    assert evidence.g is not None
    f, g = evidence.f[times], evidence.g[times]
    found = fit.own - (f * g).sum(-1)
    for n in range(evidence.classes.n_classes):
        distinct, common = evidence.classes.distinct(n), evidence.classes.common_of(n)
        weight = (f[:, n, distinct] ** 2).sum(-1)  # (n,)
        if len(distinct) and (weight > 0).all():
            own = (f[:, n, distinct] * g[:, n, distinct]).sum(-1) / weight
            found[:, n] = (f[:, n, common] * (own[:, None] * f[:, n, common] - g[:, n, common])).sum(-1)
    return found


def share(
    statement: Statement,
    good: Array,
    *,
    quantity: str,
    where: str,
    assumptions: list[Assumption],
    curve: Curve,
    sure: tuple[Array, Array] | None = None,
    to_decide: str = "",
) -> Claim:
    """Judge a statement that is to be true of every case; ``good`` says of which it is.

    ``sure`` says where that is known: of which cases it is surely true, and of which surely not. One that is surely
    not true is enough to fail, and all must surely be true to hold.
    """
    part = float(np.mean(good))
    interval = None if sure is None else (float(np.mean(sure[1])), 1 - float(np.mean(sure[0])))
    return statement.judge(
        quantity=quantity, measured=part, predicted=1.0, deviation=1 - part, tolerance=EVERY / good.size,
        where=f"{good.size - np.count_nonzero(good)} of {good.size} do not; {where}", assumptions=assumptions,
        curve=curve, interval=interval, to_decide=to_decide,
    )  # fmt: skip


def check(evidence: Evidence) -> list[Claim]:
    """Span, signs and sizes of the coefficients."""
    statements = (SPAN, BETA, XI, XI_SIZE, GAMMA)
    assumptions = evidence.assume(*premises.THEOREM_1)
    times = window(evidence)
    why = ""
    if evidence.g is None:
        why = "needs the gradients g, that is y at every recorded time"
    elif not len(times):
        why = f"no time is recorded in {TRAINING.words(evidence)}, t₀ = {evidence.t_snap:.3g}"
    if why:
        return [statement.not_applicable(why, assumptions) for statement in statements]
    fit = decompose(evidence, times)
    return [
        _span(evidence, times, fit), _beta(evidence, times, fit), _xi(evidence, times, fit),
        _xi_size(evidence, times, fit), _gamma(evidence, times, fit),
    ]  # fmt: skip


def _span(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    assumptions = evidence.assume(*premises.THEOREM_1)
    if (fit.spare == 0).all():
        why = "every vector on these contexts is a combination of the f_n: they have no more tokens than that"
        return SPAN.not_applicable(why, assumptions)
    acts = ~(fit.across <= ROUNDING * fit.size)  # NaN acts, and fails
    if not acts.any():
        return SPAN.not_applicable("all of g_n lies along f_n: nothing moves attention", assumptions)
    share = np.where(acts, fit.rest / np.where(fit.across == 0, 1, fit.across), 0)
    i, n = _worst(share)
    t = evidence.t[times]
    largest = float(share[i, n])
    return SPAN.judge(
        quantity=f"largest share of P⊥g_n, the part of g_n that moves attention, outside the span of f_1 … f_K, "
        f"{TRAINING.words(evidence)} (P⊥g_n is {fit.across[i, n] / _nonzero(fit.size[i, n]):.2g} of g_n there)",
        measured=largest, predicted=0.0, deviation=largest, tolerance=SPAN_TOLERANCE, assumptions=assumptions,
        where=f"class {n} at {_time(evidence, t[i])}",
        curve=Curve("t", "share of P⊥g_n outside the span, largest class", t, share.max(1), np.zeros(len(t))),
    )  # fmt: skip


def _beta(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    assumptions = evidence.assume(*premises.THEOREM_1)
    pairs = np.argwhere(overlapping(evidence.classes))  # (p, 2)
    if not len(pairs):
        return BETA.not_applicable("no two classes share a context token", assumptions)
    one, other = pairs.T
    b, error = fit.others[:, one, other], fit.error[:, one, other]  # (n, p)
    if ((b == 0) & (error == 0)).all():
        return BETA.not_applicable("on every context the other f_n' are along f_n: no β can be seen", assumptions)
    told = ~(np.abs(b) <= SIGN_SIGMAS * error + ROUNDING * fit.size[:, one])  # NaN is told, and fails
    beta = b / _nonzero(fit.size[:, one])
    i, p = _worst(np.where(told, -beta, -np.inf))
    t = evidence.t[times]
    which = f"{TRAINING.words(evidence)}; of {np.mean(told):.0%} the sign can be told"
    return share(
        BETA, b > 0, assumptions=assumptions, sure=(told & (b > 0), told & ~(b > 0)),
        quantity=f"share of pairs and times with β_nn' > 0, {which} beyond {SIGN_SIGMAS:g} standard errors of the fit",
        where=f"β is {beta[i, p]:.3g} for class {one[p]} against class {other[p]} at {_time(evidence, t[i])}",
        to_decide=f"of {np.mean(~told):.0%} of pairs and times the sign cannot be told: β is below "
        f"{SIGN_SIGMAS:g} standard errors of the fit",
        curve=Curve("t", f"β of class {one[p]} against class {other[p]}", t, beta[:, p], np.zeros(len(t))),
    )  # fmt: skip


def _xi(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    assert evidence.g is not None
    assumptions = evidence.assume(*premises.THEOREM_1)
    at = np.flatnonzero(fit.determined.all(0) & overlapping(evidence.classes).any(1))  # ξ_n = 0 without overlap
    if not len(at):
        return XI.not_applicable(_NO_XI, assumptions)
    f, t = evidence.f[times][:, at], evidence.t[times]
    found = xi(evidence, times, fit)[:, at]  # (n, k)
    shared = np.isin(np.arange(evidence.classes.vocab_size), evidence.classes.common)
    relative = found / np.where(fit.size[:, at] == 0, 1, fit.size[:, at])
    good = relative > ROUNDING * (f * f * shared).sum(-1)
    i, n = _worst(-relative)
    return share(
        XI, good, assumptions=assumptions,
        quantity=f"share of classes and times, {TRAINING.words(evidence)}, with ξ_n > 0 beyond rounding",
        where=f"ξ_n/γ is {relative[i, n]:.3g} for class {at[n]} at {_time(evidence, t[i])}",
        curve=Curve("t", "ξ_n/‖g_n‖, the smallest of the classes", t, relative.min(1), np.zeros(len(t))),
    )  # fmt: skip


def _xi_size(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    assumptions = evidence.assume(*premises.THEOREM_1)
    at = np.flatnonzero(fit.determined.all(0) & overlapping(evidence.classes).any(1))
    if not len(at):
        return XI_SIZE.not_applicable(_NO_XI, assumptions)
    gram = evidence.overlap[times]  # (n, K, K)  I + E
    if np.isfinite(gram).all() and np.linalg.eigvalsh(gram).min() < _RANK:
        return XI_SIZE.not_applicable("I + E has no inverse: an f_n is a combination of the others", assumptions)
    iota = np.diagonal(np.linalg.inv(gram), axis1=1, axis2=2)[:, at]  # (n, k)  1 − E'_nn
    t, own = evidence.t[times], fit.own[:, at]
    measured = xi(evidence, times, fit)[:, at] / np.where(own == 0, 1, own)
    predicted = (iota - 1) / iota
    overlap = (gram * (1 - np.eye(gram.shape[-1]))).sum(-1)[:, at]  # Σ f_nᵀf_n'
    slack = BETA_SLACK / evidence.classes.vocab_size * overlap + ROUNDING
    said = slack <= XI_SIZE_TOLERANCE * predicted  # NaN is not, unless it is measured
    if not said.any():
        least = float((slack / predicted).min())
        why = f"what Eq. 89 leaves open, 3/M for each β, is {least:.2g} of the ξ_n that it predicts, or more"
        return XI_SIZE.not_applicable(why, assumptions)
    off = np.maximum(np.abs(measured - predicted) - slack, 0) / np.where(said, predicted, 1)
    i, n = _worst(np.where(said, off, -np.inf))
    return XI_SIZE.judge(
        quantity=f"ξ_n/(γι_n) where it is relatively furthest from −E'_nn/(1 − E'_nn), beyond 3/M for each β, "
        f"{TRAINING.words(evidence)}",
        measured=float(measured[i, n]), predicted=float(predicted[i, n]), deviation=float(off[i, n]),
        tolerance=XI_SIZE_TOLERANCE, assumptions=assumptions,
        where=f"class {at[n]} at {_time(evidence, t[i])}",
        curve=Curve(
            "t", f"ξ/(γι) of class {at[n]}", t, measured[:, n], predicted[:, n], log_y=True
        ),
    )  # fmt: skip


def _gamma(evidence: Evidence, times: Array, fit: Decomposition) -> Claim:
    assumptions = evidence.assume(*premises.THEOREM_1)
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    late = np.isin(times, TRANSITION.times(evidence))
    at = np.flatnonzero(fit.determined.all(0))
    if not late.any():
        why = f"no time is recorded in {TRANSITION.words(evidence)}, t₀ = {evidence.t_snap:.3g}"
        return GAMMA.not_applicable(why, assumptions)
    if not len(at):
        why = "no a_n is determined: on every context f_n is a combination of the other f_n'"
        return GAMMA.not_applicable(why, assumptions)
    t, own = evidence.t[times][late], fit.own[late][:, at]  # (n,), (n, k)
    predicted = np.asarray(gamma(t, eta_y=evidence.eta_y, n_classes=k, vocab_size=m))
    off = np.abs(own / predicted[:, None] - 1)
    i, n = _worst(off)
    return GAMMA.judge(
        quantity=f"a_n, the coefficient of f_n in g_n, where it is relatively furthest from γ(t), "
        f"{TRANSITION.words(evidence)}",
        measured=float(own[i, n]), predicted=float(predicted[i]), deviation=float(off[i, n]),
        tolerance=GAMMA_TOLERANCE, assumptions=assumptions,
        where=f"a_n/γ is {own[i, n] / predicted[i]:.3g} for class {at[n]} at {_time(evidence, t[i])}",
        curve=Curve("t", "γ and the mean a_n", t, own.mean(1), predicted, log_y=True),
    )  # fmt: skip


def _worst(values: Array) -> tuple[int, int]:
    """Row and column of the largest; of one that is not a number, if there is any."""
    i, j = np.unravel_index(int(np.argmax(values)), values.shape)
    return int(i), int(j)


def _nonzero(values: Array) -> Array:
    return np.where(values == 0, 1, values)


def _time(evidence: Evidence, t: float) -> str:
    return f"t = {t:.4g} ({t / evidence.t_snap:.3g} t₀)"

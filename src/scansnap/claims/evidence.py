"""Evidence: the tables of one run over time, from the flow, from SGD, or from a file.

n times · K classes · Q queries · M tokens, of which those after the last of any context may be left out. Quantities
have their names of the symbol table. A quantity that the source does not hold is None, and claims that need it are not
applicable. ``why_not_applicable`` is the reason if a run is outside the theory
(`scansnap.theory.applicability`); built-in checks then give no verdicts.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import log_softmax

from scansnap.checks import InputError
from scansnap.claims.assumptions import THEOREM_1, Assumption, check_assumptions
from scansnap.claims.time_windows import WINDOW_END
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import attention_of
from scansnap.measure.growth import GrowthPoint
from scansnap.theory import t_scan, t_snap
from scansnap.theory.applicability import why_flow_not_applicable, why_not_applicable, why_not_paper_model

Array = np.ndarray
# Only η_Y t and η_Y/η_Z enter a flow, so it is not asked for bounds on η_Y alone.
_SIZE_OF_STEPS = ("eta_y not too small", "eta_y below 1")
_RESPONSE_TIMES = 60  # about ten in a decade: what is between them is smooth
_RESPONSE_RTOL = 1e-7  # what squares leave out is 1e-6 at the least
_LARGEST_Y = 4000  # three tables of 4000² doubles are 400 MB
# The least measurable movement of a logit, a hundred times its error: the flow is integrated to 1e-12 and a little
# more as steps add up; the logarithm of a ratio of two numbers in single precision has an error of a few ε, 1e-7.
_RESOLUTION = {False: 1e-9, True: 1e-4}  # by single precision
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Evidence:
    """One run as data for claims: the argument of a check function. n times, K classes, Q queries, M tokens.

    Attributes
    ----------
    classes
        The classes.
    eta_y, eta_z
        Effective rates: with momentum μ they are η/(1 − μ).
    source
        ``"flow"`` (exact, T → ∞) or ``"sgd"`` (noisy).
    context
        Sequence length T.
    t
        Times in steps of batch size 1, shape (n,).
    z
        Attention logits, shape (n, Q, M).
    attention
        c_n, shape (n, K, M).
    g
        Y(e_n − α_n), 0 outside the context of the class, shape (n, K, M).
    gap
        Logit of the right output minus that of an output that is never right, shape (n, K).
    y
        Y at the times ``y_times``, shape (k, M, M).
    y_times
        Indices into ``t``, shape (k,).
    sampled
        Whether classes and contexts are drawn at random; False for the flow and for expected steps.
    z_seeds
        z of this run and of runs with other seeds, shape (R, n, Q, M).
    why_not_applicable
        Why the theory does not apply to the run; empty if it does.
    loss
        Σ p_n (−log α_n) at T → ∞ in nats, shape (n,).
    momentum
        Momentum of SGD; the rates include it.
    batch_size
        Sequences per update of SGD; None for expected steps and the flow.

    Examples
    --------
    >>> import scansnap as ss
    >>> def shape_of_z(evidence: ss.Evidence) -> ss.Claim:
    ...     n, q, m = evidence.z.shape
    ...     return ss.Statement("queries", "Own claim", "there is one query").judge(
    ...         quantity="number of queries", measured=q, predicted=1, deviation=abs(q - 1), tolerance=0.5
    ...     )
    >>> ss.verify(ss.SequenceClasses.textbook(), checks=[shape_of_z])["queries"].status
    'holds'
    """

    classes: SequenceClasses
    eta_y: float
    eta_z: float
    source: str
    context: float
    t: Array
    z: Array
    attention: Array
    g: Array | None
    gap: Array | None
    y: Array | None = None
    y_times: Array | None = None
    sampled: bool = False
    z_seeds: Array | None = None
    why_not_applicable: str = ""
    loss: Array | None = None
    momentum: float = 0.0
    batch_size: int | None = None

    @property
    def t_snap(self) -> float:
        """t₀ of Theorem 1 at leading order."""
        k, m = self.classes.n_classes, self.classes.vocab_size
        return float(t_snap(eta_y=self.eta_y, n_classes=k, vocab_size=m))

    @property
    def t_scan(self) -> float:
        """t₀′ of Theorem 1."""
        k, m = self.classes.n_classes, self.classes.vocab_size
        return float(t_scan(eta_y=self.eta_y, n_classes=k, vocab_size=m))

    @cached_property
    def class_query(self) -> Array:
        """(K,) row of z for each class."""
        return np.searchsorted(self.classes.queries, self.classes.query)

    @cached_property
    def f(self) -> Array:
        """(n, K, M) c_n/‖c_n‖."""
        return self.attention / np.linalg.norm(self.attention, axis=-1, keepdims=True)

    @cached_property
    def overlap(self) -> Array:
        """(n, K, K) f_nᵀ f_n'."""
        return self.f @ self.f.transpose(0, 2, 1)

    @cached_property
    def classes_with_distinct(self) -> list[int]:
        """The classes that have distinct tokens."""
        return [n for n in range(self.classes.n_classes) if len(self.classes.distinct(n))]

    @cached_property
    def measured_growth(self) -> Array:
        """(n, K) B_n(t) along the path (`scansnap.measure.growth`); NaN for a class without distinct tokens."""
        distinct = [self.classes.distinct(n) for n in range(self.classes.n_classes)]
        path = ((self.z[:, self.class_query[n]][:, ids], self.f[:, n][:, ids]) for n, ids in enumerate(distinct))
        return GrowthPoint.of(path).growth()

    def attention_at(self, z: Array) -> Array:
        """(…, K, M) c_n ∝ P(l|n) e^{z} for logits (…, Q, M)."""
        return attention_of(self.classes.p_context[:, : z.shape[-1]], z[..., self.class_query, :])

    def sum_by_query(self, by_class: Array) -> Array:
        """(n, Q, …) sums over the classes of each query, of (n, K, …)."""
        total = np.zeros((len(by_class), self.z.shape[1], *by_class.shape[2:]))
        for n, row in enumerate(self.class_query):
            total[:, row] += by_class[:, n]
        return total

    def format_time(self, t: float) -> str:
        """A time as text, also in units of t₀."""
        return f"t = {t:.4g} ({t / self.t_snap:.3g} t₀)"

    @cached_property
    def z_rate(self) -> Array | None:
        """(n, Q, M) ż of the exact population field at each recorded state (Lemma 1 in expectation)."""
        if self.g is None:
            return None
        projected = self.g - self.f * (self.f * self.g).sum(-1, keepdims=True)  # (I − f fᵀ) g
        return self.sum_by_query(self.eta_z * self.classes.p_class[:, None] * self.f * projected)

    @cached_property
    def response(self) -> xr.Dataset:
        """The linear response of attention (`scansnap.response`), at t = 0 and recorded times up to 10 t₀."""
        from scansnap.dynamics.response.solve import response

        times = self.t[(self.t > 0) & (self.t <= WINDOW_END * self.t_snap)]
        if len(times) > _RESPONSE_TIMES:
            times = times[np.linspace(0, len(times) - 1, _RESPONSE_TIMES).round().astype(int)]
        return response(self.classes, self.eta_y, self.eta_z, np.append(0.0, times), rtol=_RESPONSE_RTOL)

    @cached_property
    def assumptions(self) -> dict[str, Assumption]:
        """By name, overlaps at the worst time up to 10 t₀; the number of steps only for sampled updates."""
        end = WINDOW_END * self.t_snap
        t = min(float(self.t[-1]), end) if self.sampled else None
        assumptions = check_assumptions(self.classes, eta_y=self.eta_y, eta_z=self.eta_z, context=self.context, t=t,
                                        overlap=self.overlap[: max(1, np.sum(self.t <= end))])  # fmt: skip
        return {a.name: a for a in assumptions}

    def select_assumptions(self, *names: str) -> list[Assumption]:
        """The named assumptions (default: Theorem 1's), as far as they concern this source."""
        unknown = _SIZE_OF_STEPS if self.source == "flow" else ()
        return [self.assumptions[name] for name in names or THEOREM_1 if name in self.assumptions.keys() - unknown]

    @cached_property
    def resolution(self) -> float:
        """Smaller movements of a logit are rounding."""
        return _RESOLUTION[machine_epsilon(self.z) > _EPSILON]


def machine_epsilon(values: Array) -> float:
    """ε of the recorded numbers; converted float32 values are recognised."""
    single = np.array_equal(values, values.astype(np.float32), equal_nan=True)
    return float(np.finfo(np.float32).eps) if single else _EPSILON


def from_flow(
    classes: SequenceClasses,
    *,
    eta_y: float,
    eta_z: float,
    t_end: float,
    n_times: int = 120,
    rtol: float = 1e-9,
    with_y: bool = True,
    z0: Array | None = None,
) -> Evidence:
    """The exact T → ∞ flow from Y = 0 and Z = 0 (or ``z0``), recorded at log-spaced times up to ``t_end``.

    The first is well before t₀′. ``with_y`` records the M×M table at three of the times, for the claims about it
    (Lemma 1 and Σ Y).
    """
    from scansnap.dynamics.flow.integrate import flow

    k, m = classes.n_classes, classes.vocab_size
    first = 1e-3 * float(t_scan(eta_y=eta_y, n_classes=k, vocab_size=m))
    t = np.concatenate([[0.0], np.geomspace(first, t_end, n_times)])
    options: dict[str, Any] = {"eta_y": eta_y, "eta_z": eta_z, "rtol": rtol, "z0": z0}
    data = flow(classes, t=t, variables=("z", "attention", "g", "gap", "loss"), **options)
    evidence = _from_flow_data(data, classes)
    if with_y and m <= _LARGEST_Y:
        y_times = np.array([n_times // 3, 2 * n_times // 3, n_times])
        y = flow(classes, t=t[y_times], variables="y", **options)["y"].values
        evidence = replace(evidence, y=y, y_times=y_times)
    return evidence


def reason_outside_theory(data: xr.Dataset, run: int = 0) -> str:
    """The reason why a flow, or one run of a trajectory, is outside the theory; empty if it is inside."""
    if "t" in data.dims:
        return why_flow_not_applicable(data.attrs)
    rates = {name: float(_by_run(data, name)[run]) for name in ("eta_y", "eta_z")}
    rates["weight_decay"] = max(float(_by_run(data, name)[run]) for name in _decays(data))
    failed, complete = int(_by_run(data, "failed_step")[run]), bool(data.attrs["complete"])
    return why_not_applicable(_settings(data), **rates, failed_step=failed, complete=complete)


def from_trajectory(data: xr.Dataset, classes: SequenceClasses, run: int = 0) -> Evidence:
    """A flow, or one run made by ``simulate``: needs z and attention, and y (or g) for claims about gradients.

    A selected run without the dimension ``run`` is run 0.
    """
    for name in ("z", "attention"):
        if name not in data:
            raise InputError("the trajectory", list(map(str, data.data_vars)), f"one that holds {name}")
    if "t" in data.dims:
        return _from_flow_data(data, classes)
    settings = _settings(data)
    if reason := why_not_paper_model(settings["model"]):
        raise InputError("the model of the trajectory", reason, "the paper's: its Y and Z mean something else")
    selected = data.isel(run=run) if "run" in data.dims else data
    boost = 1 / (1 - float(selected.momentum))
    context = math.inf if settings["context"] == "inf" else float(settings["context"])
    sampled = settings["batch_size"] is not None
    attention = selected["attention"].values.astype(np.float64)
    y = selected["y"].values.astype(np.float64) if "y" in data else None
    g, gap = gradients_and_gap(classes, attention, y) if y is not None else (None, None)
    return Evidence(
        classes, float(selected.eta_y) * boost, float(selected.eta_z) * boost, "sgd", context,
        selected["step"].values.astype(np.float64), selected["z"].values.astype(np.float64), attention, g, gap,
        y, None if y is None else np.arange(len(y)), sampled, _other_seeds(data, run) if sampled else None,
        reason_outside_theory(data, run), selected["loss"].values.astype(np.float64) if "loss" in data else None,
        float(selected.momentum), settings["batch_size"],
    )  # fmt: skip


def _settings(data: xr.Dataset) -> dict[str, Any]:
    if "settings" not in data.attrs:
        raise InputError("the trajectory", "without settings", "one made by simulate or flow")
    settings: dict[str, Any] = json.loads(data.attrs["settings"])
    return settings


def _by_run(data: xr.Dataset, name: str) -> Array:
    """A coordinate along run; one that all runs have in common may be a scalar."""
    return np.broadcast_to(data[name].values, (data.sizes.get("run", 1),))


def _decays(data: xr.Dataset) -> list[str]:
    """The coordinates that hold weight decay: one for both tables, or one for each."""
    return [name for name in ("weight_decay", "weight_decay_y", "weight_decay_z") if name in data.coords]


def _other_seeds(data: xr.Dataset, run: int) -> Array | None:
    """(R, n, Q, M) z of this run and of those at the same rates with other seeds; None where there are none."""
    if "run" not in data.dims:
        return None
    alike = _by_run(data, "failed_step") < 0
    for name in ("eta_y", "eta_z", "momentum", *_decays(data)):
        values = _by_run(data, name)
        alike = alike & (values == values[run])
    seeds = _by_run(data, "seed")
    others = np.flatnonzero(alike & (seeds != seeds[run]))
    _, first = np.unique(seeds[others], return_index=True)  # the same seed twice is the same run
    if not len(first):
        return None
    z: Array = data["z"].isel(run=[run, *others[np.sort(first)]]).values.astype(np.float64)
    return z


def _from_flow_data(data: xr.Dataset, classes: SequenceClasses) -> Evidence:
    t, z, attention = data["t"].values, data["z"].values, data["attention"].values
    y = data["y"].values if "y" in data else None
    g, gap = gradients_and_gap(classes, attention, y) if y is not None else (None, None)
    if "g" in data:
        g = np.nan_to_num(data["g"].values, nan=0.0)
    if "gap" in data and not np.isnan(data["gap"].values).all():
        gap = data["gap"].values
    loss = data["loss"].values if "loss" in data else None
    outside = why_flow_not_applicable(data.attrs)
    if t[0] > 0 and data.attrs["z0"] == "zero":  # add the start: all tables are 0, attention is P(l|n)
        t, attention = np.append(0.0, t), np.concatenate([classes.p_context[None], attention])
        z = np.concatenate([np.zeros_like(z[:1]), z])
        y, g, gap = (None if x is None else np.concatenate([np.zeros_like(x[:1]), x]) for x in (y, g, gap))
        loss = None if loss is None else np.append(math.log(classes.vocab_size), loss)
    momentum = float(data.attrs.get("momentum", 0.0))
    eta_y, eta_z = (float(data.attrs[name]) / (1 - momentum) for name in ("eta_y", "eta_z"))
    return Evidence(
        classes, eta_y, eta_z, "flow", math.inf, t, z, attention, g, gap, y, None if y is None else np.arange(len(y)),
        why_not_applicable=outside, loss=loss, momentum=momentum,
    )  # fmt: skip


def gradients_and_gap(classes: SequenceClasses, attention: Array, y: Array) -> tuple[Array, Array | None]:
    """g_n = Y(e_n − α_n) on the class's context, (n, K, M), and the logit gap, (n, K)."""
    f = attention / np.linalg.norm(attention, axis=-1, keepdims=True)
    logits = f @ y  # (n, K, M)
    k = np.arange(classes.n_classes)
    r = -np.exp(log_softmax(logits, axis=-1))
    r[:, k, classes.next_token] += 1  # e_n − α_n
    g = np.where(classes.p_context > 0, r @ y.transpose(0, 2, 1), 0.0)
    never = np.setdiff1d(np.arange(classes.vocab_size), classes.next_token)
    if len(never) == 0:
        return g, None
    return g, logits[:, k, classes.next_token] - logits[:, :, never].mean(-1)

"""The T → ∞ population flow, integrated to any time: what SGD does on average, without its noise.

t counts batch-size-1 SGD steps. The flow is the limit of small rates: full-expectation SGD with rate η stays within
O(η) of it at fixed η t.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike

from scansnap.checks import InputError, check_choice, check_float
from scansnap.checks.arrays import numbers
from scansnap.classes import SequenceClasses
from scansnap.dynamics.device import pick_device
from scansnap.dynamics.flow.compact import CompactFlow, PaddedLayout
from scansnap.dynamics.flow.dense import DenseFlow, HeavyBallFlow
from scansnap.dynamics.flow.events import Event, EventTracker, event_times, states_within
from scansnap.dynamics.flow.integrators import N_STAGES, FloatArray, NonFinite, Span, dop853, radau, threads_for
from scansnap.dynamics.flow.state import FlowField, FlowRecorder, FlowState, check_memory
from scansnap.dynamics.settings import ModelConfig
from scansnap.dynamics.update import UPDATES, check_frozen
from scansnap.interrupt import DelayedInterrupt, Interrupted
from scansnap.progress import Progress, report_share
from scansnap.results.trajectory import identity
from scansnap.results.variables import FLOWING, USUAL

FIELDS = ("auto", "dense")


def flow(
    classes: SequenceClasses,
    eta_y: float = 1.0,
    eta_z: float = 0.02,
    t: ArrayLike | None = None,
    *,
    momentum: float = 0.0,
    norm: str = "l2",
    residual: str = "none",
    rtol: float = 1e-8,
    atol: float = 1e-12,
    z0: ArrayLike | None = None,
    y0: ArrayLike | None = None,
    weight_decay_y: float = 0.0,
    weight_decay_z: float = 0.0,
    update: str = "gradient",
    device: str = "auto",
    events: Sequence[Event] = (),
    variables: Sequence[str] = USUAL,
    field: str = "auto",
    progress: Progress | None = None,
) -> xr.Dataset:
    """Integrate the population flow from t = 0 and return it at the times ``t``.

    Parameters
    ----------
    classes
        The data distribution.
    eta_y, eta_z
        Learning rates of Y and Z. ``eta_z=0`` freezes attention, ``eta_y=0`` the decoder ``y0``.
    t
        Ascending times; default: 200 from 0.1 to 1e5, evenly in log t.
    momentum
        Heavy-ball momentum μ. The flow is then that of (1 − μ)θ̇ + ½(1 + μ)θ̈ = ηF from rest, which follows the expected
        steps also where η_Y/(K(1 − μ)²) is large. It takes about t(1 − μ)/3 steps of its own.
    norm, residual
        As in `scansnap.ModelConfig`; a registered norm too.
    rtol, atol
        Error per step of every entry of Y and Z, relative to the largest entry of its row, plus ``atol``. A row is a
        token's in Y, a query's in Z.
    z0
        Initial z by query (in the order of ``classes.queries``) and token, shape (Q, M); default 0.
    y0
        Initial Y by token and output, shape (M, M); default 0.
    weight_decay_y, weight_decay_z
        λ in Ẏ = η_Y(… − λ Y), ż = η_Z(… − λ z). Such flows are stiff: only small ones are possible, by implicit steps
        whose error is relative to each entry.
    update
        "gradient", or "modified": Ẏ = η_Y Σ p_n (f_n − F E′e_n)(e_n − α_n)ᵀ, the dynamics of the paper's proof
        (Eq. 26), for ``eta_z=0``.
    device
        cpu, cuda, or auto: CUDA where it is available and the problem is large.
    events
        Moments to locate: ``EntropyBelow(level, seq_class)``, ``FateFlip(query, token)``, or where a function of
        `scansnap.dynamics.flow.state.FlowState` crosses 0, given as it is or as
        ``Crossing(function, direction, terminal, name)``. ``event_t`` holds their times by event and occurrence, NaN
        for none.
    variables
        Any of attention, loss, entropy, z, z_rate, y, f, g, gap.
    field
        "dense" avoids the fast implementation for the l2 norm without residual (for comparison).
    progress
        Called after every step with (done, total), in thousandths of log t.

    Returns
    -------
    xarray.Dataset
        The variables along ``t``. ``attrs["stopped"]`` is "complete", "event: NAME" (a terminal one), "interrupted"
        or "non-finite"; if not complete, the last time is that of the end.

    Examples
    --------
    >>> from scansnap import SequenceClasses, flow
    >>> flow(SequenceClasses.syn_small(), eta_y=1.0, eta_z=0.02, t=[0, 10, 100]).loss.values.round(4)
    array([3.5264, 0.7304, 0.0437])
    """
    eta_z = check_float("eta_z", eta_z, least=0)
    eta_y = check_float("eta_y", eta_y, least=0) if y0 is not None and eta_z else check_float("eta_y", eta_y, above=0)
    momentum = check_float("momentum", momentum, least=0, below=1)
    decay = (check_float("weight_decay_y", weight_decay_y, least=0),
             check_float("weight_decay_z", weight_decay_z, least=0))  # fmt: skip
    times = checked_times(np.geomspace(0.1, 1e5, 200) if t is None else t)
    model = ModelConfig(norm=norm, residual=residual)
    rtol, atol = check_float("rtol", rtol, least=1e-13, most=0.1), check_float("atol", atol, above=0)
    names = (variables,) if isinstance(variables, str) else tuple(variables)
    for name in names:
        check_choice("variables", name, FLOWING)
    check_choice("field", field, FIELDS)
    check_frozen(eta_z, check_choice("update", update, UPDATES))
    classes.need_one_class_per_next_token("the flow")
    shape = (len(classes.queries), classes.vocab_size)
    z_start = np.zeros(shape) if z0 is None else _initial_table("z0", z0, shape, "(query, token)")
    y_start = None if y0 is None else _initial_y(y0, classes)
    trackers = [EventTracker(event, classes) for event in events]
    recorder = FlowRecorder(classes, names, times)
    stiff = any(decay)
    first_step = 0.01 / ((eta_y or eta_z) * classes.p_class.max())
    system: FlowField
    steps: Iterator[Span]
    if model != ModelConfig() or field == "dense" or y_start is not None or stiff or momentum or update != "gradient":
        dense, where, n_entries = _dense_field(
            classes, model, eta_y, eta_z, z_start, device, y_start, decay, update, momentum
        )
        system, steps = dense, (radau if stiff else dop853)(dense, times[-1], first_step, rtol, atol)
    else:
        system, where, n_entries = _compact_field(classes, eta_y, eta_z, z_start, device)
        steps = dop853(system, times[-1], first_step, rtol, atol)

    def report(step: Span) -> None:
        report_share(progress, float(np.log1p(step.end / first_step) / np.log1p(times[-1] / first_step)))

    with threads_for(n_entries), torch.inference_mode(), DelayedInterrupt() as interrupt:
        n_steps, stopped = _follow(system, steps, recorder, trackers, report, interrupt)
    settings = {"eta_y": eta_y, "eta_z": eta_z, "momentum": momentum, "norm": norm, "residual": residual,
                "rtol": rtol, "atol": atol, "method": "radau" if stiff else "dop853", "field": system.name,
                "device": str(where), "z0": "zero" if z0 is None else "given", "y0": "zero" if y0 is None else "given",
                "weight_decay_y": decay[0], "weight_decay_z": decay[1], "update": update, "n_steps": n_steps,
                "n_classes": classes.n_classes, "vocab_size": classes.vocab_size}  # fmt: skip
    dataset = recorder.dataset(settings | {"stopped": stopped, **identity(classes)})
    if trackers:
        labels = {"long_name": "time of the event", "units": ""}
        dataset["event_t"] = (("event", "occurrence"), event_times(trackers), labels)
        dataset = dataset.assign_coords(event=[str(tracker.crossing) for tracker in trackers])
    reached = f"at t = {recorder.recorded[-1]:g} of {times[-1]:g}"
    if stopped == "non-finite":
        warnings.warn(f"the flow became non-finite, or too steep for its rtol, {reached}", stacklevel=2)
    elif stopped == "interrupted":
        raise Interrupted(f"the flow was stopped {reached}", dataset)
    elif interrupt.requested:  # the caller may have more to do
        raise Interrupted("interrupted in the last step; the flow is complete", dataset)
    return dataset


def _compact_field(
    classes: SequenceClasses, eta_y: float, eta_z: float, z0: FloatArray, device: str
) -> tuple[CompactFlow, torch.device, int]:
    """The fast field, its device and the number of entries of its Y."""
    layout = PaddedLayout(classes)
    where = _pick_device(device, layout.n_entries)
    return CompactFlow(layout, eta_y, eta_z, z0, where), where, layout.n_entries


def _dense_field(
    classes: SequenceClasses,
    model: ModelConfig,
    eta_y: float,
    eta_z: float,
    z0: FloatArray,
    device: str,
    y0: FloatArray | None,
    decay: tuple[float, float],
    update: str,
    momentum: float,
) -> tuple[DenseFlow, torch.device, int]:
    """The dense field, for all settings, its device and the number of entries of Y."""
    n_entries = classes.vocab_size * (classes.n_classes + 1)
    size = 8 * (N_STAGES + 1) * (n_entries + z0.size) * (2 if momentum else 1)
    check_memory("the size of the flow", size, "fewer classes or tokens, or the l2 norm without residual")
    where = _pick_device(device, n_entries)
    settings = classes, model, eta_y, eta_z, z0, where, y0, decay, update
    system = HeavyBallFlow(momentum, *settings) if momentum else DenseFlow(*settings)
    system.check_start()
    return system, where, n_entries


def _pick_device(device: str, n_entries: int) -> torch.device:
    """The device; small problems are faster on the CPU."""
    return pick_device("cpu" if device == "auto" and n_entries < 2**20 else device)


def _follow(
    field: FlowField,
    steps: Iterator[Span],
    recorder: FlowRecorder,
    trackers: Sequence[EventTracker],
    report: Callable[[Span], None],
    interrupt: DelayedInterrupt,
) -> tuple[int, str]:
    """Record and track events step by step; returns the number of steps, and why the flow ended."""
    n_steps, start = 0, FlowState(0.0, field, np.zeros(0))
    ends = [tracker.start(start) for tracker in trackers]
    for _ in recorder.times_until(0.0):
        recorder.record(start)
    if 0.0 in ends:
        return n_steps, _end(recorder, start, trackers, ends)
    try:
        for step in steps:
            n_steps += 1
            states = states_within(step, field) if trackers else []
            ends = [tracker.locate(step, field, states) for tracker in trackers]
            end = min([step.end, *ends])
            for time in recorder.times_until(end):
                recorder.record(FlowState(time, field, step.weights(time)))
            if end in ends:
                return n_steps, _end(recorder, FlowState(end, field, step.weights(end)), trackers, ends)
            try:
                report(step)
            except KeyboardInterrupt:
                interrupt.requested = True
            if interrupt.requested and step.end < recorder.times[-1]:
                _close(recorder, FlowState(step.end, field, step.weights(step.end)))
                return n_steps, "interrupted"
    except NonFinite as error:
        if n_steps == 0:
            raise
        _close(recorder, FlowState(error.t, field, np.zeros(0)))
        return n_steps, "non-finite"
    return n_steps, "complete"


def _end(recorder: FlowRecorder, state: FlowState, trackers: Sequence[EventTracker], ends: Sequence[float]) -> str:
    """End the flow at the earliest terminal event and drop later events."""
    _close(recorder, state)
    for tracker in trackers:
        tracker.times = [time for time in tracker.times if time <= state.t]
    return f"event: {trackers[int(np.argmin(ends))].crossing}"


def _close(recorder: FlowRecorder, state: FlowState) -> None:
    """Record the last state, unless it is recorded already."""
    if not recorder.recorded or recorder.recorded[-1] < state.t:
        recorder.record(state)


def checked_times(t: ArrayLike) -> FloatArray:
    """Times as a strictly ascending float array from 0 on."""
    times = np.atleast_1d(numbers("t", t))
    if times.ndim != 1 or times.size == 0:
        raise InputError("t", f"an array of shape {times.shape}", "a list of at least one time")
    if not (np.isfinite(times) & (times >= 0)).all():
        raise InputError("t", float(times[~np.isfinite(times) | (times < 0)][0]), "finite times ≥ 0")
    if (np.diff(times) <= 0).any():
        i = int(np.flatnonzero(np.diff(times) <= 0)[0])
        raise InputError("t", f"{times[i]:g} followed by {times[i + 1]:g}", "strictly ascending times")
    return times


def _initial_table(name: str, values: ArrayLike, shape: tuple[int, int], dims: str) -> FloatArray:
    table = numbers(name, values)
    if table.shape != shape:
        raise InputError(name, f"shape {table.shape}", f"shape {shape} {dims}")
    if not np.isfinite(table).all():
        raise InputError(name, float(table[~np.isfinite(table)][0]), "finite numbers")
    return table


def _initial_y(y0: ArrayLike, classes: SequenceClasses) -> FloatArray:
    m = classes.vocab_size
    y = _initial_table("y0", y0, (m, m), "(token, output)")
    never = np.setdiff1d(np.arange(m), classes.next_token)
    if len(never) and (y[:, never] != y[:, never[:1]]).any():
        raise InputError("y0", "different columns", "equal columns for all outputs that are never a next token")
    return y

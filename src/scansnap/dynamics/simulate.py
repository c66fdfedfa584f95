"""``simulate``: what is trained, on what, and where the result goes; ``loop`` does the training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import torch
import xarray as xr

from scansnap.checks import InputError, check_choice, check_float
from scansnap.classes import SequenceClasses
from scansnap.classes.sampler import ClassSampler
from scansnap.dynamics.checkpoint import RunCheckpoint
from scansnap.dynamics.device import pick_device
from scansnap.dynamics.engines.autograd import LOSS, ModuleTrainer
from scansnap.dynamics.engines.hand_written import ENGINES
from scansnap.dynamics.engines.trainers import Trainer, YZTrainer
from scansnap.dynamics.fingerprint import describe_difference
from scansnap.dynamics.loop import Loop
from scansnap.dynamics.options import SimulateOptions
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.dynamics.settings import settings as merged
from scansnap.dynamics.state_view import RecordFn, Until
from scansnap.interrupt import DelayedInterrupt, Interrupted
from scansnap.progress import Progress
from scansnap.results.trajectory import load
from scansnap.runs import SHARED, Runs, grid, run_fields
from scansnap.sampling.sampler import Sampler
from scansnap.settings import settings_of
from scansnap.storage import check_writable, write_lock

_NONE_IS_DEFAULT = ("init", "variables", *run_fields())


def simulate(
    classes: SequenceClasses | Sampler,
    runs: Runs | None = None,
    *,
    settings: Settings | None = None,
    model: ModelConfig | None = None,
    record_fn: RecordFn | None = None,
    until: Until | None = None,
    module: torch.nn.Module | None = None,
    attention: Sequence[str] = (),
    device: str = "auto",
    engine: str = "auto",
    progress: Progress | None = None,
    save_to: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float = 30.0,
    **options: Unpack[SimulateOptions],
) -> xr.Dataset:
    """Train the YZ transformer by SGD (or another optimiser) on sequences drawn from ``classes``.

    Parameters
    ----------
    classes
        The data distribution; with ``module`` also any `scansnap.Sampler`.
    runs
        Rates and seeds of many runs, from `scansnap.grid`. For a single run pass ``eta_z`` and ``eta_y`` or
        ``ratio``, with ``seed``, instead.
    settings, model
        Options as objects; those in ``options`` come on top.
    record_fn
        Called with a StateView ``state`` at every recorded step; returns named arrays with the run first.
        ``state["z"]`` is any recordable variable, ``state.step`` and ``state.runs`` are its step and runs.
    until
        Called with the same; the simulation ends at the first recorded step at which it returns True.
    module
        A module that is trained in place of the YZ model, by autograd. It maps tokens (B, T), the query last, to
        logits. Recordable are ``batch_loss`` and the parameters by name.
    attention
        Parameters of the module that are trained with η_Z; all others are trained with η_Y. They start at the module's
        values, or as ``init`` says.
    device
        cpu, cuda or auto.
    engine
        auto, fused (compiled kernels) or general (PyTorch).
    progress
        Called with (done, total).
    save_to
        Path of the result, ``.zarr`` or ``.nc``. Until it is complete, checkpoints lie beside it.
    resume, overwrite
        Continue an unfinished run at ``save_to`` to the same numbers, or replace what exists there.
    checkpoint_seconds
        Time between two checkpoints.
    **options
        Fields of `scansnap.Runs`, `scansnap.Settings` and `scansnap.ModelConfig`; docs/settings.md
        lists them. ``context`` is T, and ``math.inf`` replaces counts by probabilities; then ``batch_size=None``
        replaces sampled classes by their expectation. ``optimizer={"y": …, "z": …}`` differs between the tables.

    Returns
    -------
    xarray.Dataset
        Dims run, step, seq_class, token, query. ``attrs["stopped"]`` is "complete", "non-finite" (every run),
        "event: NAME" (``until``) or "interrupted".

    Raises
    ------
    Interrupted
        After Ctrl-C; its ``partial`` is the Dataset until then (``attrs["complete"]`` is 0).

    Examples
    --------
    >>> classes = ss.SequenceClasses.syn_small()
    >>> data = ss.simulate(classes, ss.grid(eta_z=[0.1, 1.0], ratio=10), steps=20, record=[0, 20], device="cpu")
    >>> dict(data.loss.sizes), bool((data.loss[:, -1] < data.loss[:, 0]).all())
    ({'run': 2, 'step': 2}, True)
    """
    if not isinstance(classes, SequenceClasses) and (module is None or not isinstance(classes, Sampler)):
        unless = " (a sampler needs a module to train)" if isinstance(classes, Sampler) else ""
        raise InputError("classes", classes, f"a SequenceClasses object{unless}")
    explicit: dict[str, Any] = {name: value for name, value in options.items()
                                if value is not None or name not in _NONE_IS_DEFAULT}  # fmt: skip
    shared = {name: explicit.pop(name) for name in SHARED if name in explicit}
    runs = _runs(runs, {name: explicit.pop(name) for name in run_fields() if name in explicit}).filled(**shared)
    torch_device = pick_device(device)
    check_float("checkpoint_seconds", checkpoint_seconds, least=0)
    check_choice("engine", engine, ENGINES)
    trainer: Trainer
    if module is None:
        assert isinstance(classes, SequenceClasses)
        if attention:
            message = "it names parameters of a module; pass module= as well"
            raise InputError.conflict("attention", message, list(attention))
        plan = merged({**explicit, "settings": settings, "model": model})
        trainer = yz = YZTrainer(classes, runs, plan, torch_device, engine)
        if engine == "fused" and yz.engine.why_not_fused():
            raise InputError("engine", engine, f"auto or general here, since {yz.engine.why_not_fused()}")
        names = plan.variables
    else:
        _refuse_with_module({**explicit, "model": model, "engine": None if engine == "auto" else engine})
        names = explicit.pop("variables", (LOSS,))
        plan = replace(merged({**explicit, "settings": settings}), variables=())
        trainer = ModuleTrainer(module, _sampler(classes, plan), runs, plan, torch_device, attention=attention,
                                init=explicit.get("init"))  # fmt: skip
        names = (names,) if isinstance(names, str) else tuple(names)
        for name in names:
            check_choice("variables", name, trainer.dims)
    plan.refuse_idle_momentum(runs.momentum)
    loop = Loop(trainer, names, record_fn, until)

    if save_to is None:
        if resume:
            raise InputError("resume", True, "given together with save_to")
        with DelayedInterrupt() as interrupt:
            loop.run(interrupt, progress)
        data = loop.dataset()
    else:
        checkpoint = RunCheckpoint(_place(Path(save_to)), loop.fingerprint)
        with write_lock("save_to", Path(save_to)):
            finished = _prepare(Path(save_to), checkpoint, resume=resume, overwrite=overwrite)
            if finished is not None:
                return finished
            if resume and checkpoint.exists():
                loop.resume(checkpoint)
            with DelayedInterrupt() as interrupt:
                loop.run(interrupt, progress, checkpoint, checkpoint_seconds)
                data = loop.dataset()
                if loop.complete:
                    loop.save(data, Path(save_to), checkpoint, overwrite)
    if not loop.complete:
        hint = f"; continue with resume=True and the same save_to ({save_to})" if save_to else ""
        raise Interrupted(f"stopped after {loop.state.step} of {plan.steps} steps{hint}", data)
    if interrupt.requested:  # the caller may have more to do
        raise Interrupted("interrupted in the last steps; the run is complete", data)
    return data


def _refuse_with_module(options: dict[str, Any]) -> None:
    of_model = (name for name in settings_of(ModelConfig) if name != "init")
    for name in ("model", "engine", "sampling", "update", *of_model):
        if options.get(name) is not None:
            raise InputError.conflict(name, "it has no effect on a module; leave it out", options[name])


def _sampler(data: SequenceClasses | Sampler, plan: Settings) -> Sampler:
    """What a module is trained on."""
    if plan.batch_size is None:
        raise InputError("batch_size", None, "an integer, as a module is trained on sampled sequences")
    if not isinstance(data, SequenceClasses):
        return data
    if math.isinf(plan.context):
        raise InputError("context", plan.context, "a finite length, as a module is trained on sampled sequences")
    return ClassSampler(data, int(plan.context))


def _runs(runs: Runs | None, fields: dict[str, Any]) -> Runs:
    if runs is None:
        return grid(**fields)
    if not isinstance(runs, Runs):
        raise InputError("runs", runs, "what scansnap.grid returns")
    if fields:
        name, value = next(iter(fields.items()))
        raise InputError.conflict(name, "runs= has it already; pass it to grid instead", value)
    return runs


def _place(target: Path) -> Path:
    """Refuse, before the work, a path where the result or its checkpoints could not be written."""
    if target.suffix not in (".zarr", ".nc"):
        raise InputError("save_to", str(target), "a name ending in .zarr or .nc")
    check_writable("save_to", target, folder=target.suffix == ".zarr")
    check_writable("save_to", RunCheckpoint(target, "").folder, folder=True)
    return target


def _prepare(target: Path, checkpoint: RunCheckpoint, *, resume: bool, overwrite: bool) -> xr.Dataset | None:
    """Make way for a result at ``target``, or return it if this very run is finished there already."""
    if target.exists():
        allowed = "a path that does not exist yet (or say overwrite or resume)"
        if resume:
            finished = load(target)
            there = str(finished.attrs.get("fingerprint"))
            if there == checkpoint.fingerprint:
                if checkpoint.is_same_run():  # the process ended between saving and tidying up
                    checkpoint.discard()
                return finished
            finished.close()
            different = describe_difference(there, checkpoint.fingerprint)
            allowed = f"one with the same classes, runs and settings ({different}; overwrite makes it again)"
        if not overwrite:
            raise InputError("save_to", str(target), allowed)
    if checkpoint.exists() and not resume:
        if not overwrite:
            allowed = "free of an unfinished run (resume continues it, overwrite starts again)"
            raise InputError("save_to", str(checkpoint.folder), allowed)
        checkpoint.discard()
    return None

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
from scansnap.dynamics.checkpoint import Checkpoint
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
from scansnap.storage import claimed, writable

_OPEN = ("init", "variables", *run_fields())  # None is as if left out


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

    Give either ``runs`` (see :func:`scansnap.grid`) or the rates of a single run: ``eta_z`` and ``eta_y`` or
    ``ratio``, with ``seed``. The options are the fields of :class:`scansnap.Runs`, :class:`scansnap.Settings` and
    :class:`scansnap.ModelConfig` (docs/settings.md lists them). The last two may be objects, with options on top.
    Optimisers are explained at :class:`scansnap.Optimizer`; ``optimizer={"y": …, "z": …}`` treats the tables apart.

    ``context`` is T; ``math.inf`` replaces counts by probabilities, and with ``batch_size=None`` classes by their
    expectation. ``record`` lists steps, or says ``all``, ``linear:N`` or ``log:N``. ``engine`` "general" keeps
    away from the fused kernels.

    ``record_fn(seen)`` is called at every recorded step and returns named arrays with the run first; ``until(seen)``
    ends the simulation at the first recorded step at which it is true. ``seen["z"]`` is any recordable variable,
    ``seen.step`` and ``seen.runs`` say when and of what.

    ``module`` is trained in place of the YZ model, by autograd: it maps tokens (B, T), the query last, to logits. The
    parameters that ``attention`` names are trained with η_Z, all others with η_Y. They begin at the module's own
    values, or as ``init`` says. The data may then be any :class:`scansnap.Sampler`; recordable are ``batch_loss`` and
    the parameters by name.

    Returns a Dataset with dims run, step, seq_class, token, query; ``attrs["stopped"]`` says why it ended: complete,
    non-finite (every run), event: … (``until``) or interrupted. Ctrl-C raises :class:`scansnap.Interrupted`,
    whose ``partial`` is the Dataset until then (``attrs["complete"]`` is 0). With ``save_to`` the result is written
    there when it is complete; until then checkpoints lie beside it, and ``resume=True`` continues from them to the
    same numbers.
    """
    if not isinstance(classes, SequenceClasses) and (module is None or not isinstance(classes, Sampler)):
        unless = " (a sampler needs a module to train)" if isinstance(classes, Sampler) else ""
        raise InputError("classes", classes, f"a SequenceClasses object{unless}")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None or name not in _OPEN}
    shared = {name: given.pop(name) for name in SHARED if name in given}
    runs = _runs(runs, {name: given.pop(name) for name in run_fields() if name in given}).filled(**shared)
    place = pick_device(device)
    check_float("checkpoint_seconds", checkpoint_seconds, least=0)
    check_choice("engine", engine, ENGINES)
    trainer: Trainer
    if module is None:
        assert isinstance(classes, SequenceClasses)
        if attention:
            raise InputError("attention", list(attention), "left out without a module")
        plan = merged({**given, "settings": settings, "model": model})
        trainer = yz = YZTrainer(classes, runs, plan, place, engine)
        if engine == "fused" and yz.engine.why_not_fused():
            raise InputError("engine", engine, f"auto or general here, since {yz.engine.why_not_fused()}")
        names = plan.variables
    else:
        _refuse_with_module({**given, "model": model, "engine": None if engine == "auto" else engine})
        names = given.pop("variables", (LOSS,))
        plan = replace(merged({**given, "settings": settings}), variables=())
        trainer = ModuleTrainer(module, _sampler(classes, plan), runs, plan, place, attention=attention,
                                init=given.get("init"))  # fmt: skip
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
        checkpoint = Checkpoint(_place(Path(save_to)), loop.fingerprint)
        with claimed("save_to", Path(save_to)):
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
        kept = f"; continue with resume=True and the same save_to ({save_to})" if save_to else ""
        raise Interrupted(f"stopped after {loop.state.step} of {plan.steps} steps{kept}", data)
    if interrupt.requested:  # the caller may have more to do
        raise Interrupted("interrupted in the last steps; the run is complete", data)
    return data


def _refuse_with_module(given: dict[str, Any]) -> None:
    for name in ("model", "engine", "sampling", *(name for name in settings_of(ModelConfig) if name != "init")):
        if given.get(name) is not None:
            raise InputError(name, given[name], "left out with a module")


def _sampler(data: SequenceClasses | Sampler, plan: Settings) -> Sampler:
    """What a module is trained on."""
    if plan.batch_size is None:
        raise InputError("batch_size", None, "a whole number: a module is trained on sampled sequences")
    if not isinstance(data, SequenceClasses):
        return data
    if math.isinf(plan.context):
        raise InputError("context", plan.context, "finite: a module is trained on sampled sequences")
    return ClassSampler(data, int(plan.context))


def _runs(runs: Runs | None, given: dict[str, Any]) -> Runs:
    if runs is None:
        return grid(**given)
    if not isinstance(runs, Runs):
        raise InputError("runs", runs, "what scansnap.grid returns")
    if given:
        name, value = next(iter(given.items()))
        raise InputError(name, value, "left out here, since runs are given")
    return runs


def _place(target: Path) -> Path:
    """Refused before the work, and nothing made on the way, where result or checkpoints could not be written."""
    if target.suffix not in (".zarr", ".nc"):
        raise InputError("save_to", str(target), "a name ending in .zarr or .nc")
    writable("save_to", target, folder=target.suffix == ".zarr")
    writable("save_to", Checkpoint(target, "").folder, folder=True)
    return target


def _prepare(target: Path, checkpoint: Checkpoint, *, resume: bool, overwrite: bool) -> xr.Dataset | None:
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

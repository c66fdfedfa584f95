"""Ready-made loggers: functions that get the flat dict of every measurement, as ``on_measure`` does.

Weights & Biases and Trackio log to the run that is active in this process; the probe starts none, since a start may ask
for a password. TensorBoard gets event files of the probe's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from weakref import WeakSet

from scansnap.checks import InputError, check_choice
from scansnap.checks.extras import installed
from scansnap.probe.loggers.scalars import STEP
from scansnap.storage import WriteError
from scansnap.text.tensorboard import EventWriter, check_event_folder

Values = Mapping[str, float]
Logger = Callable[[Values], Any]
SUFFIX = ".scansnap-probe"  # of the event files, which a later export replaces
FOLDER = "runs/probe"
LOGGERS = ("wandb", "trackio", "tensorboard")
_has_axis: WeakSet[Any] = WeakSet()  # runs of Weights & Biases that know the axis of our charts


def check_loggers(log: Any) -> dict[str, Logger]:
    """The loggers of ``log=``, by name: a name, ``tensorboard:FOLDER``, or a list of them."""
    names = [log] if isinstance(log, str) else [] if log is None else log
    if not isinstance(names, Iterable):
        raise InputError("log", log, "one of " + ", ".join(LOGGERS) + ", or a list of them")
    loggers = {}
    for text in names:
        name, _, folder = text.partition(":") if isinstance(text, str) else (text, "", "")
        if folder and name != "tensorboard":
            raise InputError("log", text, "one of " + ", ".join(LOGGERS) + "; only tensorboard has a folder")
        loggers[name] = make_logger(check_choice("log", name, LOGGERS), folder or FOLDER)
    return loggers


def make_logger(name: str, folder: str | PathLike[str] = FOLDER) -> Logger:
    """One of ``LOGGERS``; refused without its package."""
    if name == "tensorboard":
        return TensorBoard(check_event_folder(Path(fspath(folder)), "log"))
    if not installed(name):
        raise InputError("log", name, "the name of an installed package", f"pip install {name}")
    return log_to_wandb if name == "wandb" else log_to_trackio


def log_to_wandb(values: Values) -> None:
    """Log to the active run, in the row of the training step unless the run is already past it."""
    import wandb

    run = wandb.run
    if run is None:
        raise RuntimeError("no run is active; call wandb.init() before the first measurement")
    if run not in _has_axis:
        _has_axis.add(run)
        run.define_metric(STEP, hidden=True)
        for pattern in ("attention/*", "probe/*"):
            run.define_metric(pattern, step_metric=STEP)
    step = int(values[STEP])
    run.log(dict(values), step=step if run.step <= step else None)


def log_to_trackio(values: Values) -> None:
    """Log to the active run."""
    import trackio

    trackio.log(dict(values), step=int(values[STEP]))


class TensorBoard:
    """Writes event files; a training that is resumed hides the steps that it repeats."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: EventWriter | None = None

    def __call__(self, values: Values) -> None:
        step = int(values[STEP])
        if self.writer is None:
            self.writer = EventWriter(self.folder, SUFFIX, step)
        self.writer.add(step, dict(values))
        self.writer.flush()


def export(history: Iterable[Values], folder: str | PathLike[str]) -> Path:
    """Write all measurements as event files, in place of those of an earlier export."""
    if not isinstance(folder, str | PathLike) or not fspath(folder):
        raise InputError("tensorboard", folder, "the path of a folder")
    place = check_event_folder(Path(fspath(folder)))
    earlier = list(place.glob(f"events.out.tfevents.*{SUFFIX}")) if place.is_dir() else []
    try:
        writer = EventWriter(place, SUFFIX)
        for values in history:
            writer.add(int(values[STEP]), dict(values))
        writer.close()
        for file in earlier:
            file.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror if isinstance(error, WriteError) else str(error)
        raise InputError("tensorboard", str(place), "a writable folder", str(reason)) from None
    return place


def alert_in_trackio(title: str, text: str) -> None:
    """An alert in the active run of Trackio, if it is in use."""
    trackio: Any = sys.modules.get("trackio")
    if trackio is not None and hasattr(trackio, "alert") and trackio.context_vars.current_run.get() is not None:
        trackio.alert(title=title, text=text)


__all__ = ["LOGGERS", "alert_in_trackio", "check_loggers", "export", "make_logger"]

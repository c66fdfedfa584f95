"""A view of the state during training: recordable variables on demand, for functions of the user."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scansnap.checks import InputError
from scansnap.dynamics.checkpoint import Records
from scansnap.dynamics.state import State

if TYPE_CHECKING:
    from scansnap.dynamics.engines.trainers import Trainer


class StateView(Mapping[str, np.ndarray]):
    """The state after ``step`` updates: a mapping from names to recordable variables, computed on access.

    Arrays have the run first; ``runs`` has the rates and seeds. For the YZ model the names are those of ``variables``;
    for a module ``batch_loss`` and the names of its parameters. ``tables`` are the trained tensors, in the rows and
    columns of the engine (`scansnap.dynamics.engines.layout`); do not change them.
    """

    def __init__(self, trainer: Trainer, state: State) -> None:
        self._trainer, self._state = trainer, state
        self._variables: Records = {}
        self.step, self.runs, self.tables = state.step, trainer.runs, state.tables

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._trainer.dims:
            raise InputError("the variable", name, "one of " + ", ".join(self))
        if name not in self._variables:
            self.make((name,))
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trainer.dims)

    def __contains__(self, name: object) -> bool:
        return name in self._trainer.dims

    def __len__(self) -> int:
        return len(self._trainer.dims)

    def make(self, names: tuple[str, ...]) -> Records:
        """Several variables, which share work."""
        missing = tuple(name for name in names if name not in self._variables)
        self._variables |= self._trainer.measure(self._state, missing) if missing else {}
        return {name: self._variables[name] for name in names}


Dims = dict[str, tuple[str, ...]]
RecordFn = Callable[[StateView], Mapping[str, Any]]
Until = Callable[[StateView], Any]


def call_record_fn(record_fn: RecordFn, view: StateView) -> tuple[Records, Dims]:
    """The result of a user's function: arrays with the run first, and their dimensions after it.

    It returns ``{name: array}`` or ``{name: (dims, array)}``, dims naming what comes after the run.
    """
    result = record_fn(view)
    if not isinstance(result, Mapping):
        raise InputError("what record_fn returns", result, "a dict of named arrays")
    records, dims = {}, {}
    for name, value in result.items():
        if not isinstance(name, str) or not name or name in view or name in _TAKEN:
            raise InputError("a name from record_fn", name, "a new name: not one of " + ", ".join([*view, *_TAKEN]))
        named, array = value if isinstance(value, tuple) else (None, value)
        array = np.asarray(getattr(array, "detach", lambda array=array: array)())
        if array.dtype.kind not in "fiub" or array.shape[:1] != (len(view.runs),):
            what = f"{array.dtype} of shape {array.shape}"
            raise InputError(f"{name} from record_fn", what, f"numbers with the {len(view.runs)} runs first")
        names = tuple(f"{name}_{i}" for i in range(array.ndim - 1)) if named is None else tuple(named)
        if len(names) != array.ndim - 1 or {"run", "step"} & set(names):
            raise InputError(f"the dims of {name} from record_fn", names, f"{array.ndim - 1} names, run left out")
        records[name], dims[name] = array, names
    return records, dims


_TAKEN = ("run", "step", "seq_class", "token", "query", "head", "output", "seed", "status", "failed_step", "eta_y",
          "eta_z")  # fmt: skip


def describe_function(function: Any) -> str:
    """A name and a digest of the source, where there is one, so that a changed function is another run."""
    written = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    try:
        text = inspect.getsource(written)
    except (OSError, TypeError):
        text = ""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name} {hashlib.sha256(text.encode()).hexdigest()[:16]}" if text else name

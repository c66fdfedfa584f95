"""Looking at a state while it trains: recordable variables on demand, and a user's own functions of them."""

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
    from scansnap.dynamics.engines.trained import Trained


class Seen(Mapping[str, np.ndarray]):
    """The state after ``step`` updates: any recordable variable by its name, made when it is asked for.

    Arrays have the run first; ``runs`` are the rates and seeds they belong to. For the YZ model the names are those of
    ``variables``; for a module ``batch_loss`` and the names of its parameters. ``tables`` are the tensors that are
    trained, in the rows and columns that the engine keeps (:mod:`scansnap.dynamics.engines.layout`); not to be changed.
    """

    def __init__(self, trained: Trained, state: State) -> None:
        self._trained, self._state = trained, state
        self._made: Records = {}
        self.step, self.runs, self.tables = state.step, trained.runs, state.tables

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._trained.dims:
            raise InputError("the variable", name, "one of " + ", ".join(self))
        if name not in self._made:
            self.make((name,))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trained.dims)

    def __contains__(self, name: object) -> bool:
        return name in self._trained.dims

    def __len__(self) -> int:
        return len(self._trained.dims)

    def make(self, names: tuple[str, ...]) -> Records:
        """Several at once, which share work."""
        missing = tuple(name for name in names if name not in self._made)
        self._made |= self._trained.observe(self._state, missing) if missing else {}
        return {name: self._made[name] for name in names}


Dims = dict[str, tuple[str, ...]]
RecordFn = Callable[[Seen], Mapping[str, Any]]
Until = Callable[[Seen], Any]


def own_records(record_fn: RecordFn, seen: Seen) -> tuple[Records, Dims]:
    """What a user's function says of a state: arrays with the run first, and their dimensions after it.

    It returns ``{name: array}`` or ``{name: (dims, array)}``, dims naming what comes after the run.
    """
    given = record_fn(seen)
    if not isinstance(given, Mapping):
        raise InputError("what record_fn returns", given, "a dict of named arrays")
    records, dims = {}, {}
    for name, value in given.items():
        if not isinstance(name, str) or not name or name in seen or name in _TAKEN:
            raise InputError("a name from record_fn", name, "a new name: not one of " + ", ".join([*seen, *_TAKEN]))
        named, array = value if isinstance(value, tuple) else (None, value)
        array = np.asarray(getattr(array, "detach", lambda array=array: array)())
        if array.dtype.kind not in "fiub" or array.shape[:1] != (len(seen.runs),):
            what = f"{array.dtype} of shape {array.shape}"
            raise InputError(f"{name} from record_fn", what, f"numbers with the {len(seen.runs)} runs first")
        names = tuple(f"{name}_{i}" for i in range(array.ndim - 1)) if named is None else tuple(named)
        if len(names) != array.ndim - 1 or {"run", "step"} & set(names):
            raise InputError(f"the dims of {name} from record_fn", names, f"{array.ndim - 1} names, run left out")
        records[name], dims[name] = array, names
    return records, dims


_TAKEN = (
    "run",
    "step",
    "seq_class",
    "token",
    "query",
    "head",
    "output",
    "seed",
    "status",
    "failed_step",
    "eta_y",
    "eta_z",
)


def source_of(function: Any) -> str:
    """A name and a digest of the source, where there is one, so that a changed function is another run."""
    written = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    try:
        text = inspect.getsource(written)
    except (OSError, TypeError):
        text = ""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name} {hashlib.sha256(text.encode()).hexdigest()[:16]}" if text else name

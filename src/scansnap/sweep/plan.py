"""Into which groups a sweep falls: slices of the runs of one class set, as large as memory allows.

A group is what is simulated at once, what one task of a cluster does, and what one chunk of the store holds. It
is never a single run unless nothing more fits. The plan follows from the sweep file, the memory limit and whether
there is a GPU, but not from the machine: every machine makes the same chunks. It is kept in the store.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from scansnap.checks import InputError
from scansnap.sweep.config import Sweep
from scansnap.sweep.memory import Cost, cost
from scansnap.sweep.schema import Schema, schema

DEFAULT_MEMORY = "4GB"
# On two cores, by a rough guess that is the same everywhere: little is lost with a group, and there are enough of them
# for all workers. A GPU is some six times faster.
GROUP_SECONDS = {"cpu": 2.5, "cuda": 15.0}
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True)
class Group:
    """Runs start … stop − 1 of one class set; ``chunk`` counts the groups of that set."""

    class_set: int
    chunk: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"runs {self.start} to {self.stop - 1} of class set {self.class_set}"


@dataclass(frozen=True)
class Plan:
    """How many runs a group of each class set has; only a set's last group may be smaller."""

    memory: int  # most bytes of a group
    device: str
    n_runs: int  # of each class set
    sizes: tuple[int, ...]  # runs in a group, by class set

    def __len__(self) -> int:
        return sum(-(-self.n_runs // size) for size in self.sizes)

    def groups(self, class_set: int | None = None) -> list[Group]:
        """The groups of a class set, or of all of them in their order."""
        sets = range(len(self.sizes)) if class_set is None else [class_set]
        return [Group(s, chunk, start, min(start + self.sizes[s], self.n_runs))
                for s in sets for chunk, start in enumerate(range(0, self.n_runs, self.sizes[s]))]  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        table: dict[str, Any] = json.loads(text)
        return cls(**(table | {"sizes": tuple(table["sizes"])}))


@dataclass(frozen=True)
class Layouts:
    """What the planning found out about each class set."""

    schemas: tuple[Schema, ...]
    costs: tuple[Cost, ...]


def look(sweep: Sweep, device: str, memory: int) -> Layouts:
    """Schema and cost of every class set; refuses what the measures refuse, and runs too large to look at one."""
    for s, one in enumerate(sweep.class_sets):
        _check_room(cost(sweep, one, None, device), s, memory)
    schemas = tuple(schema(sweep, one) for one in sweep.class_sets)
    costs = tuple(cost(sweep, one, s, device) for one, s in zip(sweep.class_sets, schemas, strict=True))
    return Layouts(schemas, costs)


def make_plan(sweep: Sweep, layouts: Layouts, memory: int, device: str) -> Plan:
    """The largest groups within ``memory`` bytes, evened out so that a set's groups are nearly alike."""
    n_runs, sizes = len(sweep.axes), []
    for s, one in enumerate(layouts.costs):
        _check_room(one, s, memory)
        most = min(one.most_runs(memory, GROUP_SECONDS[device]), n_runs, sweep.most_runs or n_runs)
        n_groups = -(-n_runs // most)
        sizes.append(-(-n_runs // n_groups))
    return Plan(memory, device, n_runs, tuple(sizes))


def _check_room(one: Cost, s: int, memory: int) -> None:
    if one.bytes(1) > memory:
        needs = f"at least {in_words(one.bytes(1))}, which one run of class set {s} takes (or record less)"
        raise InputError("--memory", in_words(memory), needs)


def parse_memory(text: str) -> int:
    """``4GB``, ``500 MB``, ``2GiB`` or a number of bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?\s*", text.upper(), re.ASCII)
    size = float(found.group(1)) * _UNITS[found.group(2)] if found else 0.0
    if not 0 < size < 2**63:
        raise InputError("--memory", text, "a size such as 500MB or 4GB")
    return int(size)


def in_words(n_bytes: float) -> str:
    """4.2 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"

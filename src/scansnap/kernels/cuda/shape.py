"""What the kernels of whole runs are compiled for, and their tables: a layout's slots in the order of the kernel."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch

from scansnap.kernels.cpu.fused import IndexTables
from scansnap.sampling.counts import SamplingTable

MOST_COLUMNS = 1024  # of Y: a lane's share of them, times the samples of a tile, stays in registers
MOST_SLOTS = 256
COUNTS = {torch.uint8: "u8", torch.uint16: "u16", torch.float32: "float"}
_HELD = 120  # floats of a gradient that a lane holds
_WARPS = 12  # of a multiprocessor: each has 168 registers then, and the tables and tiles here are cut for them


class SlotTables(IndexTables, Protocol):
    """Index tables with what initial values and draws need beside."""

    @property
    def columns(self) -> np.ndarray: ...  # (J,)
    @property
    def table(self) -> SamplingTable: ...


class Shape(NamedTuple):
    """What lanes/runs.cu is compiled for."""

    slots: int
    columns: int
    lumped: bool
    groups: int
    held: bool
    late: bool
    warps: int
    tile: int
    small: int
    shared_chunk: int
    y_shared: bool
    v_shared: bool
    blocks: int

    def options(self, count: torch.dtype) -> tuple[str, ...]:
        """Definitions for the compiler."""
        macros = {"SLOTS": self.slots, "COLUMNS": self.columns, "LUMPED": int(self.lumped), "GROUPS": self.groups,
                 "HELD": int(self.held), "LATE": int(self.late), "WARPS": self.warps, "TILE": self.tile,
                 "SMALL": self.small, "SHARED_CHUNK": self.shared_chunk,
                 "Y_SHARED": int(self.y_shared), "V_SHARED": int(self.v_shared), "BLOCKS": self.blocks,
                 "COUNT": COUNTS[count]}  # fmt: skip
        return tuple(f"-D{name}={value}" for name, value in macros.items())

    @property
    def pitch(self) -> int:
        """Columns of a row of Y in the kernel's memory."""
        return -(-self.columns // 4) * 4

    def shared_bytes(self, classes: int, rows: int, entries: int) -> int:
        """Shared memory of a block; the same sum is in lanes/runs.cu."""
        tables = -(-rows * self.pitch * (self.y_shared + self.v_shared) // 4) * 4
        wide = self.groups * self.tile
        wide = -(-wide // 4) * 4
        of_warp = self.slots * (wide + (5 if self.held else 9) + 2) + 2 * wide
        tables += -(-self.shared_chunk * self.pitch // 4) * 4 if self.late else 0
        scratch = self.warps * of_warp + 2 * entries + classes * (self.slots + 1)
        return 4 * (tables + scratch + classes * self.slots + 2 * (2 * classes + 1) + 1)


class Strips(NamedTuple):
    """What strips/runs.cu is compiled for."""

    slots: int
    own: int
    columns: int
    warps: int
    v_shared: bool
    held: bool
    tiles: int
    group: int
    blocks: int
    y_shared: bool = True

    @property
    def strips(self) -> int:
        """Of 16 columns."""
        return -(-self.columns // (16 * self.group)) * self.group

    @property
    def pitch(self) -> int:
        return 16 * self.strips + 4

    def options(self, count: torch.dtype) -> tuple[str, ...]:
        macros = {"SLOTS": self.slots, "OWN": self.own, "COLUMNS": self.columns,
                 "STRIPS": self.strips, "WARPS": self.warps, "V_SHARED": int(self.v_shared), "HELD": int(self.held),
                 "TILES": self.tiles, "GROUP": self.group, "BLOCKS": self.blocks, "COUNT": COUNTS[count]}  # fmt: skip
        return ("--ftz=true", *(f"-D{name}={value}" for name, value in macros.items()))

    def shared_bytes(self, classes: int, rows: int, entries: int) -> int:
        """Shared memory of a block; the same sum is in strips/runs.cu."""
        places = -(-self.slots // 8) * 8
        tables = self.pitch * (rows * (1 + self.v_shared) + self.slots - self.own)
        of_classes = classes * (2 * places + self.slots + 2) + 2 * (2 * classes + 1)
        return 4 * (tables + self.warps * places + of_classes + 2 * entries)


def choose_strips(layout: SlotTables, index: dict[str, np.ndarray], shared_bytes: int) -> Strips | None:
    """A shape for tensor cores, or None: classes of one shape on the same common rows, every output its own column."""
    (classes, slots), columns = layout.slots.shape, len(layout.multiplicity)
    own = int(index["n_own"][0])
    alike = (layout.n_slots == slots).all() and (index["n_own"] == own).all() and _same_shared(index)
    if not alike or slots > 32 or columns > 240 or classes > 31 or (layout.multiplicity != 1).any():
        return None
    n = -(-columns // 16)
    held = n <= 8
    tiles = 2 if n <= 3 else 1
    together = 8 if 5 < n <= 8 else _WARPS  # warps of a multiprocessor: a held gradient needs their registers
    warps = min(1 if n <= 3 else 3 if n <= 5 else together, classes)
    for v_shared in (True, False):
        shape = Strips(slots, own, columns, warps, v_shared, held, tiles, 1 if held else 5, 1)
        needed = shape.shared_bytes(classes, len(layout.rows), len(index["z_at"])) + 1024  # a block's own
        if needed <= shared_bytes + 1024:
            return shape._replace(blocks=max(1, min(together // warps, (shared_bytes + 1024) // needed)))
    return None


def choose(layout: SlotTables, index: dict[str, np.ndarray], shared_bytes: int) -> Shape:
    """The velocity in shared memory if it fits beside Y, and as many warps as there is work for."""
    slots, columns = layout.slots.shape[1], len(layout.multiplicity)
    lumped = bool((layout.multiplicity != 1).any())
    groups = _groups(columns, slots)
    own = -(-columns // (32 // groups))
    held = own * slots <= _HELD
    tile = max(1, min(8, 64 // own)) if held and groups == 1 else max(1, min(4, 32 // own))
    tile = 1 << (tile.bit_length() - 1)
    most_shared = int((layout.n_slots - index["n_own"]).max())
    chunk = max(1, min(most_shared, 80 // own, 16))
    late = not held and most_shared <= chunk and _same_shared(index)
    warps = 1 if columns <= 64 else min(6 if columns <= 100 else _WARPS, len(layout.slots))
    shape = Shape(slots, columns, lumped, groups, held, late, warps, tile, min(tile, 4), chunk, True, True, 1)
    for v_shared, most in ((True, warps), (False, warps), (False, 4)):  # a warp needs room for its samples
        shape = shape._replace(v_shared=v_shared, warps=min(warps, most))
        needed = shape.shared_bytes(len(layout.slots), len(layout.rows), len(index["z_at"]))
        if needed <= shared_bytes:
            return shape._replace(blocks=max(1, min(_WARPS // warps, shared_bytes // needed)))
    return shape


def _same_shared(index: dict[str, np.ndarray]) -> bool:
    """Whether all classes share the same rows, in the same places."""
    rows = [row[own:n] for row, own, n in zip(index["row"], index["n_own"], index["n_slots"], strict=True)]
    return all(np.array_equal(row, index["shared_rows"]) for row in rows)


def _groups(columns: int, slots: int) -> int:
    """Groups of lanes in a warp: several leave fewer places empty, as long as a class's gradient stays in registers."""
    own = {groups: -(-columns // (32 // groups)) for groups in (1, 2, 4)}
    held = [g for g in own if g == 1 or own[g] * -(-slots // g) * g <= _HELD]
    return min(held, key=lambda g: (own[g] * (32 // g), g))


def index_of(layout: SlotTables) -> dict[str, np.ndarray]:
    """Whole numbers by the names of ``Job``; ``order`` is the slot at each place."""
    k, s = layout.slots.shape
    real = np.arange(s) < layout.n_slots[:, None]
    readers = np.zeros(len(layout.rows), dtype=np.int64)
    np.add.at(readers, layout.slot_row[real], 1)  # a class has a token once
    own = real & (readers[layout.slot_row] == 1)
    order = np.argsort(np.where(own, 0, np.where(real, 1, 2)), axis=1, kind="stable")  # (K, S) slot at each place
    slots, real = np.take_along_axis(layout.slots, order, 1), np.take_along_axis(real, order, 1)
    entry = layout.class_query[:, None] * layout.vocab_size + slots
    entries, slot_z = np.unique(entry[real], return_inverse=True)
    by_slot = np.zeros((k, s), dtype=np.int64)
    by_slot[real] = slot_z
    at = np.flatnonzero(real.ravel())  # class · S + slot
    listed = at[np.argsort(slot_z, kind="stable")]
    first = np.append(0, np.cumsum(np.bincount(slot_z, minlength=len(entries))))
    number = np.full(len(layout.queries) * layout.vocab_size, -1)
    number[entries] = np.arange(len(entries))
    return {
        "n_slots": layout.n_slots, "n_own": own.sum(1), "order": order,
        "row": np.take_along_axis(layout.slot_row, order, 1), "slot_z": by_slot, "target": layout.target,
        "shared_rows": np.flatnonzero(readers != 1), "z_first": first, "z_list": listed, "z_at": entries,
        "row_token": layout.rows, "column_token": np.maximum(layout.columns, 0), "queries": layout.queries,
        "entry": number,
    }  # fmt: skip


def real_of(layout: SlotTables, expected: np.ndarray) -> dict[str, np.ndarray]:
    m = layout.multiplicity
    arrays = {"multiplicity": m, "inverse_multiplicity": 1 / m, "log2_multiplicity": np.log2(m), "expected": expected,
             "p_class": layout.table.p_class}  # fmt: skip
    return {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in arrays.items()}

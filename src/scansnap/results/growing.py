"""A Dataset that grows along one dimension, stored as pieces. It stays valid if its writer is killed.

::

    probe.zarr/
      index           which of the other pieces count, in which order, with their digests; replaced last, in one step
      template.0      dimensions, attributes and types of all variables, and those that do not grow
      rows/000012.0   the values of all growing variables at one index along the dimension
      samples/…       large arrays, of which variables show the first and the last

Each is a piece of a `WorkCache`. A piece that the index names is never written to: what takes its place has
another number after the point. So a reader finds what the index says or an error, and never a mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from scansnap.storage.checksums import CheckedFiles, Damaged
from scansnap.storage.work_cache import Piece, WorkCache

INDEX = "index"
FIRST, LAST = "first", "last"  # samples that variables may show
_FOLDERS = ("rows", "samples")

T = TypeVar("T")
Entry = tuple[str, str]  # name and digest of a piece


@dataclass(frozen=True)
class Index:
    """The content of the index: the pieces that make up the Dataset."""

    dim: str
    attrs: dict[str, Any]  # of the Dataset
    template: Entry
    rows: tuple[tuple[int, Entry], ...]  # with the coordinate along the dimension
    samples: dict[int, Entry]  # by row
    more: dict[str, Any]  # what the writer needs to continue

    def entries(self) -> dict[str, str]:
        """Return the digests of all pieces in the index, by name."""
        return dict([self.template, *(entry for _, entry in self.rows), *self.samples.values()])

    def to_values(self) -> dict[str, Any]:
        return {"dim": self.dim, "attrs": self.attrs, "template": self.template,
                "rows": [[place, *entry] for place, entry in self.rows],
                "samples": [[row, *entry] for row, entry in self.samples.items()], "more": self.more}  # fmt: skip

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Index:
        rows = tuple((int(place), (str(name), str(digest))) for place, name, digest in values["rows"])
        samples = {int(row): (str(name), str(digest)) for row, name, digest in values["samples"]}
        name, digest = values["template"]
        return cls(str(values["dim"]), dict(values["attrs"]), (str(name), str(digest)), rows, samples,
                   dict(values["more"]))  # fmt: skip


def is_growing_dataset(folder: Path) -> bool:
    """Whether a folder is a growing Dataset, damaged or not. One with Zarr's metadata is not."""
    return not (folder / "zarr.json").exists() and any((folder / name).exists() for name in (INDEX, *_FOLDERS))


class GrowingDataset:
    """Reads a growing Dataset from its folder."""

    def __init__(self, field: str, folder: Path, verify: bool = True) -> None:
        self.field, self.folder = field, folder
        self.cache = WorkCache(folder, None, field=field, verify=verify)
        piece = self.cache.get(INDEX)
        if piece is None:
            raise Damaged(field, folder, INDEX, "is missing")
        self.digest = piece.digest
        self.sizes = {INDEX: piece.size}  # of all that was read
        self._rows: list[dict[str, np.ndarray]] | None = None
        try:
            self.index = Index.of_values(piece.values)
        except (KeyError, TypeError, ValueError):
            raise Damaged(field, folder, INDEX, "is not an index") from None

    def pieces(self, entries: Mapping[str, str]) -> Iterator[tuple[str, Piece]]:
        """Read pieces; a missing one or another digest raises Damaged."""
        for name, piece in self.cache.pieces(entries):
            if piece is None:
                raise Damaged(self.field, self.folder, name, "is missing")
            if piece.digest != entries[name]:
                raise Damaged(self.field, self.folder, name, "is not the piece that the index names")
            self.sizes[name] = piece.size
            yield name, piece

    def piece(self, entry: Entry) -> Piece:
        """Read one piece of the index."""
        ((_, piece),) = self.pieces(dict([entry]))
        return piece

    def rows(self) -> list[dict[str, np.ndarray]]:
        """The growing variables, row by row."""
        if self._rows is None:
            self._rows = [piece.arrays for _, piece in self.pieces(dict(entry for _, entry in self.index.rows))]
        return self._rows

    def dataset(self) -> xr.Dataset:
        """Return the whole Dataset in memory."""
        template = self.piece(self.index.template)
        try:
            return self._combined(template)
        except (KeyError, TypeError, ValueError, IndexError, MemoryError) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(self.field, self.folder, self.index.template[0], f"does not fit the rows ({error})") from None

    def _combined(self, template: Piece) -> xr.Dataset:
        rows, samples = self.rows(), dict[str, dict[str, np.ndarray]]()
        variables: dict[str, Any] = {}
        for name, about in template.values["variables"].items():
            kind = about["kind"]
            if kind == "dim":
                values = np.array([place for place, _ in self.index.rows], dtype=about["dtype"])
            elif kind == "rows":
                values = self._stacked([row.get(name) for row in rows], rows[-1][name].shape, about["dtype"])
            elif kind == "text":
                values = np.array(about["text"], dtype=object)
            elif kind in (FIRST, LAST):
                row = 0 if kind == FIRST else len(rows) - 1
                if kind not in samples:
                    samples[kind] = self.piece(self.index.samples[row]).arrays
                layers = [samples[kind].get(str(i)) for i in range(about["shape"][0])]
                values = self._stacked(layers, about["shape"][1:], about["dtype"], exact=True)
            else:
                values = template.arrays[name].copy()
            variables[name] = (tuple(about["dims"]), values, about["attrs"])
        coords = {name: variables.pop(name) for name in template.values["coords"]}
        return xr.Dataset(variables, coords=coords, attrs=self.index.attrs)

    def _stacked(
        self, values: list[np.ndarray | None], shape: Sequence[int], dtype: str, exact: bool = False
    ) -> np.ndarray:
        """Values of one shape, NaN where a value is missing or smaller; with ``exact`` a smaller one is missing."""
        stacked = np.full((len(values), *shape), np.nan, dtype)
        for i, value in enumerate(values):
            if value is not None and (value.shape == tuple(shape) or not exact):
                at: Any = (i, *(slice(n) for n in value.shape))
                stacked[at] = value
        return stacked

    def check(self) -> CheckedFiles:
        """Read everything that counts, and compare it with its checksums."""
        self.dataset()
        for _ in self.pieces({name: digest for name, digest in self.index.entries().items() if name not in self.sizes}):
            pass
        return CheckedFiles(len(self.sizes), sum(self.sizes.values()))


def load(field: str, folder: Path, *, verify: bool = True) -> xr.Dataset:
    """The Dataset in a folder, which may be written to meanwhile; ``verify`` compares it with its checksums."""
    return _unless_it_changes(GrowingDataset.dataset, field, folder, verify)


def check(field: str, folder: Path) -> CheckedFiles:
    """Everything that counts in a folder, which may be written to meanwhile."""
    return _unless_it_changes(GrowingDataset.check, field, folder)


def _unless_it_changes(read: Callable[[GrowingDataset], T], field: str, folder: Path, verify: bool = True) -> T:
    """Read again if a writer has removed a piece after the index was read."""
    while True:
        store = GrowingDataset(field, folder, verify)
        try:
            return read(store)
        except Damaged:
            if GrowingDataset(field, folder).digest == store.digest:
                raise


def template_of(data: xr.Dataset, dim: str, shown: Mapping[Hashable, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values and arrays of the template for a Dataset with these variables, some of which show samples."""
    variables, arrays = {}, {}
    for label, variable in data.variables.items():
        name, shape = str(label), variable.shape
        about: dict[str, Any] = {"dims": list(variable.dims), "attrs": dict(variable.attrs), "shape": list(shape),
                                 "dtype": variable.dtype.str, "kind": "array"}  # fmt: skip
        if name == dim:
            about["kind"] = "dim"
        elif dim in variable.dims:
            about["kind"] = "rows"
        elif label in shown:
            about["kind"] = shown[label]
        elif variable.dtype == object:
            about |= {"kind": "text", "text": variable.values.tolist()}
        else:
            arrays[name] = variable.values
        variables[name] = about
    return {"variables": variables, "coords": [str(name) for name in data.coords]}, arrays


def free_name(stem: str, taken: Collection[str]) -> str:
    """A name for a piece that is not in use."""
    number = 0
    while f"{stem}.{number}" in taken:
        number += 1
    return f"{stem}.{number}"

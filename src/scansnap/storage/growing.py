"""A Zarr folder that grows row by row and is whole at every moment, though its writer may be killed at any.

What counts is what the root's ``zarr.json`` says, with the metadata of all arrays in it, and that file is replaced in
one step. Arrays along the growing dimension are raw, so that a row is written in place, behind the rows that count, and
``zarr.json`` then counts one more. Its attribute ``checksums`` has the CRC-32 of every row (over all arrays) and of
every other file, and the SHA-256 of the document itself::

    {"dim": "step", "rows": ["8c736521", …], "files": {"path/c/0": [52, "190a55ad"], …},
     "links": ["attention_last/c/0/0/0/0/0"], "sha256": "d2a8…"}

A link holds what one of the files holds, and is replaced by itself. Whoever writes may keep more in that table.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.storage.checksums import CheckedFiles, Damaged, files_in

ROOT = "zarr.json"
TABLE = "checksums"  # the attribute
_CHUNK_BYTES = 1 << 16
_METADATA_BYTES = 4096  # of one array, with the blanks behind it, so that a longer one leaves nothing

Row = Mapping[str, np.ndarray]


def rows_in_chunk(row_bytes: int) -> int:
    """Rows of an array in one file: few files, and none that is large for what is read of it."""
    return max(1, min(1024, _CHUNK_BYTES // max(1, row_bytes)))


@dataclass(frozen=True)
class _Grown:
    """One array along the growing dimension."""

    place: Path
    dtype: np.dtype
    shape: tuple[int, ...]  # of a row
    chunk: int  # rows in a file

    @property
    def size(self) -> int:
        """Bytes of a row."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))

    def file(self, row: int) -> Path:
        return self.place.joinpath("c", str(row // self.chunk), *["0"] * len(self.shape))

    def put(self, row: int, content: bytes) -> None:
        file = self.file(row)
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o644), "wb") as at:
            at.seek(row % self.chunk * self.size)
            at.write(content)
            at.truncate(self.chunk * self.size)  # Zarr reads whole chunks only

    def get(self, row: int) -> bytes:
        with self.file(row).open("rb") as at:
            at.seek(row % self.chunk * self.size)
            return at.read(self.size)


class Growing:
    """Such a folder, open for what is added to it."""

    def __init__(self, folder: Path, document: dict[str, Any], table: dict[str, Any]) -> None:
        self.folder, self.document, self.table = folder, document, table
        self.written = b""  # what zarr.json is

    @classmethod
    def begin(cls, folder: Path, dim: str, rows: Sequence[Row], links: Sequence[str]) -> Growing:
        """A folder that a Zarr library has just written, with its consolidated metadata; the arrays along ``dim`` are
        written here."""
        document = json.loads((folder / ROOT).read_bytes())
        new = cls(folder, document, {"dim": dim, "rows": [], "files": {}, "links": list(links)})
        new.add_rows(rows)
        for name in files_in(folder):
            if name != ROOT and name.split("/")[0] not in new.arrays() and name not in links:
                new.add_file(name)
        return new

    def arrays(self) -> dict[str, _Grown]:
        """Those along the growing dimension."""
        nodes = self.document["consolidated_metadata"]["metadata"]
        return {
            name: _Grown(self.folder / name, np.dtype(node["data_type"]), tuple(node["shape"][1:]),
                         node["chunk_grid"]["configuration"]["chunk_shape"][0])
            for name, node in nodes.items() if (node.get("dimension_names") or [None])[0] == self.table["dim"]
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self.table["rows"])

    # --- what is only counted by a commit ----------------------------------------------------------------------

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Rows behind those there are."""
        arrays = self.arrays()
        for row in rows:
            content = {name: np.ascontiguousarray(row[name], one.dtype).tobytes() for name, one in arrays.items()}
            for name, one in arrays.items():
                if one.size:
                    one.put(len(self), content[name])
            self.table["rows"].append(_sum(content[name] for name in sorted(content)))

    def cut(self, n: int) -> None:
        """Only the first ``n`` rows; to be committed before others take their place."""
        del self.table["rows"][n:]

    def add_file(self, name: str, content: bytes | memoryview | None = None) -> None:
        """A file that lies there, or that is written now, over one that does not count."""
        if content is None:
            content = (self.folder / name).read_bytes()
        else:
            _overwrite(self.folder / name, content)
        self.table["files"][name] = [len(content), _sum([content])]

    def commit(self, attributes: Mapping[str, Any]) -> None:
        """From now on what was added counts."""
        for name in self.arrays():
            self.document["consolidated_metadata"]["metadata"][name]["shape"][0] = len(self)
        self.document["attributes"] = {**attributes}
        self.document["attributes"][TABLE] = _sign(self.document, self.table)
        content = json.dumps(self.document).encode()
        _replace(self.folder / ROOT, content)
        self.written = content
        for name in self.arrays():  # for readers that do not look at the root's; in place, which costs much less
            own = self.document["consolidated_metadata"]["metadata"][name]
            with (self.folder / name / ROOT).open("r+b") as at:
                at.write(json.dumps(own).encode().ljust(_METADATA_BYTES))

    def link(self, links: Mapping[str, str]) -> None:
        """Links become the files they name, which must count before and after."""
        for link, name in links.items():
            _link(self.folder / name, self.folder / link)

    # --- what is there -----------------------------------------------------------------------------------------

    def row(self, i: int) -> dict[str, np.ndarray]:
        """One of the rows that count."""
        return {name: np.frombuffer(one.get(i) if one.size else b"", one.dtype).reshape(one.shape)
                for name, one in self.arrays().items()}  # fmt: skip

    def file(self, name: str) -> bytes | None:
        """What one of the files that count holds; None if it is not one of them."""
        return (self.folder / name).read_bytes() if name in self.table["files"] else None


def is_growing(folder: Path) -> bool:
    """Whether it is such a folder, damaged or not."""
    try:
        return TABLE in json.loads((folder / ROOT).read_bytes())["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def opened(field: str, folder: Path) -> Growing:
    """A folder whose ``zarr.json`` is as it was written."""
    try:
        content = (folder / ROOT).read_bytes()
        document = json.loads(content)
        table = json.loads(document["attributes"][TABLE])
        said = table.pop("sha256")
        if json.loads(_sign(document, table))["sha256"] != said:
            raise ValueError
    except OSError as error:
        raise Damaged(field, folder, ROOT, f"cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(field, folder, ROOT, "does not match its own checksum") from None
    found = Growing(folder, document, table)
    found.written = content
    return found


def check(field: str, folder: Path) -> CheckedFiles:
    """Every byte that counts against its checksum."""
    found = opened(field, folder)
    done = CheckedFiles(1, len(found.written))
    arrays = sorted(found.arrays().items())
    for i, said in enumerate(found.table["rows"]):
        for name, one in arrays:
            if one.size and not one.file(i).exists():
                raise Damaged(field, folder, f"{name}, row {i}", "is missing")
        if _sum(one.get(i) for _, one in arrays if one.size) != said:
            raise Damaged(field, folder, f"row {i}", "does not match its checksum")
    done += CheckedFiles(len({one.file(i) for i in range(len(found)) for _, one in arrays if one.size}),
                         len(found) * sum(one.size for _, one in arrays))  # fmt: skip
    files = found.table["files"]
    for name, said in [*files.items(), *((link, None) for link in found.table["links"])]:
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            raise Damaged(field, folder, name, "is missing" if missing else "cannot be read") from None
        entry = [len(content), _sum([content])]
        if entry != said if said is not None else entry not in files.values():
            raise Damaged(field, folder, name, "does not match its checksum")
        done += CheckedFiles(1, len(content))
    return done


def _sum(contents: Iterator[bytes] | Sequence[bytes | memoryview]) -> str:
    found = 0
    for content in contents:
        found = zlib.crc32(content, found)
    return f"{found:08x}"


def _sign(document: dict[str, Any], table: dict[str, Any]) -> str:
    """The table with the SHA-256 of itself and the rest of the document."""
    rest = {name: value for name, value in document["attributes"].items() if name != TABLE}
    whole = json.dumps([{**document, "attributes": rest}, table], sort_keys=True)
    return json.dumps({**table, "sha256": hashlib.sha256(whole.encode()).hexdigest()})


def _replace(target: Path, content: bytes) -> None:
    """In one step; what a killed writer leaves beside it is written over by the next."""
    scratch = target.with_name(f".{target.name}.new")
    scratch.write_bytes(content)
    os.replace(scratch, target)


def _overwrite(target: Path, content: bytes | memoryview) -> None:
    """In place: memory that the system already keeps for a file is many times faster than new."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644), "wb") as at:
        at.write(content)
        at.truncate(len(content))


def _link(file: Path, link: Path) -> None:
    """The same content under another name, without a copy where the system can."""
    scratch = link.with_name(".link.new")
    scratch.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, scratch)
    except OSError:
        scratch.write_bytes(file.read_bytes())
    os.replace(scratch, link)
    scratch.unlink(missing_ok=True)  # it stays where both were the same file already

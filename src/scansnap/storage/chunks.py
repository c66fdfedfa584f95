"""Zarr arrays that many processes fill: each chunk carries a CRC32C, and a marker per group says what must be there.

A group is one chunk along the first dimension of every filled array. Its chunk of `MARKER` is written last, so
whoever finds it finds the others. Groups without a marker do not count. Chunks are known by their names, as Zarr 3
writes them (``loss/c/3/0``); Zarr itself opens nothing before it was checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scansnap.storage.objects import Objects

MARKER = "done"  # a boolean array
COMPLETE = "complete"  # an empty file, written when all groups have markers: then a missing marker is damage


def marked_groups(names: Iterable[str], prefix: str = "") -> list[int]:
    """Numbers of the groups that have a marker."""
    start = f"{prefix}{MARKER}/c/"
    numbers = (name.removeprefix(start) for name in names if name.startswith(start))
    return [int(number) for number in numbers if number.isdecimal()]


def expected_groups(place: Objects, sizes: Mapping[str, int], before: Iterable[str], prefix: str) -> list[int]:
    """Groups whose chunks must be there: all of a complete folder, else those that had a marker ``before``."""
    if f"{prefix}{COMPLETE}" not in sizes:
        return marked_groups(before, prefix)
    node = json.loads(place.get(f"{prefix}{MARKER}/zarr.json"))
    return list(range(-(-node["shape"][0] // node["chunk_grid"]["configuration"]["chunk_shape"][0])))


def chunk_names(array: str, metadata: bytes | str, group: int) -> list[str]:
    """Names of the chunks that a group has of an array with this ``zarr.json``."""
    node = json.loads(metadata)
    sizes = node["chunk_grid"]["configuration"]["chunk_shape"]
    counts = [-(-n // size) for n, size in zip(node["shape"], sizes, strict=True)]
    return ["/".join([f"{array}/c/{group}", *map(str, index)]) for index in product(*map(range, counts[1:]))]


def group_chunks(place: Objects, prefix: str, arrays: Sequence[str], groups: Iterable[int]) -> dict[str, int]:
    """Names of all chunks of these groups, with the group of each."""
    documents = dict(place.contents(f"{prefix}{array}/zarr.json" for array in arrays))
    return {
        name: group
        for group in groups
        for array in arrays
        for name in chunk_names(prefix + array, documents[f"{prefix}{array}/zarr.json"], group)
    }


def problems(
    place: Objects, chunks: Mapping[str, int], sizes: Mapping[str, int], *, read: bool
) -> Iterator[tuple[str, str]]:
    """Chunks that are missing, and with ``read`` those that do not match their CRC: name and what is wrong."""
    yield from ((name, "is missing") for name in chunks if name not in sizes)
    if read:
        for name, content in place.contents(name for name in chunks if name in sizes):
            if isinstance(content, str):
                yield name, content
            elif not _matches_crc(content):
                yield name, "does not match its checksum"


def _matches_crc(content: bytes) -> bool:
    import google_crc32c  # Zarr's own

    return len(content) >= 4 and google_crc32c.value(content[:-4]) == int.from_bytes(content[-4:], "little")

"""What the header of a safetensors file says of its tensors, compared with the file before a library reads it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from scansnap.storage.objects import open_regular

LONGEST = 100_000_000  # bytes of a header, as in the format's own library
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8,
         "U64": 8, "F64": 8}  # fmt: skip


class LayoutError(ValueError):
    """The header does not describe the file."""


def check_layout(path: Path) -> None:
    """LayoutError unless the header describes tensors that lie one after the other and fill the file; OSError."""
    with open_regular(path.resolve()) as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST):
            raise LayoutError("its header is longer than the file")
        content = file.read(length)
    try:
        header = json.loads(content, object_pairs_hook=_without_duplicates)
        header.pop("__metadata__", None)
        tensors = sorted((*_place_of(about), name) for name, about in header.items())
    except LayoutError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise LayoutError("its header is not that of a safetensors file") from None
    end = 0
    for first, last, name in tensors:
        if first != end:
            raise LayoutError(f"the tensor {name[:80]} overlaps with another, or leaves a gap")
        end = last
    if 8 + length + end != size:
        raise LayoutError("its tensors do not fill the file")


def _place_of(about: dict[str, Any]) -> tuple[int, int]:
    """First and last byte of a tensor."""
    (first, last), shape = about["data_offsets"], about["shape"]
    if any(type(n) is not int or not 0 <= n < 2**63 for n in (first, last, *shape)):
        raise LayoutError("a shape or a place is not one of natural numbers")
    if len(shape) > 64 or last - first != math.prod(shape) * SIZES[about["dtype"]]:
        raise LayoutError("a tensor has another size than its type and shape say")
    return first, last


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LayoutError("a name in its header occurs twice")
    return found

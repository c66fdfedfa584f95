"""Open Zarr stores: only format 3, with the codecs and types that scansnap writes.

Format 2 has a filter that unpickles, and codecs of other packages may do so, too. A wrapper of the store therefore
checks all metadata that Zarr reads, consolidated or not, and hides metadata of format 2.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr
import zarr
from zarr.storage import LocalStore, WrapperStore

if TYPE_CHECKING:
    from scansnap.storage.objects import Objects

METADATA = "zarr.json"
FORMAT_2 = (".zarray", ".zgroup", ".zattrs", ".zmetadata")
CODECS = frozenset({"bytes", "vlen-utf8", "zstd", "crc32c"})
TYPES = frozenset({"bool", "string", "float16", "float32", "float64", "complex64", "complex128",
                   *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))})  # fmt: skip
_ARRAY = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
          "attributes", "dimension_names", "storage_transformers"}  # fmt: skip
_GROUP = {"zarr_format", "node_type", "attributes", "consolidated_metadata"}


class CheckedStore(WrapperStore[Any]):
    """A store in which Zarr sees only metadata that `check_metadata` allows.

    With a ``place``, Zarr's writes go through `Objects.put`, so that each chunk is written atomically.
    """

    def __init__(self, store: Any, place: Objects | None = None) -> None:
        super().__init__(store)
        self.place = place

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        name = key.rpartition("/")[2]
        if name in FORMAT_2:
            return None
        content = await super().get(key, prototype, byte_range)
        if name == METADATA and content is not None:
            check_metadata(key, content.to_bytes())
        return content

    async def set(self, key: str, value: Any) -> None:
        if self.place is None:
            raise OSError("this store is only read")
        await asyncio.to_thread(self.place.put, {key: value.to_bytes()})


def local(folder: Path) -> CheckedStore:
    """A folder as a read-only store."""
    return CheckedStore(LocalStore(folder, read_only=True))


def open_group(store: CheckedStore, mode: Any = "r") -> Any:
    """The root of a store, without consolidated metadata."""
    return zarr.open_group(store, mode=mode, zarr_format=3, use_consolidated=False)


def writing_all_chunks() -> Any:
    """A context in which arrays are opened, or created, so that chunks of fill values are written too."""
    return zarr.config.set({"array.write_empty_chunks": True})


def open_dataset(store: CheckedStore) -> xr.Dataset:
    """The root of a store as a lazy Dataset."""
    return xr.open_dataset(store, engine="zarr", consolidated=True, zarr_format=3)  # type: ignore[arg-type]


def check_metadata(name: str, content: bytes) -> None:
    """ValueError for metadata of another format, or with a codec or a type that scansnap does not write."""
    try:
        _check_node(json.loads(content))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name} is not metadata of Zarr 3 ({error})") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _check_node(node: dict[str, Any]) -> None:
    if node["zarr_format"] != 3:
        raise ValueError("only Zarr format 3 is read")
    known = {"group": _GROUP, "array": _ARRAY}.get(node["node_type"])
    if known is None or not node.keys() <= known:
        raise ValueError("its metadata has fields that scansnap does not write")
    if node["node_type"] == "array":
        _check_array(node)
        return
    for name, inner in ((node.get("consolidated_metadata") or {}).get("metadata") or {}).items():
        if any(part in ("", ".", "..") or "\\" in part for part in name.split("/")):
            raise ValueError("the name of an array leads out of the store")
        _check_node(inner)


def _check_array(node: dict[str, Any]) -> None:
    for codec in node["codecs"]:
        if codec["name"] not in CODECS:
            raise ValueError(f"the codec {str(codec['name'])[:40]!r} is not read")
    if node["data_type"] not in TYPES:
        raise ValueError(f"the type {str(node['data_type'])[:40]!r} is not read")
    grid, keys = node["chunk_grid"]["name"], node.get("chunk_key_encoding", {"name": "default"})["name"]
    if (grid, keys) != ("regular", "default") or node.get("storage_transformers"):
        raise ValueError("only regular chunks are read")

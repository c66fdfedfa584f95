"""What SECURITY.md promises about files of somebody else; each test is named by the promise."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numcodecs.pickles
import numpy as np
import pytest
import xarray as xr
import zarr

import scansnap as ss
from scansnap.checks import InputError
from scansnap.dynamics import checkpoint
from scansnap.results import netcdf
from scansnap.storage import checksums
from scansnap.storage.objects import Folder
from scansnap.storage.work_cache import WorkCache
from scansnap.storage.zarr_store import check_metadata, open_group

CLASSES = ss.SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=2, distinct=3)
PICKLED = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": None, "fill_value": "",
           "order": "C", "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]}  # fmt: skip
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {"format": "scansnap trajectory 2", "names": ["x"]}}
ARRAY = {"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "float64", "fill_value": 0.0,
         "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}}, "attributes": {},
         "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "dimension_names": ["step"],
         "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}  # fmt: skip
UNPICKLING = {"name": "numcodecs.pickle", "configuration": {"protocol": 5}}


ran: list[str] = []  # payloads


class Payload:
    """A program in a pickle."""

    def __reduce__(self) -> Any:
        return run, ("payload",)


def run(what: str) -> np.ndarray:
    ran.append(what)
    return np.zeros(1)


@pytest.fixture(autouse=True)
def unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter that unpickles is switched on, as it always was in former versions of numcodecs."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)
    ran.clear()


def of_format_2(folder: Path) -> None:
    files = {".zgroup": {"zarr_format": 2}, ".zattrs": GROUP["attributes"], "x/.zarray": PICKLED, "x/.zattrs":
             {"_ARRAY_DIMENSIONS": ["step"]}}  # fmt: skip
    consolidated = {"zarr_consolidated_format": 1, "metadata": files}
    put(folder, {**files, ".zmetadata": consolidated})
    (folder / "x" / "0").write_bytes(pickle.dumps(Payload()))


def of_both_formats(folder: Path) -> None:
    of_format_2(folder)
    put(folder, {"zarr.json": consolidated({})})


def with_a_node_of_format_2(folder: Path) -> None:
    of_format_2(folder)
    (folder / ".zgroup").unlink()
    put(folder, {"zarr.json": consolidated({"x": PICKLED | {"attributes": {"_ARRAY_DIMENSIONS": ["step"]}}})})


def with_a_node_of_format_2_in_a_group(folder: Path) -> None:
    of_format_2(folder)
    inner = consolidated({"x": PICKLED})
    put(folder, {"zarr.json": consolidated({"g": inner, "x": ARRAY}), "x/zarr.json": PICKLED})


def with_a_codec_that_unpickles(folder: Path) -> None:
    array = ARRAY | {"codecs": [UNPICKLING, *ARRAY["codecs"]]}
    put(folder, {"zarr.json": consolidated({"x": array}), "x/zarr.json": array})


def with_sound_consolidated_metadata_alone(folder: Path) -> None:
    """Which readers without it do not see."""
    array = ARRAY | {"codecs": [*ARRAY["codecs"], UNPICKLING]}
    put(folder, {"zarr.json": GROUP, "x/zarr.json": array})
    (folder / "x" / "c").mkdir()
    (folder / "x" / "c" / "0").write_bytes(bytes(8))


HOSTILE = [of_format_2, of_both_formats, with_a_node_of_format_2, with_a_node_of_format_2_in_a_group,
           with_a_codec_that_unpickles, with_sound_consolidated_metadata_alone]  # fmt: skip


def consolidated(members: dict[str, Any]) -> dict[str, Any]:
    return GROUP | {"consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": members}}


def put(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))


def load(folder: Path) -> Any:
    checksums.put_table(folder)
    return ss.load(folder).load()


def read_sweep(folder: Path) -> Any:
    """As a worker reads the store of a sweep."""
    group = open_group(Folder(folder).zarr())
    return np.asarray(group["x"][...])


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.__name__)
@pytest.mark.parametrize("read", [load, read_sweep], ids=lambda read: read.__name__)
def test_no_zarr_store_is_unpickled(
    tmp_path: Path, hostile: Callable[[Path], None], read: Callable[[Path], Any]
) -> None:
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    hostile(folder)
    try:
        found = read(folder)
    except InputError:
        pass
    except (FileNotFoundError, ValueError, KeyError):
        assert read is read_sweep, "the sweep compares its metadata with what it expects, before it opens any"
    else:
        assert isinstance(found, xr.Dataset), "the part of format 2 was not seen"
        assert not found.variables
    assert ran == []


@pytest.mark.parametrize("hostile", [of_format_2, with_a_node_of_format_2], ids=lambda hostile: hostile.__name__)
def test_a_hostile_store_would_be_unpickled_otherwise(tmp_path: Path, hostile: Callable[[Path], None]) -> None:
    """The control: what Zarr does by itself."""
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    hostile(folder)
    with suppress(Exception):  # what the program returned is no array
        np.asarray(zarr.open_group(folder, mode="r")["x"])  # type: ignore[arg-type]
    assert ran == ["payload"]


def test_zarr_is_opened_in_one_place() -> None:
    """Elsewhere it is only written to: in a new folder, or in memory."""
    source = Path(ss.__file__).parent
    opened = re.compile(r"zarr\.open|open_zarr|open_consolidated|engine=\"zarr\"|zarr\.load")
    found = {(file.relative_to(source).as_posix(), line.strip()) for file in source.rglob("*.py")
             for line in file.read_text(encoding="utf-8").splitlines() if opened.search(line)}  # fmt: skip
    places = {file for file, line in found if 'mode="w", zarr_format=3' not in line}
    assert places == {"storage/zarr_store.py"}


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", "."])
def test_no_array_of_a_zarr_store_lies_outside_of_it(name: str) -> None:
    check_metadata("zarr.json", json.dumps(consolidated({"a/b": ARRAY})).encode())
    with pytest.raises(ValueError, match="leads out"):
        check_metadata("zarr.json", json.dumps(consolidated({name: ARRAY})).encode())


# --- checksum tables and what lies in folders --------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    data = ss.simulate(CLASSES, ss.grid(eta_z=1.0, ratio=2, seed=[0]), steps=2, record="all", device="cpu")
    ss.save(data, tmp_path / "a.zarr")
    return tmp_path / "a.zarr"


def add_to_table(folder: Path, name: str, target: Path | None = None) -> None:
    table = checksums.signed((folder / checksums.NAME).read_bytes())
    entry = [0, ""] if target is None else checksums.entry_of_file(target)
    table["files"][name] = entry
    (folder / checksums.NAME).write_text(checksums.sign(table))


@pytest.mark.parametrize("name", ["../secret", "loss/../../secret", "/etc/passwd", "/dev/zero", "..", "", "a\0b"])
def test_no_checksum_table_reads_a_file_outside(
    saved: Path, monkeypatch: pytest.MonkeyPatch, scansnap: Any, name: str
) -> None:
    secret = saved.with_name("secret")
    secret.write_text("of somebody")
    add_to_table(saved, name, secret)
    opened: list[str] = []
    monkeypatch.setattr(os, "open", recording(os.open, opened))
    with pytest.raises(checksums.Damaged) as refusal:
        ss.load(saved)
    assert refusal.value.part == name
    assert opened
    assert all(Path(place).resolve().is_relative_to(saved) for place in opened)
    monkeypatch.undo()
    assert scansnap("info", "--check", saved)[0] == 1


def recording(call: Callable[..., int], opened: list[str]) -> Callable[..., int]:
    def recorded(path: Any, *args: Any, **options: Any) -> int:
        opened.append(os.fspath(path))
        return call(path, *args, **options)

    return recorded


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are of POSIX")
def test_no_pipe_device_or_link_in_a_store_is_opened(saved: Path, tmp_path: Path) -> None:
    before = (saved / "zarr.json").read_bytes()
    (tmp_path / "outside.json").write_bytes(before)  # the same bytes, but not inside
    links = [partial(os.symlink, target) for target in ("/dev/zero", tmp_path / "outside.json")]
    for make in (os.mkfifo, *links, lambda place: place.write_bytes(before)):
        (saved / "zarr.json").unlink()
        make(saved / "zarr.json")
        if make is os.mkfifo or (saved / "zarr.json").is_symlink():
            with pytest.raises(checksums.Damaged) as refusal:
                checksums.check("the store", saved)
            assert refusal.value.part == "zarr.json"
    shutil.move(saved / "loss", tmp_path / "moved")
    os.symlink(tmp_path / "moved", saved / "loss")  # the same bytes, but not inside
    with pytest.raises(checksums.Damaged):
        ss.load(saved)


def test_no_checkpoint_names_a_file_outside(tmp_path: Path) -> None:
    """Under checksums that fit."""
    arrays = {"loss": np.zeros((1, 1))}
    outside = WorkCache(tmp_path, "fingerprint").put("records-00001", {"steps": [0]}, arrays)
    partial = checkpoint.RunCheckpoint(tmp_path / "b.zarr", "fingerprint")
    for records in ([["../records-00001", outside]], [["records-00001", outside]], [[outside]], [3], None):
        partial._cache.put("state", {"records": records, "state": {"step": 1}}, arrays)
        with pytest.raises(InputError):
            partial.load()
    assert (tmp_path / "records-00001").exists()


# --- NetCDF ------------------------------------------------------------------------------------------------------


def hostile_file(path: Path, change: Callable[[h5py.File], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A NetCDF file of ours that was changed, under a checksum that fits."""
    data = xr.Dataset({"loss": ("step", np.arange(3.0))}, attrs={"format": "scansnap trajectory 2"})
    path.write_bytes(netcdf.encoded(data))
    with h5py.File(path, "r+") as file:
        change(file)
    content = bytearray(path.read_bytes())
    (found,) = netcdf._CHECKSUM.finditer(content)
    start, stop = found.span(1)
    content[start:stop] = b"0" * 64
    content[start:stop] = netcdf.hashlib.sha256(content).hexdigest().encode()
    path.write_bytes(content)


def external_storage(file: h5py.File) -> None:
    secret = Path(file.filename).with_name("secret")
    file.create_dataset("x", (2,), "f8", external=[(str(secret), 0, 16)])


def external_link(file: h5py.File) -> None:
    with h5py.File(Path(file.filename).with_name("other.h5"), "w") as other:
        other["x"] = np.arange(2.0)
    file["x"] = h5py.ExternalLink("other.h5", "/x")


def soft_link(file: h5py.File) -> None:
    file["x"] = h5py.SoftLink("/loss")


def link_in_a_group(file: h5py.File) -> None:
    file.create_group("g/h")["x"] = h5py.ExternalLink("other.h5", "/x")


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(Path(file.filename).with_name("other.h5")), "x", (3,))
    file.create_virtual_dataset("x", layout)


def huge(file: h5py.File) -> None:
    file.create_dataset("x", (2**50,), "f8", chunks=(1024,))


def huge_and_packed(file: h5py.File) -> None:
    file.create_dataset("x", (2**50,), "f8", chunks=(1024,), compression="gzip")[:1024] = 0


@pytest.mark.parametrize(
    "change", [external_storage, external_link, soft_link, link_in_a_group, virtual, huge, huge_and_packed],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_no_netcdf_file_reads_another_or_declares_more_than_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scansnap: Any, change: Callable[[h5py.File], None]
) -> None:
    (tmp_path / "secret").write_bytes(np.array([1.0, 2.0]).tobytes())
    hostile_file(tmp_path / "a.nc", change, monkeypatch)
    monkeypatch.setattr(xr, "open_dataset", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(InputError) as refusal:
        ss.load(tmp_path / "a.nc")
    assert refusal.value.field == "the result path"
    assert scansnap("info", tmp_path / "a.nc")[0] == 2


def test_a_sound_netcdf_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: changed in the same way, without harm."""
    hostile_file(tmp_path / "a.nc", lambda file: file.create_dataset("x", data=1.0), monkeypatch)
    with ss.load(tmp_path / "a.nc") as data:
        assert data.loss.values.tolist() == [0, 1, 2]

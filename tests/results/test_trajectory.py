"""Results on disk: exact in both formats, made again from their own attributes, never half there."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from refusals import refused
from scansnap.results import trajectory
from scansnap.storage.checksums import Damaged, files_in

CLASSES = ss.SequenceClasses.from_support(
    [[0, 1, 2], [0, 3, 4, 5]],
    [[1 / 3, 1 / 3, 1 / 3], [0.1, 0.2, 0.3, 0.4]],
    vocab_size=9,
    query=[6, 7],
    next_token=[8, 2],
    p_class=[0.7, 0.3],
)
IN_BOTH_FORMATS = pytest.mark.parametrize("suffix", ["zarr", "nc"])
FIELD = "the result path"


def simulate(**options: Any) -> xr.Dataset:
    runs = ss.grid(eta_z=[0.5, 1e38], ratio=[0.1, 2], seed=[0, 2**62 + 1])  # some of them fail
    return ss.simulate(CLASSES, runs, **{"steps": 6, "batch_size": 8, "record": [0, 1, 6], "device": "cpu", **options})


@pytest.fixture(scope="module")
def data() -> xr.Dataset:
    everything = ["attention", "loss", "entropy", "z", "y", "batch_loss"]
    made = simulate(variables=everything, init="uniform", momentum=0.9)
    assert sorted(set(made.status.values.tolist())) == ["non-finite", "ok"]
    return made


# --- there and back -------------------------------------------------------------------------------------------


@IN_BOTH_FORMATS
def test_nothing_is_lost_on_disk(data: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    ss.save(data, tmp_path / f"a.{suffix}")
    back = ss.load(tmp_path / f"a.{suffix}")
    xr.testing.assert_identical(back, data)
    assert set(back.coords) == set(data.coords)
    for name in (*data.data_vars, *data.coords):
        if data[name].dtype != object:  # strings come back in the format's own type
            assert back[name].dtype == data[name].dtype, name
        assert back[name].attrs == data[name].attrs, name
    assert back.status.values.tolist() == data.status.values.tolist()
    assert back.seed.values.tolist() == [0, 2**62 + 1] * 4
    assert dict(back.attrs) == dict(data.attrs)
    assert trajectory.classes_of(back) == CLASSES


@IN_BOTH_FORMATS
def test_files_of_older_versions_have_the_new_dimension(data: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    ss.save(data.rename({"seq_class": "class"}), tmp_path / f"a.{suffix}")  # as version 0.2 wrote it
    back = ss.load(tmp_path / f"a.{suffix}")
    xr.testing.assert_identical(back, data)
    assert back.entropy.sel(seq_class=1).dims == ("run", "step")


@IN_BOTH_FORMATS
@pytest.mark.parametrize("options", [{"heads": 2}, {"dtype": "float64"}, {"outputs": "next", "variables": ["y"]}])
def test_every_kind_of_result_can_be_saved(tmp_path: Path, suffix: str, options: dict[str, Any]) -> None:
    made = simulate(**options)
    ss.save(made, str(tmp_path / f"a.{suffix}"))  # a string will do
    xr.testing.assert_identical(ss.load(str(tmp_path / f"a.{suffix}")), made)


@IN_BOTH_FORMATS
def test_a_result_goes_into_a_new_folder_and_over_itself(data: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "some" / "where" / f"a.{suffix}"
    ss.save(data, path)
    assert ss.load(path).identical(data)
    ss.save(ss.load(path).isel(run=[0, 1]), path, overwrite=True)
    xr.testing.assert_identical(ss.load(path), data.isel(run=[0, 1]))


# --- made again -----------------------------------------------------------------------------------------------


def made_again(data: xr.Dataset) -> xr.Dataset:
    """The same simulation, from nothing but what the result says about itself."""
    options = json.loads(data.attrs["settings"])
    options |= options.pop("model")
    options["optimizer"] = {"y": options.pop("optimizer_y"), "z": options.pop("optimizer_z")}
    fields = ("eta_y", "eta_z", "seed", "momentum")
    decay = data["weight_decay"].values
    runs = ss.Runs(**{name: data[name].values for name in fields}, weight_decay_y=decay, weight_decay_z=decay)
    return ss.simulate(trajectory.classes_of(data), runs, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9, "engine": "general", "init": "uniform"},
        {"context": math.inf, "batch_size": None, "dtype": "float64"},
        {
            "optimizer": {"y": "adam", "z": {"name": "sgd", "clip": np.float32(0.1)}},
            "heads": 2,
            "init": "normal(0.2)",
        },
        {
            "position_bias": [0.3, -0.1],
            "residual": "normed",
            "query_in_keys": True,
            "variables": ["z", "batch_loss"],
        },
        {"norm": "layernorm", "outputs": "next", "weight_decay": 0.01, "optimizer": "adamw", "steps": np.int64(6)},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_a_result_says_how_to_make_it_again(tmp_path: Path, options: dict[str, Any]) -> None:
    first = simulate(**options)
    ss.save(first, tmp_path / "a.zarr")
    xr.testing.assert_identical(made_again(ss.load(tmp_path / "a.zarr")), first)


def test_attributes_say_what_made_a_result(data: xr.Dataset) -> None:
    import torch

    assert data.attrs["format"] == "scansnap trajectory 2"
    assert data.attrs["complete"] == 1
    versions = json.loads(data.attrs["versions"])
    assert set(versions) == {"scansnap", "python", "numpy", "scipy", "torch", "xarray"}
    assert (versions["scansnap"], versions["torch"]) == (ss.__version__, torch.__version__)
    settings = json.loads(data.attrs["settings"])
    assert (settings["steps"], settings["record"], settings["device"]) == (6, [0, 1, 6], "cpu")
    assert json.loads(simulate(context=math.inf).attrs["settings"])["context"] == "inf"  # JSON has no infinity


def test_plots_are_labelled(data: xr.Dataset) -> None:
    flow = ss.flow(CLASSES, t=[1.0, 2.0])
    response = ss.response(CLASSES, t=[1.0, 2.0])
    for dataset in (data, flow, response):
        for name, variable in dataset.variables.items():
            assert variable.attrs["long_name"], name
            assert "units" in variable.attrs, name
    from xarray.plot.utils import label_from_attrs

    assert label_from_attrs(data.entropy) == "entropy of attention [nats]"
    assert label_from_attrs(data.step) == "step [updates]"


# --- without checksums ----------------------------------------------------------------------------------------


def test_a_damaged_chunk_is_found_when_it_is_read(data: xr.Dataset, tmp_path: Path) -> None:
    ss.save(data, tmp_path / "a.zarr")
    chunk = next(path for path in sorted((tmp_path / "a.zarr" / "z" / "c").rglob("*")) if path.is_file())
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    with pytest.raises(Damaged, match="z/c"):
        ss.load(tmp_path / "a.zarr")
    back = ss.load(tmp_path / "a.zarr", verify=False)
    xr.testing.assert_identical(back.drop_vars("z"), data.drop_vars("z"))
    with pytest.raises(Exception, match=r"."):
        back.z.load()


@IN_BOTH_FORMATS
def test_unverified_opening_reads_no_chunk(
    data: xr.Dataset, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ss.save(data, tmp_path / f"a.{suffix}")
    monkeypatch.setattr(trajectory, "check", lambda path: pytest.fail("the file was read"))
    back = ss.load(tmp_path / f"a.{suffix}", verify=False)
    assert not back.variables["attention"]._in_memory
    xr.testing.assert_identical(back, data)
    for name in ("nowhere.zarr", "a.csv"):
        with refused(FIELD):
            ss.load(tmp_path / name, verify=False)


# --- saving over something ------------------------------------------------------------------------------------


@IN_BOTH_FORMATS
def test_overwriting_must_be_asked_for(data: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    path, other = tmp_path / f"a.{suffix}", data.isel(run=[0])
    ss.save(data, path)
    with refused(FIELD):
        ss.save(other, path)
    assert ss.load(path).identical(data)
    ss.save(other, path, overwrite=True)
    xr.testing.assert_identical(ss.load(path), other)
    assert [p.name for p in tmp_path.iterdir()] == [f"a.{suffix}"]


@pytest.mark.parametrize(
    "error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("old", [True, False], ids=["over an old result", "new"])
@IN_BOTH_FORMATS
def test_a_failing_write_leaves_the_old_result_and_nothing_else(
    data: xr.Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    old: bool,
    error: BaseException,
) -> None:
    path = tmp_path / f"a.{suffix}"
    if old:
        ss.save(data, path)
    owner, method = {"zarr": (xr.Dataset, "to_zarr"), "nc": (Path, "write_bytes")}[suffix]
    write = getattr(owner, method)

    def half(self: Any, given: Any, **options: Any) -> None:
        write(self, given if suffix == "zarr" else given[:100], **options)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, half)
        with pytest.raises(ss.InputError if isinstance(error, OSError) else type(error)) as caught:
            ss.save(data.isel(run=[0]), path, overwrite=True)
    if isinstance(error, OSError):
        assert caught.value.field == FIELD
    assert [p.name for p in tmp_path.iterdir()] == ([f"a.{suffix}"] if old else [])
    if old:
        assert ss.load(path).identical(data)
    ss.save(data, path, overwrite=True)  # and the next attempt succeeds
    assert ss.load(path).identical(data)


def test_a_place_that_cannot_be_written(data: xr.Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with refused(FIELD):
        ss.save(data, tmp_path / "file" / "a.zarr")
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("name", ["a", "a.csv", "a.zarr.zip", "zarr", "a.NC", ".zarr"])
def test_the_name_says_the_format(data: xr.Dataset, tmp_path: Path, name: str) -> None:
    with refused(FIELD):
        ss.save(data, tmp_path / name)
    with refused(FIELD):
        ss.load(tmp_path / name)
    assert not list(tmp_path.iterdir())


# --- what is not a result -------------------------------------------------------------------------------------


@IN_BOTH_FORMATS
def test_nothing_there_and_an_unfinished_run(tmp_path: Path, suffix: str) -> None:
    with refused(FIELD):
        ss.load(tmp_path / f"a.{suffix}")
    (tmp_path / f"a.{suffix}.partial").mkdir()
    with refused(FIELD, names="resume"):
        ss.load(tmp_path / f"a.{suffix}")


@IN_BOTH_FORMATS
@pytest.mark.parametrize(
    "names", ["scansnap trajectory 2", "version"], ids=["another program's", "an earlier version's"]
)
def test_files_of_others(data: xr.Dataset, tmp_path: Path, suffix: str, names: str) -> None:
    path, other = tmp_path / f"a.{suffix}", data.assign_attrs(format="scansnap trajectory 1")
    if names != "version":
        other = xr.Dataset({"temperature": ("day", [20.0, 21.0])})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if suffix == "zarr":
            other.to_zarr(path, consolidated=False)
        else:
            other.to_netcdf(path, engine="h5netcdf")
    with refused(FIELD, names=names):
        ss.load(path)


@IN_BOTH_FORMATS
@pytest.mark.parametrize("content", [b"", b"no such format", None], ids=["empty", "text", "folder"])
def test_not_a_dataset_at_all(tmp_path: Path, suffix: str, content: bytes | None) -> None:
    path = tmp_path / f"a.{suffix}"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with refused(FIELD):
        ss.load(path)


@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "without attributes"])
@pytest.mark.parametrize("part", ["zarr.json", "loss/zarr.json", "checksums.json"])
def test_a_damaged_folder(data: xr.Dataset, tmp_path: Path, part: str, damage: str) -> None:
    path = tmp_path / "a.zarr"
    ss.save(data, path)
    meta = path / part
    if damage == "gone":
        meta.unlink()
    else:
        text = meta.read_text()
        meta.write_text({"cut": text[:100], "empty": "", "without attributes": "{}"}[damage])
    with refused(FIELD, names=part, error=Damaged):
        ss.load(path)


def remove_variable(path: Path) -> None:
    shutil.rmtree(path / "attention")


def copy_variable(path: Path) -> None:
    shutil.copytree(path / "loss", path / "loss_again")


def swap_chunks(path: Path) -> None:
    (path / "eta_y/c/0").rename(path / "third")
    (path / "eta_z/c/0").rename(path / "eta_y/c/0")
    (path / "third").rename(path / "eta_z/c/0")


@pytest.mark.parametrize(
    ("damage", "part"),
    [(remove_variable, "attention/c/0/0/0/0"), (copy_variable, "loss_again/"), (swap_chunks, "eta_y/c/0")],
)
def test_a_folder_with_other_chunks(data: xr.Dataset, tmp_path: Path, damage: Any, part: str) -> None:
    path = tmp_path / "a.zarr"
    ss.save(data, path)
    (path / "notes.txt").write_text("a note changes no number")
    (path / ".DS_Store").write_bytes(b"nor does what the system leaves")
    xr.testing.assert_identical(ss.load(path), data)
    damage(path)
    with refused(FIELD, names=part, error=Damaged):
        ss.load(path)


@IN_BOTH_FORMATS
def test_any_notebook_opens_it(data: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    ss.save(data, path)
    with xr.open_dataset(path) as plain:
        xr.testing.assert_equal(plain, data)
    if suffix == "zarr":
        xr.testing.assert_identical(xr.open_zarr(path), data)
        chunk = path / "loss/c/0/0"
        chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
        with pytest.raises(ValueError, match="checksum"):  # the CRC in the chunk
            xr.open_zarr(path).loss.load()


@IN_BOTH_FORMATS
def test_the_same_data_are_the_same_bytes(data: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    ss.save(data, first)
    ss.save(ss.load(first), second)
    if suffix == "zarr":
        assert all((second / name).read_bytes() == (first / name).read_bytes() for name in files_in(first))
        assert list(files_in(first)) == list(files_in(second))
    else:
        assert first.read_bytes() == second.read_bytes()

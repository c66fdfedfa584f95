"""Sweeps into an S3 bucket: a real server in a process of its own, on the loopback address."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from sweeps import SMALL, contents, write
from test_interrupted import COMMAND

import scansnap as ss
from refusals import refused
from scansnap.storage.objects import place_of
from scansnap.sweep.config import read
from scansnap.sweep.run import prepare, run
from scansnap.sweep.store import StoreError

pytest.importorskip("moto.server", reason="moto with flask, which stands for S3, is not installed")
boto3 = pytest.importorskip("boto3")
s3fs = pytest.importorskip("s3fs")

# botocore leaves connections to the garbage collector
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
# 3 groups; few variables, since moto takes some 10 ms for an object
TEXT = SMALL.replace("n_queries = [1, 2]", "n_queries = 1").replace("[0.5, 1]", "0.5")
TEXT = TEXT.replace('"loss", "entropy", "z"', '"loss", "z"').replace("recall = {}\ntop_mass = { k = 2 }\n", "")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server with one bucket; the environment leads to it."""
    process = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert process.stdout is not None
    endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, value)  # fmt: skip
        boto3.client("s3").create_bucket(Bucket="sweeps")
        yield endpoint
    process.communicate()


@pytest.fixture
def new_connection() -> Iterator[None]:
    """s3fs keeps one for each address, with the credentials, and the functions, that it was made with."""
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(autouse=True, scope="module")
def closed() -> Iterator[None]:
    """What s3fs leaves open goes here, where it is known."""
    yield
    s3fs.S3FileSystem.clear_instance_cache()
    gc.collect()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same sweep in a folder."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(prepare(read(write(folder, TEXT)), folder / "s.zarr", device="cpu")).complete
    return contents(folder / "s.zarr")


def objects(address: str, folder: Path) -> dict[str, str]:
    """As `sweeps.contents`, of a bucket."""
    place = place_of(address)
    for name, content in place.contents(place.sizes()):
        assert isinstance(content, bytes)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return contents(folder)


@pytest.mark.integration
def test_a_bucket_holds_the_same_bytes_and_opens_without_us(s3: str, tmp_path: Path, whole: dict[str, str]) -> None:
    address = "s3://sweeps/one/s.zarr"
    assert run(prepare(read(write(tmp_path, TEXT)), address, device="cpu")).complete
    assert objects(address, tmp_path / "copy") == whole
    with xr.open_zarr(address) as root:
        assert root.done.all()
        assert np.isfinite(root.loss.values).all()
    with ss.load(f"{address}/classes-0.zarr") as data, ss.load(tmp_path / "copy/classes-0.zarr") as local:
        xr.testing.assert_identical(data.load(), local.load())
    before = place_of(address).sizes()
    assert run(prepare(read(write(tmp_path, TEXT)), address, resume=True)).skipped == 9
    with refused("--out", names="--resume"):
        prepare(read(write(tmp_path, TEXT)), address)
    with refused("sweep file", "[run]"):
        prepare(read(write(tmp_path, TEXT, **{"steps = 6": "steps = 7"})), address, resume=True)
    assert place_of(address).sizes() == before


@pytest.mark.integration
def test_killed_and_resumed_it_is_the_same(s3: str, tmp_path: Path, whole: dict[str, str]) -> None:
    address = "s3://sweeps/killed/s.zarr"
    write(tmp_path, TEXT)
    words = ["sweep", "sweep.toml", "--out", address, "--device", "cpu"]
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *words], cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=os.environ | {"OMP_NUM_THREADS": "1", "HOLD": "2"})  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.kill()
    process.communicate()
    place = place_of(address)
    place.put({"classes-0.zarr/loss/c/2/0": b"another's"})
    place.remove(["classes-0.zarr/z/c/0/0/0/0"])  # of a group that was finished
    ready = prepare(read(tmp_path / "sweep.toml"), address, resume=True)
    outcome = run(ready)
    assert (outcome.complete, outcome.skipped) == (True, 3)
    assert ready.store.recomputed == ["runs 0 to 2 of class set 0: classes-0.zarr/z/c/0/0/0/0 is missing"]
    assert objects(address, tmp_path / "copy") == whole


def test_a_store_that_another_sweep_replaced_is_not_written_to(s3: str, tmp_path: Path, whole: dict[str, str]) -> None:
    """Nobody can lock a bucket: whoever is late notices."""
    address, other = "s3://sweeps/late/s.zarr", TEXT.replace("steps = 6", "steps = 7")
    late = prepare(read(write(tmp_path, other)), address, device="cpu")

    def replaced(done: int, total: int) -> None:
        if done and not place_of(address).get("zarr.json").count(b'\\"steps\\": 6'):
            again = prepare(read(write(tmp_path, TEXT)), address, device="cpu", overwrite=True)
            assert run(again).complete

    with pytest.raises(StoreError, match="another sweep has taken its place"):
        run(late, progress=replaced)
    assert objects(address, tmp_path / "copy") == whole


@pytest.mark.integration
def test_a_second_driver_of_the_same_sweep_does_no_harm(s3: str, tmp_path: Path, whole: dict[str, str]) -> None:
    """Nobody can lock a bucket: both write the same bytes under the same names, each group perhaps twice."""
    address, second_runs = "s3://sweeps/joined/s.zarr", []
    ready = prepare(read(write(tmp_path, TEXT)), address, device="cpu")

    def join(done: int, total: int) -> None:
        if done > 3 and not second_runs:  # runs: the first group is there, the second under way
            second_runs.append(run(prepare(read(tmp_path / "sweep.toml"), address, resume=True)))

    assert run(ready, progress=join).complete
    (second,) = second_runs
    assert (second.complete, 0 < second.skipped < 9) == (True, True)
    assert objects(address, tmp_path / "copy") == whole


def test_of_two_that_begin_at_once_one_is_refused(s3: str) -> None:
    place = place_of("s3://sweeps/both/s.zarr")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(place), "sizes", lambda self: {})  # neither sees the other
        place.begin({"zarr.json": b"first"}, "zarr.json", replaces=False)
        with pytest.raises(FileExistsError):
            place.begin({"zarr.json": b"second"}, "zarr.json", replaces=False)
    assert place.get("zarr.json") == b"first"


REFUSALS = {
    "no bucket": ("s3://nowhere/s.zarr", {}, "--out", "nowhere"),
    "no credentials": ("s3://sweeps/s.zarr", {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
                       "--out", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
    "no server": ("s3://sweeps/s.zarr", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"},
                  "--out", "http://127.0.0.1:9"),
    "no prefix": ("s3://sweeps", {}, "--out", "s3://bucket/prefix"),
    "no Zarr": ("s3://sweeps/s.nc", {}, "--out", ".zarr"),
    "another scheme": ("gs://sweeps/s.zarr", {}, "--out", "s3://bucket/prefix"),
    "another endpoint": ("s3://sweeps/s.zarr", {"AWS_ENDPOINT_URL": "nonsense"}, "--endpoint", "https://"),
}  # fmt: skip


@pytest.mark.parametrize(("address", "change", "field", "names"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusals_are_one_sentence(s3, new_connection, refuses, monkeypatch, tmp_path, address, change, field, names):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in change.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    write(tmp_path, TEXT)
    value = address if field == "--out" else change["AWS_ENDPOINT_URL"]
    refuses(field, "sweep", "sweep.toml", "--out", address, "--device", "cpu", value=value, names=names)
    assert [place.name for place in tmp_path.iterdir()] == ["sweep.toml"]


def test_no_permission_is_one_sentence(s3, new_connection, scansnap, monkeypatch, tmp_path):
    """Access is denied before the work, and in the middle of it."""
    write(tmp_path, TEXT)
    original, room = s3fs.S3FileSystem._pipe_file, 0

    async def denied(self, path, data, **options):
        nonlocal room
        room -= 1
        if room < 0:
            raise PermissionError("Access Denied")
        return await original(self, path, data, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", denied)
    code, _, err = scansnap("sweep", "sweep.toml", "--out", "s3://sweeps/denied/s.zarr", "--device", "cpu")
    assert code == 2
    assert "these credentials may not do it: Access Denied" in err
    assert place_of("s3://sweeps/denied/s.zarr").sizes() == {}
    room = 50
    code, _, err = scansnap("sweep", "sweep.toml", "--out", "s3://sweeps/denied/s.zarr", "--device", "cpu")
    assert code == 1
    assert "could not be written to s3://sweeps/denied/s.zarr (these credentials may not do it: Access Denied)" in err
    assert err.count("\n") == 1


def test_info_of_a_bucket(s3, scansnap, tmp_path):
    address = "s3://sweeps/info/s.zarr"
    write(tmp_path, TEXT)
    code, _, err = scansnap("sweep", "sweep.toml", "--out", address, "--device", "cpu", "--endpoint", s3)
    assert code == 0, err
    assert scansnap("info", address)[1].startswith(f"{address}: a sweep, complete")
    assert f"{address} (sweep) is intact" in scansnap("info", "--check", address)[1]
    place = place_of(address)
    content = bytearray(place.get("classes-0.zarr/loss/c/1/0"))
    content[5] ^= 1
    place.put({"classes-0.zarr/loss/c/1/0": bytes(content)})
    code, _, err = scansnap("info", "--check", address)
    assert code == 1
    assert err == f"{address} is damaged: classes-0.zarr/loss/c/1/0 does not match its checksum.\n"


def test_without_s3fs_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with refused("--out", names=("s3fs", "scansnap[cluster]")):
        prepare(read(write(tmp_path)), "s3://sweeps/s.zarr")

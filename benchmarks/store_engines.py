"""Which engine for a store that many workers write: Icechunk's transactions, or Zarr with objects that nobody shares.

python benchmarks/store_engines.py [--groups 10000] [--seconds 60]

A group writes one chunk of each of four variables and its mark, as a group of a sweep does (4 runs, 2 steps, float32).
Every part is stopped after --seconds and says how far it came.

alone      one writer on a local disk: groups a second, the writer's processor time for each, objects and bytes beside
           the chunks (Icechunk: snapshots, manifests and transactions; ours: nothing). Icechunk with a
           commit for every group, which is what makes a finished group safe, and with one for 100 groups
killed     what a writer killed between its chunks and its commit (or mark) leaves, and whether it is read
contend    1 and 4 writers of one branch in an S3 bucket (a moto server on the loopback address), a commit for every
           group, with rebase where another was faster; and the same by objects of their own. Icechunk itself says that
           its local disk storage is not safe for several writers, hence the bucket
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.storage.objects import Folder, Objects, place_of
from scansnap.storage.zarr_store import open_group, writing_all_chunks
from scansnap.sweep.template import create_array

RUNS, NAMES, WRITERS = 4, ("loss", "entropy", "recall", "top_mass"), 4
VALUES = np.random.default_rng(0).random((RUNS, 2), dtype=np.float32)
MARK = np.ones(RUNS, dtype=bool)
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def template(store: Any, n: int) -> None:
    """Empty arrays for n groups."""
    import zarr

    group = zarr.open_group(store, mode="a")
    for name in NAMES:
        create_array(group, name, ("run", "step"), (n * RUNS, 2), RUNS, dtype=np.dtype("float32"))
    create_array(group, "done", ("run",), (n * RUNS,), RUNS, dtype=np.dtype(bool))


class Ours:
    """Regions of a template, as a sweep fills them."""

    def __init__(self, place: Objects, n: int, begin: bool = True) -> None:
        import zarr

        if begin:
            memory: dict[str, Any] = {}
            template(zarr.storage.MemoryStore(memory), n)
            place.begin({name: memory[name].to_bytes() for name in memory}, "zarr.json", replaces=True)
        with writing_all_chunks():
            group = open_group(place.zarr(write=True), mode="r+")
            self.arrays = {name: group[name] for name in (*NAMES, "done")}

    def write(self, first: int, last: int, names: tuple[str, ...] = (*NAMES, "done")) -> None:
        for i in range(first, last):
            for name in names:
                self.arrays[name][i * RUNS : (i + 1) * RUNS] = MARK if name == "done" else VALUES


class Ice:
    """A transaction for the groups of each call."""

    def __init__(self, storage: Any, n: int, begin: bool = True) -> None:
        import icechunk

        self.engine = icechunk
        self.repository = icechunk.Repository.create(storage) if begin else icechunk.Repository.open(storage)
        if begin:
            session = self.repository.writable_session("main")
            template(session.store, n)
            session.commit("template")

    def write(self, first: int, last: int, commit: bool = True) -> None:
        import zarr

        session = self.repository.writable_session("main")
        group: Any = zarr.open_group(session.store, mode="r+")
        for i in range(first, last):
            for name in NAMES:
                group[name][i * RUNS : (i + 1) * RUNS] = VALUES
            group["done"][i * RUNS : (i + 1) * RUNS] = MARK
        if commit:
            session.commit(str(first), rebase_with=self.engine.ConflictDetector(), rebase_tries=1000)


def beside(folder: Path) -> str:
    """What is there but the chunks of the arrays."""
    names = [name for name in folder.rglob("*") if name.is_file()]
    rest = [name for name in names if "/c/" not in str(name) and "/chunks/" not in str(name)]
    return (
        f"{len(names)} objects; beside the chunks {len(rest)} with {sum(n.stat().st_size for n in rest) / 1e6:.1f} MB"
    )


def alone(name: str, engine: Any, folder: Path, n: int, at_once: int, seconds: float) -> None:
    """One writer, in fifths."""
    began, fifth, done, pace = time.perf_counter(), max(at_once, n // 5), 0, []
    while done < n and time.perf_counter() - began < seconds:
        wall, spent, start = time.perf_counter(), time.process_time(), done
        while done < min(n, start + fifth) and time.perf_counter() - began < seconds:
            engine.write(done, done + at_once)
            done += at_once
        if done > start:
            wall, spent = time.perf_counter() - wall, 1e3 * (time.process_time() - spent) / (done - start)
            pace.append(f"{(done - start) / wall:.0f}/s {spent:.1f} ms")
    print(f"{name}: {done} groups in {time.perf_counter() - began:.0f} s (pace, processor: {'; '.join(pace)})")
    print(f"    {beside(folder)}", flush=True)


def _storage(prefix: str, endpoint: str) -> Any:
    import icechunk

    return icechunk.s3_storage(bucket="stores", prefix=prefix, region="us-east-1", endpoint_url=endpoint, from_env=True,
                               allow_http=True, force_path_style=True)  # fmt: skip


def _contender(kind: str, endpoint: str, n: int, number: int, seconds: float) -> int:
    engine: Any = Ours(place_of("s3://stores/ours.zarr", endpoint=endpoint), n, False) if kind == "ours" else Ice(
        _storage("ice", endpoint), n, False
    )  # fmt: skip
    began, done = time.perf_counter(), 0
    for i in range(number, n, WRITERS):
        if time.perf_counter() - began > seconds:
            break
        engine.write(i, i + 1)
        done += 1
    return done


def contend(n: int, seconds: float) -> None:
    """Several writers at once."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert server.stdout is not None
    endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
    os.environ |= {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    place = place_of("s3://stores/ours.zarr", endpoint=endpoint)
    place._system.mkdir("stores")  # type: ignore[attr-defined]
    Ours(place, n)
    Ice(_storage("ice", endpoint), n)
    for kind in ("ours", "ice"):
        for writers in (1, WRITERS):
            with ProcessPoolExecutor(writers, get_context("spawn")) as pool:
                jobs = [pool.submit(_contender, kind, endpoint, n, number, seconds) for number in range(writers)]
                done = [job.result() for job in jobs]
            print(f"{kind}, bucket, {writers} writers: {sum(done) / seconds:.1f} groups/s {done}", flush=True)
    server.communicate()


def killed(folder: Path) -> None:
    """A writer that ends after its chunks."""
    import xarray as xr

    ice = Ice(_local(folder / "killed.ice"), 10)
    ice.write(0, 1)
    before = len(list((folder / "killed.ice").rglob("*")))
    ice.write(1, 2, commit=False)
    left = len(list((folder / "killed.ice").rglob("*"))) - before
    print(f"Icechunk: {left} objects that no snapshot knows (chunks above 512 bytes; gone with its garbage collection)")
    ours = Ours(Folder(folder / "killed.zarr"), 10)
    ours.write(0, 1)
    ours.write(1, 2, NAMES)
    with xr.open_zarr(folder / "killed.zarr") as data:
        done = int(data.done.sum())
    print(
        f"objects: {len(NAMES)} chunks of runs that are not done ({done} are), the same bytes when they are made again"
    )


def _local(folder: Path) -> Any:
    import icechunk

    return icechunk.local_filesystem_storage(str(folder))


def main(n: int, seconds: float) -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        alone("objects", Ours(Folder(folder / "ours.zarr"), n), folder / "ours.zarr", n, 1, seconds)
        for at_once in (1, 100):
            place = folder / f"ice{at_once}"
            alone(f"Icechunk, {at_once} groups a commit", Ice(_local(place), n), place, n, at_once, seconds)
        killed(folder)
        contend(n, min(seconds, 15))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    main(given.groups, given.seconds)

"""Revisions of a repository, from a server on this machine that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.checks import InputError
from scansnap.probe.checkpoints import measure_folder
from scansnap.probe.checkpoints.hub import log_spaced

pytest.importorskip("transformers")
from folders import hugging_face

REPOSITORY = "lab/tiny"


class Hub:
    """Branches with files; ``downloads`` lists the weights that were sent."""

    def __init__(self, branches: dict[str, Path]) -> None:
        self.commits = {hashlib.sha1(name.encode()).hexdigest(): (name, folder) for name, folder in branches.items()}
        self.downloads: list[str] = []

    def answer(self, path: str) -> tuple[bytes, dict[str, str]] | None:
        if path == f"/api/models/{REPOSITORY}/refs":
            branches = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
                        for commit, (name, _) in self.commits.items()]  # fmt: skip
            return json.dumps({"branches": branches, "converts": [], "tags": []}).encode(), {}
        if tree := re.match(rf"/api/models/{REPOSITORY}/tree/(\w+)", path):
            files = sorted(self.commits[tree[1]][1].iterdir())
            return json.dumps([self.entry(file) for file in files]).encode(), {}
        if file := re.match(rf"/{REPOSITORY}/resolve/(\w+)/(.+)", path):
            name, folder = self.commits[file[1]]
            content = (folder / file[2]).read_bytes()
            return content, {"X-Repo-Commit": file[1], "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                             "revision": name}  # fmt: skip
        return None

    @staticmethod
    def entry(file: Path) -> dict:
        content = file.read_bytes()
        entry = {"type": "file", "path": file.name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
        if file.suffix == ".safetensors":
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
        return entry


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Four steps, of which the last is a copy of the second, one without weights, and a branch without a step."""
    root = hugging_face(tmp_path_factory.mktemp("hub"), [0, 2, 10])
    empty = root / "empty"
    empty.mkdir()
    (empty / "config.json").write_text("{}")
    folders = {f"step{step}": root / f"checkpoint-{step}" for step in (0, 2, 10)}
    return {"main": root / "checkpoint-10", **folders, "step30": root / "checkpoint-2", "step40": empty}


@pytest.fixture
def hub(branches: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    state = Hub(branches)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = state.answer(self.path.partition("?")[0])
            if answer is None:
                self.send_error(404, "", "no such repository")
                return
            content, headers = answer
            if self.command == "GET" and self.path.endswith(".safetensors"):
                state.downloads.append(headers["revision"])
            self.send_response(200)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", np.arange(45).reshape(3, 15) % 40)
    return tmp_path / "ids.npy"


def test_revisions_are_measured_as_a_folder_of_them_is(hub: Hub, branches, ids: Path, tmp_path: Path) -> None:
    result = measure_folder(f"hf:{REPOSITORY}", ids, out=tmp_path / "hub.zarr")
    local = measure_folder(branches["step0"].parent, ids, out=tmp_path / "folder.zarr")
    xr.testing.assert_equal(result.data, local.data)
    assert hub.downloads == ["step0", "step2", "step10"]
    assert [(copy.name, first.name) for copy, first in result.duplicates] == [("step30", "step2")]
    assert [name for name, _ in result.skipped] == ["step40"]


def test_a_second_call_downloads_only_what_is_new(hub: Hub, ids: Path, tmp_path: Path) -> None:
    for names, expected in (("step0,step10", ["step0", "step10"]), ("step0,step10,step30", ["step0", "step30"])):
        hub.downloads.clear()
        measure_folder(f"hf:{REPOSITORY}", ids, out=tmp_path / "hub.zarr", revisions=names)
        assert hub.downloads == expected  # the first one tells what the model is
    assert ss.load(tmp_path / "hub.zarr").step.values.tolist() == [0, 10, 30]


def test_nothing_is_left_on_disk_without_a_cache(hub: Hub, ids: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    measure_folder(f"hf:{REPOSITORY}", ids, out=tmp_path / "a.zarr", revisions="step0")
    assert not list((tmp_path / "scratch").iterdir())
    for name in ("b.zarr", "c.zarr"):
        measure_folder(f"hf:{REPOSITORY}", ids, out=tmp_path / name, revisions="step0", cache=tmp_path / "cache")
    assert hub.downloads == ["step0", "step0"], "the third time it is in the cache"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("FOLDER", {"folder": "hf:lab/none"}),
        ("--revisions", {"revisions": "step7"}),
        ("--steps", {"steps": "epoch(1)"}),
    ],
)
def test_what_the_hub_does_not_have_is_refused(hub: Hub, ids: Path, tmp_path: Path, field: str, options) -> None:
    arguments = {"folder": f"hf:{REPOSITORY}", "out": tmp_path / "x.zarr"} | options
    with pytest.raises(InputError) as error:
        measure_folder(batch=ids, **arguments)
    assert error.value.field == field
    assert not (tmp_path / "x.zarr").exists()


def test_steps_spaced_in_their_logarithm() -> None:
    steps = [0, 1, 2, 4, 8, 16, 32, 64, *range(1000, 143_001, 1000)]
    chosen = log_spaced(steps, 2)
    assert chosen == [0, 1, 4, 16, 32, 1000, 4000, 10_000, 32_000, 100_000, 143_000]

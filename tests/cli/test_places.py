"""Where commands write: refused before the work, never over somebody's file, and one sentence when the disk fails."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from local_pool import local_pool
from scansnap.claims import verify as claims
from scansnap.cli import run as run_command
from scansnap.cli.text import predict as predict_command
from scansnap.cli.text import train as text_command
from scansnap.paper.report import make
from scansnap.storage import is_stream, put

SWEEP = '[classes]\npreset = "syn-small"\n[grid]\neta_z = [1, 2]\nratio = 1\n[run]\nsteps = 2\n[groups]\nruns = 1\n'
DECK = 'title = "x"\n[[beat]]\nsetup = {preset = "figure-4", steps = 2}\nto = 2\nsentence = "They fall."\n'
TRAIN = ("text", "train", "--data", "t.txt", "--batch", 2, "--length", 5, "--device", "cpu")
EXPLAIN = ("text", "explain", "m.safetensors", "--query", "the")
MAP = ("verify", "--map", "theorem-1", "--points", 2)

# every command that writes, with the options that say where
WRITERS = {
    "run": (("run", "--steps", 3, "--record", "all"), "--out", "x.zarr"),
    "run to NetCDF": (("run", "--steps", 3, "--record", "all", "--no-figure"), "--out", "x.nc"),
    "the figure of run": (("run", "--steps", 1, "--out", "x.nc"), None, "x.png"),
    "sweep": (("sweep", "s.toml", "--device", "cpu"), "--out", "x.zarr"),
    "verify --figure": (("verify",), "--figure", "x.png"),
    "verify --json": (("verify",), "--json", "x.json"),
    "verify --map": (MAP, "--out", "x.svg"),
    "the data of verify --map": ((*MAP, "--out", "x.png"), None, "x.csv"),
    "text train": ((*TRAIN, "--steps", 2), "--out", "x.safetensors"),
    "text predict": (("text", "predict", *TRAIN[2:], "--steps", 2), "--out", "x.safetensors"),
    "text explain": (EXPLAIN, "--figure", "x.pdf"),
    "lecture": (("lecture", "d.toml"), "--out", "x.html"),
    "reproduce": (("reproduce", "fig3", "--quick", "--device", "cpu"), "--out", "x"),
}
SMALL = (
    "verify --json",
    "text train",
    "text predict",
    "the data of verify --map",
)  # what they write here fits almost everywhere
EVERY = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture(scope="module")
def evidence():
    from scansnap.classes import SequenceClasses

    gathered = claims.gather_evidence(
        SequenceClasses.syn_small(), eta_y=0.9, eta_z=0.02, context=float("inf"), t_end=2.0
    )
    return gathered, claims.Report("a setting", tuple(claims.judge_evidence(gathered))[:2])


@pytest.fixture
def work(scansnap, monkeypatch, tmp_path, evidence):
    """The command line in a folder with input for everything; flows, which take long, are not computed anew."""
    from scansnap.claims import regime_map

    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(claims, "gather_evidence", lambda *_, **__: evidence[0])
    monkeypatch.setattr(claims, "judge_evidence", lambda *_: evidence[1])
    monkeypatch.setattr(regime_map, "killable_pool", local_pool)
    monkeypatch.setattr(regime_map, "_point", lambda theorem, setting: ({"claim": setting.ratio - 100}, True))
    monkeypatch.setattr(regime_map, "as_completed", iter)
    (tmp_path / "s.toml").write_text(SWEEP)
    (tmp_path / "d.toml").write_text(DECK)
    (tmp_path / "t.txt").write_text("the cat sat on the mat\nthe dog ran in the park\n" * 30)
    code, _, err = scansnap(*TRAIN, "--steps", 1, "--out", "m.safetensors")
    assert code == 0, err
    return scansnap


def call(work, name, *more, path=None):
    words, option, usual = WRITERS[name]
    return work(*words, *((option, usual if path is None else path) if option else ()), *more)


def whole(folder):
    return {p.relative_to(folder): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")
            if "cache" not in p.parts}  # fmt: skip


@EVERY
def test_it_writes_what_it_says(work, tmp_path, name):
    assert call(work, name)[0] in (0, 1)  # a claim may fail
    assert (tmp_path / WRITERS[name][2]).exists()
    assert not list(tmp_path.glob(".*"))


@EVERY
def test_somebodys_file_is_not_replaced(work, tmp_path, name):
    if name == "reproduce":
        (tmp_path / "x").mkdir()
        existing = tmp_path / "x" / "fig3.png"
    else:
        existing = tmp_path / WRITERS[name][2]
    if name in ("run", "sweep"):
        existing.mkdir()
        existing = existing / "thesis.txt"
    existing.write_text("somebody's")
    before = whole(tmp_path)
    code, out, err = call(work, name)
    assert code == 2
    assert "--overwrite" in err
    assert err.count("\n") == 1
    assert out == ""
    assert whole(tmp_path) == before
    assert call(work, name, "--overwrite")[0] in (0, 1)
    assert not existing.exists() or existing.read_bytes() != b"somebody's"


PLACES = ["", "/", "..", "folder", "file/{}", "/proc/{}", "/dev/null/{}", "n" * 260 + "{}", "new/" + "n" * 260 + "/{}",
          "old.zarr/{}"]  # fmt: skip


HERE = ("", "..", "folder")  # where a reproduction may write


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name, (_, option, _) in WRITERS.items() for place in PLACES
     if option and not (name == "reproduce" and place in HERE)],
)  # fmt: skip
def test_a_place_that_cannot_be_written_is_refused_before_the_work(work, monkeypatch, tmp_path, name, place):
    _, option, usual = WRITERS[name]

    def no_work(*_, **__):
        raise AssertionError("the work was begun")

    for module, function in ((run_command, "find_run"), (text_command, "read_corpus"), (predict_command, "read_corpus"),
                             (claims, "gather_evidence"), (make, "make")):  # fmt: skip
        monkeypatch.setattr(module, function, no_work)
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "old.zarr").mkdir()
    before = whole(tmp_path)
    code, out, err = call(work, name, path=place.format(usual))
    assert code == 2, err
    assert option in err
    assert err.count("\n") == 1
    assert out == ""
    assert whole(tmp_path) == before


def sentence(err):
    """What was said apart from progress."""
    lines = [line for line in err.splitlines() if not line.startswith(("Corpus(", "Figure", "Note: "))]
    assert len(lines) == 1, err
    assert lines[0].startswith("Error: ")
    return lines[0]


@pytest.mark.parametrize("limit", [0, 4096])
@EVERY
def test_a_disk_that_takes_no_more_is_one_sentence(work, tmp_path, name, limit):
    """The kernel refuses files beyond a size, as a full disk does: before the work, or in the middle of it."""
    before, soft = whole(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, soft[1]))
    try:
        code, _, err = call(work, name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft)
    if name in SMALL and limit:
        assert code in (0, 1)
        assert "Traceback" not in err
        return
    assert code == (1 if limit else 2), err
    assert "written" in sentence(err)
    assert not list(tmp_path.rglob(".scansnap*"))
    assert limit or whole(tmp_path) == before


@pytest.fixture
def small_disk(tmp_path):
    """48 kB, of which all but a little is taken."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "none", disk], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only, and not everywhere")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.parametrize("free", [0, 8])
@EVERY
def test_a_full_disk_is_one_sentence(work, small_disk, name, free):
    words, option, usual = WRITERS[name]
    (small_disk / "filler").write_bytes(b"x" * (48 - free) * 1024)
    if option is None:
        words, option, usual = {"the figure of run": (words[:-2], "--out", "x.nc"),
                                "the data of verify --map": (words[:-2], "--out", "x.png")}[name]  # fmt: skip
    code, _, err = work(*words, option, small_disk / usual)
    if not (name in SMALL and free):
        assert code == (1 if free else 2), err
        assert "written" in sentence(err)
    assert "Traceback" not in err
    assert not list(small_disk.rglob(".scansnap*"))


def test_a_device_is_written_to_and_not_replaced(work, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert is_stream(fifo)
    code, _, err = work("verify", "--json", "/dev/full")
    assert code == 1
    assert err == "Error: /dev/full could not be written (No space left on device).\n"
    assert work("verify", "--json", "/dev/null")[0] in (0, 1)
    assert is_stream(Path("/dev/null"))
    code, _, err = work("verify", "--figure", "/dev/null")
    assert code == 2


def test_output_that_cannot_be_written_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "scansnap", "info", "--preset", "syn-small"],
                              stdout=full, stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "Error: [Errno 28] No space left on device\n"


def test_two_runs_and_two_trainings_with_one_place_do_not_mix(work, monkeypatch, tmp_path):
    """The second starts while the first is at work; the first ends as if there had been no second."""
    for module, words, name in ((run_command, ("run", "--steps", 4, "--no-figure"), "a.zarr"),
                                (text_command, (*TRAIN, "--steps", 3, "--seed", 5), "a.safetensors")):  # fmt: skip
        assert work(*words, "--out", f"alone-{name}")[0] == 0
        bar, second = module.progress_bar, []

        @contextmanager
        def busy(label, words=words, name=name, bar=bar, second=second, module=module):
            def report(*_):
                if not second:
                    second.append(None)
                    monkeypatch.setattr(module, "progress_bar", bar)
                    for more in ((), ("--overwrite",)):
                        second.append(work(*words, "--seed", 9, *more, "--out", name))

            yield report if label != "reading the text" else lambda *_: None

        monkeypatch.setattr(module, "progress_bar", busy)
        code, _, err = work(*words, "--out", name)
        monkeypatch.setattr(module, "progress_bar", bar)
        assert code == 0, err
        for code, _, err in second[1:]:
            assert code == 2
            assert "another process" in err
        assert whole(tmp_path / name) == whole(tmp_path / f"alone-{name}")
        assert (tmp_path / name).is_dir() or (tmp_path / name).read_bytes() == (tmp_path / f"alone-{name}").read_bytes()


def test_a_reproduction_replaces_what_is_its_own(work, tmp_path):
    words = ("reproduce", "fig3", "table1", "--quick", "--device", "cpu", "--out", "x")
    assert work(*words)[0] == 0
    assert work(*words)[0] == 0
    (tmp_path / "x" / "claims.pdf").write_text("somebody's")
    assert work("reproduce", "claims", "--quick", "--out", "x")[0] == 2
    assert (tmp_path / "x" / "claims.pdf").read_text() == "somebody's"


def test_what_a_killed_reproduction_left_is_its_own(work, monkeypatch, tmp_path):
    def killed(*_):
        raise MemoryError("stands for whatever ends a process")

    with monkeypatch.context() as patch:
        patch.setattr(make, "add_entry", killed)
        assert work("reproduce", "fig3", "--quick", "--device", "cpu", "--out", "x")[0] == 1
    assert (tmp_path / "x" / "fig3.png").exists()
    assert work("reproduce", "fig3", "--quick", "--device", "cpu", "--out", "x")[0] == 0


def test_run_draws_its_picture_when_resumed_and_leaves_it_when_it_is_there(work, tmp_path):
    assert work("run", "--steps", 1, "--out", "a.zarr", "--no-figure")[0] == 0
    assert work("run", "--steps", 1, "--out", "a.zarr", "--resume")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    put(tmp_path / "a.png", "mine")
    assert work("run", "--steps", 1, "--out", "a.zarr", "--resume")[0] == 0
    assert (tmp_path / "a.png").read_text() == "mine"
    assert work("run", "--steps", 1, "--out", "a.zarr", "--resume", "--overwrite")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

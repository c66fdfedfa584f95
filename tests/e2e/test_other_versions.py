"""Unfinished work is not continued by other versions, in any command; finished results are read by all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import scansnap as package
from local_pool import local_pool
from scansnap.checks import InputError
from scansnap.claims import regime_map, regime_map_sgd
from scansnap.cli import run as run_command
from scansnap.cli.text import train as text_command
from scansnap.storage import versions
from scansnap.storage.versions import decisive_versions, refuse_other_versions

RUN = ("run", "--optimizer", "adam", "--eta-z", 0.01, "--steps", 40, "--no-figure", "--out", "it.zarr")
TEXT = ("text", "train", "--data", "t.txt", "--steps", 6, "--batch", 2, "--length", 5, "--device", "cpu", "--out",
        "it.safetensors")  # fmt: skip
SWEEP = ("sweep", "s.toml", "--device", "cpu", "--out", "it.zarr")
MAP = ("verify", "--map", "theorem-3", "--sgd", "--points", 2, "--seeds", 2, "--batch-size", 4, "--finite-T", 8,
       "--x", "ratio=1:10:log", "--y", "eta_y=0.5:0.9", "--out", "it.png")  # fmt: skip
TOML = '[classes]\npreset = "syn-small"\n[grid]\neta_z = [1, 2, 3]\nratio = 1\n[run]\nsteps = 2\n[groups]\nruns = 1\n'


@contextmanager
def stopping_bar(*_: Any) -> Iterator[Callable[..., None]]:
    def report(*_: Any) -> None:
        raise KeyboardInterrupt

    yield report


def stop_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_command, "progress_bar", stopping_bar)


def stop_text(patch: pytest.MonkeyPatch) -> None:
    bar = text_command.progress_bar
    patch.setattr(text_command, "progress_bar", lambda label: (stopping_bar if label == "training" else bar)(label))


def stop_sweep(patch: pytest.MonkeyPatch) -> None:
    from scansnap.sweep import backends

    made, group = [], backends.run_group

    def second_stops(*given: Any) -> Any:
        made.append(given)
        if len(made) == 2:
            raise KeyboardInterrupt
        return group(*given)

    patch.setattr(backends, "run_group", second_stops)


def stop_map(patch: pytest.MonkeyPatch) -> None:
    joined, done = regime_map_sgd._results, []

    def second_stops(jobs: Any) -> Any:
        done.append(jobs)
        if len(done) == 2:
            raise KeyboardInterrupt
        return joined(jobs)

    patch.setattr(regime_map_sgd, "_results", second_stops)


COMMANDS = pytest.mark.parametrize(
    ("words", "stop", "go_on", "field"),
    [
        pytest.param(RUN, stop_run, ("--resume",), "the unfinished run", id="run"),
        pytest.param(TEXT, stop_text, ("--resume",), "--out", id="text-train"),
        pytest.param(SWEEP, stop_sweep, ("--resume",), "--out", id="sweep"),
        pytest.param(MAP, stop_map, (), "the folder with unfinished work", id="map"),
    ],
)


@pytest.fixture
def work(scansnap, tmp_path, monkeypatch):
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    for module in (regime_map, regime_map_sgd):
        monkeypatch.setattr(module, "killable_pool", local_pool)
    monkeypatch.setattr(regime_map, "_point", lambda *_: ({"theorem-3-upper": 0.5}, True))  # flows take seconds
    monkeypatch.setattr(regime_map, "as_completed", list)
    (tmp_path / "t.txt").write_text("the cat sat on the mat\nthe dog ran in the park\n" * 30)
    (tmp_path / "s.toml").write_text(TOML)
    return scansnap


def tree(folder: Path) -> dict[str, bytes | None]:
    places = (place for place in folder.rglob("*") if "cache" not in place.relative_to(folder).parts)
    return {str(place.relative_to(folder)): place.read_bytes() if place.is_file() else None for place in places}


@COMMANDS
def test_unfinished_work_is_refused_and_finished_work_is_read(
    work, tmp_path, monkeypatch, words, stop, go_on, field
) -> None:
    with monkeypatch.context() as patch:
        stop(patch)
        assert work(*words)[0] == 130
    left = tree(tmp_path)
    for name, version in (("scansnap", "9.8.7"), ("torch", "9.8.7+cpu")):
        with monkeypatch.context() as patch:
            patch.setattr(versions, "decisive_versions", lambda n=name, v=version: decisive_versions() | {n: v})
            code, out, err = work(*words, *go_on)
        assert (code, out) == (2, "")
        assert err.startswith(f"Error: {field}: ")
        assert f"{name} {version}" in err
        assert f"{name} {decisive_versions()[name]}" in err
        assert tree(tmp_path) == left
    assert work(*words, *go_on)[0] == 0
    if go_on:
        monkeypatch.setattr(package, "__version__", "9.8.7")
        done = tree(tmp_path)
        assert work(*words, *go_on)[0] == 0
        assert tree(tmp_path).keys() == done.keys()


@COMMANDS
def test_overwrite_begins_again_with_other_versions(work, tmp_path, monkeypatch, words, stop, go_on, field) -> None:
    with monkeypatch.context() as patch:
        stop(patch)
        assert work(*words)[0] == 130
    monkeypatch.setattr(package, "__version__", "9.8.7")
    assert work(*words, "--overwrite")[0] == 0


def test_a_trained_model_is_not_trained_further_by_another_version(work, monkeypatch) -> None:
    assert work(*TEXT)[0] == 0
    longer = [8 if word == 6 else word for word in TEXT]
    with monkeypatch.context() as patch:
        patch.setattr(package, "__version__", "9.8.7")
        assert work(*longer, "--resume")[0] == 2
    assert work(*longer, "--resume")[0] == 0


def test_work_that_names_no_versions_is_refused() -> None:
    refuse_other_versions("x", "here", decisive_versions() | {"python": "2.7"})
    for recorded in (None, {}, {"scansnap": decisive_versions()["scansnap"]}):
        with pytest.raises(InputError) as refused:
            refuse_other_versions("x", "here", recorded)
        assert refused.value.field == "x"

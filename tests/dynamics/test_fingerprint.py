"""The fingerprint of a run: only the same run is continued, and the refusal names what differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from refusals import assert_refusal
from scansnap.dynamics import loop
from scansnap.dynamics.fingerprint import describe_difference, digest, run_fingerprint
from scansnap.dynamics.settings import settings
from scansnap.kernels.cpu import library

CLASSES = ss.SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=2, distinct=3)
NAMED = ss.SequenceClasses(
    CLASSES.p_context, CLASSES.query, CLASSES.next_token, words=[f"word {i}" for i in range(CLASSES.vocab_size)]
)
RUNS = ss.grid(eta_z=[0.5, 1.0], ratio=2, seed=[0, 1])
OPTIONS: dict[str, Any] = {"steps": 8, "batch_size": 16, "device": "cpu"}

needs_kernels = pytest.mark.skipif(not library.available(), reason="the fused engine is not compiled here")


@pytest.fixture(autouse=True)
def _one_step_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_STRETCH_FLOATS", 1)


def at_step_4(step: int, total: int) -> None:
    if step == 4:
        raise KeyboardInterrupt


def interrupted(target: Path, **options: Any) -> None:
    with pytest.raises(ss.Interrupted):
        ss.simulate(CLASSES, RUNS, **{**OPTIONS, **options}, save_to=target, progress=at_step_4)


def refusal(target: Path, classes: ss.SequenceClasses = CLASSES, runs: ss.Runs = RUNS, **options: Any) -> ss.InputError:
    with pytest.raises(ss.InputError) as caught:
        ss.simulate(classes, runs, **{**OPTIONS, **options}, save_to=target, resume=True)
    return caught.value


@needs_kernels
def test_a_run_does_not_change_its_engine(tmp_path: Path) -> None:
    """``auto`` is the fused engine here: a run that began with it does not go on with the other one."""
    target = tmp_path / "a.zarr"
    interrupted(target, engine="auto")
    names = ("engine", "fused", "general")
    assert_refusal(refusal(target, engine="general"), "the unfinished run", f"{target}.partial", names=names)
    whole = ss.simulate(CLASSES, RUNS, **OPTIONS)
    assert ss.simulate(CLASSES, RUNS, **OPTIONS, engine="fused", save_to=target, resume=True).identical(whole)
    error = refusal(target, engine="general")  # nor is the finished one taken for it
    assert_refusal(error, "save_to", str(target), names=("engine", "fused", "general", "overwrite"))


@needs_kernels
def test_an_engine_that_is_not_there_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command on a machine without the compiled kernels is another engine."""
    interrupted(tmp_path / "a.zarr")
    monkeypatch.setattr(library, "available", lambda: False)
    assert_refusal(refusal(tmp_path / "a.zarr"), "the unfinished run", names=("engine", "fused", "general"))


def test_a_run_does_not_change_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # as if begun on a GPU
        patch.setattr(
            loop, "run_fingerprint", lambda *run, engine, device: run_fingerprint(*run, engine=engine, device="cuda")
        )
        interrupted(tmp_path / "a.zarr")
    assert_refusal(refusal(tmp_path / "a.zarr"), "the unfinished run", names=("device", "cuda", "cpu"))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"steps": 9, "record": [0]}, ("record", "[0, 1, 2, 3, 4, 5, 6, 7, 8]", "[0]", "steps", "8", "9")),
        ({"runs": ss.grid(eta_z=[0.5, 1.0], ratio=2, seed=[0, 2])}, ("seed", "[0, 1, 0, 1]", "[0, 2, 0, 2]")),
        ({"classes": ss.SequenceClasses.syn_small()}, ("classes",)),
        ({"context": "inf"}, ("context", "128", "inf")),
        ({"optimizer": {"z": "adam"}, "engine": "general"}, ("optimizer_z.name", "sgd", "adam")),
        ({"norm": "none", "engine": "general"}, ("norm", "l2", "none")),
        ({"dtype": "float64", "engine": "general"}, ("dtype", "float32", "float64")),
        ({"batch_size": None, "context": "inf"}, ("batch_size", "16", "null", "context", "128", "inf")),
    ],
    ids=lambda other: "-".join(other) if isinstance(other, dict) else "",
)
def test_what_differs_is_named(tmp_path: Path, other: dict[str, Any], named: tuple[str, ...]) -> None:
    interrupted(tmp_path / "a.zarr", engine=other.get("engine", "auto"))
    assert_refusal(refusal(tmp_path / "a.zarr", **other), "the unfinished run", names=named)


def test_many_differences_are_counted(tmp_path: Path) -> None:
    interrupted(tmp_path / "a.zarr")
    error = refusal(tmp_path / "a.zarr", steps=9, batch_size=4, context=9, momentum=0.5, init="uniform")
    assert_refusal(error, "the unfinished run", names="3 more")  # with record, which follows the steps


def test_how_tokens_read_does_not_matter(tmp_path: Path) -> None:
    interrupted(tmp_path / "a.zarr")
    data = ss.simulate(NAMED, RUNS, **OPTIONS, save_to=tmp_path / "a.zarr", resume=True)
    assert data.attrs["complete"] == 1


def test_files_of_older_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They had one digest for all, without engine and device."""
    with monkeypatch.context() as patch:
        patch.setattr(loop, "run_fingerprint", lambda *run, **place: "0123456789abcdef")
        interrupted(tmp_path / "unfinished.zarr")
        ss.simulate(CLASSES, RUNS, **OPTIONS, save_to=tmp_path / "finished.zarr")
    for name, field in (("unfinished", "the unfinished run"), ("finished", "save_to")):
        assert_refusal(refusal(tmp_path / f"{name}.zarr"), field, names="version")


def test_a_digest_is_of_the_numbers_alone() -> None:
    first = digest({"a": 1, "b": np.array([0.1, 2.0])}, np.int64(3))
    assert first == digest({"b": [0.1, 2.0], "a": 1}, 3)
    assert first != digest({"b": [0.1 + 1e-16, 2.0], "a": 1}, 3)
    assert first != digest({"b": [0.1, 2.0], "a": 1}, 4)
    with pytest.raises(TypeError):
        digest(object())


def what(classes: ss.SequenceClasses) -> dict[str, str]:
    return {"classes": classes.as_toml(words=False)}


def test_every_setting_changes_the_fingerprint() -> None:
    plan, runs = settings({"steps": 8, "record": [0, 8]}), RUNS.filled()
    fingerprint = run_fingerprint(what(CLASSES), runs, plan, engine="fused", device="cpu")
    assert fingerprint == run_fingerprint(what(NAMED), runs, plan, engine="fused", device="cpu")
    others = [
        run_fingerprint(what(CLASSES), runs, plan, engine="general", device="cpu"),
        run_fingerprint(what(CLASSES), runs, plan, engine="fused", device="cuda"),
        run_fingerprint(what(CLASSES), RUNS.filled(momentum=0.5), plan, engine="fused", device="cpu"),
        run_fingerprint(what(CLASSES), RUNS.filled(weight_decay=0.5), plan, engine="fused", device="cpu"),
    ]
    changes = {"steps": 9, "batch_size": 7, "context": 7, "sampling": "tokens", "norm": "none", "residual": "plain",
               "query_in_keys": True, "outputs": "next", "heads": 2, "position_bias": 0.1, "init": "uniform",
               "optimizer": "adam", "record": [0], "variables": ["loss"], "dtype": "float64"}  # fmt: skip
    for name, value in changes.items():
        other = settings({"steps": 8, "record": [0, 8], name: value})
        others.append(run_fingerprint(what(CLASSES), runs, other, engine="fused", device="cpu"))
        assert name in describe_difference(fingerprint, others[-1]), name
    single = settings({"steps": 8, "record": [0, 8], "batch_size": 1, "context": "inf"})
    others += [run_fingerprint(what(CLASSES), runs, one, engine="fused", device="cpu")
               for one in (single, replace(single, update="modified"))]  # fmt: skip
    p_class = np.nextafter(CLASSES.p_class, [1, 0])
    nearly = ss.SequenceClasses(CLASSES.p_context, CLASSES.query, CLASSES.next_token, p_class)
    others.append(run_fingerprint(what(nearly), runs, plan, engine="fused", device="cpu"))
    assert len({fingerprint, *others}) == 1 + len(others)


def test_the_numbers_of_very_many_runs_count() -> None:
    """Although they are not listed."""
    runs = ss.grid(eta_z=np.linspace(0.5, 1, 5000), eta_y=1.0)
    changed = runs.eta_z.copy()
    changed[4321] += 1e-9
    plan = settings({})
    one, same, other = (
        run_fingerprint({}, replace(runs, eta_z=eta_z), plan, engine="fused", device="cpu")
        for eta_z in (runs.eta_z, runs.eta_z.copy(), changed)
    )
    assert one == same
    assert one != other
    assert describe_difference(one, other) == "eta_z differs"
    assert len(one) < 3000

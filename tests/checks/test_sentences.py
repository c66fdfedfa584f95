"""Whole messages, as users read them: the only place where tests say how a refusal is worded.

Renew ``sentences.txt`` after a message was changed on purpose, and read the difference:
``.venv/bin/python tests/checks/test_sentences.py``.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import scansnap as ss
from scansnap import measure, theory
from scansnap.checks import InputError, choice, known_keys, real, whole
from scansnap.classes.sampler import ClassSampler
from scansnap.cli import app
from scansnap.corpus.passage import read
from scansnap.storage import claimed
from scansnap.sweep.config import from_table
from scansnap.text.settings import TrainingSettings
from scansnap.text.yz.settings import YZSettings

HERE = Path(__file__).parent
CLASSES = ss.SequenceClasses.syn_small()


def sweep(**tables: Any) -> object:
    return from_table({"classes": {"preset": "syn-small"}, "grid": {"eta_z": 1, "ratio": 2}} | tables)


def toml(text: str) -> object:
    Path("classes.toml").write_text(text)
    return ss.SequenceClasses.from_toml("classes.toml")


def claimed_twice() -> None:
    with claimed("--out", Path("a.zarr")), claimed("--out", Path("a.zarr")):
        pass


def saved_twice() -> None:
    data = ss.simulate(CLASSES, eta_y=1.0, eta_z=1.0, steps=1)
    ss.save(data, "twice.zarr")
    ss.save(data, "twice.zarr")


def damaged() -> None:
    ss.save(ss.simulate(CLASSES, eta_y=1.0, eta_z=1.0, steps=1), "damaged.zarr")
    chunk = next(path for path in sorted(Path("damaged.zarr/z/c").rglob("*")) if path.is_file())
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    ss.load("damaged.zarr")


CALLS: dict[str, Callable[[], object]] = {
    "whole": lambda: whole("steps", -1),
    "whole, bounds": lambda: whole("k", 9, least=1, most=7),
    "whole, type": lambda: whole("steps", 3.0),
    "real": lambda: real("eta_y", float("nan"), least=0),
    "real, bounds": lambda: real("momentum", 1.5, least=0, below=1),
    "choice": lambda: choice("norm", "l3", ("l2", "none", "layernorm")),
    "unknown key": lambda: known_keys("[run]", {"step": 5}, ("steps", "context")),
    "long value": lambda: choice("norm", np.arange(100), ("l2",)),
    "run field": lambda: ss.grid(eta_z=1, ratio=1, eta=1),
    "both rates": lambda: ss.grid(eta_z=1, eta_y=1, ratio=1),
    "setting twice": lambda: ss.simulate(CLASSES, ss.grid(eta_y=1, eta_z=1, momentum=0.5), momentum=0.1),
    "record": lambda: ss.simulate(CLASSES, eta_y=1.0, eta_z=1.0, record="sometimes"),
    "variables": lambda: ss.simulate(CLASSES, eta_y=1.0, eta_z=1.0, variables="losses"),
    "classes": lambda: ss.simulate("syn-small", eta_y=1.0, eta_z=1.0),
    "optimizer": lambda: ss.simulate(CLASSES, eta_y=1.0, eta_z=1.0, optimizer={"name": "adam", "beta1": 1}),
    "flow times": lambda: ss.flow(CLASSES, eta_y=1.0, eta_z=1.0, t=[2.0, 1.0]),
    "preset": lambda: ss.SequenceClasses.preset("syn-large"),
    "setting of a preset": lambda: ss.SequenceClasses.preset("syn-medium", n_query=3),
    "shape": lambda: ss.SequenceClasses([[0.5, 0.5]], query=[0, 1], next_token=[1]),
    "token id": lambda: ss.SequenceClasses([[0.5, 0.5]], query=[2], next_token=[1]),
    "distribution": lambda: ss.SequenceClasses([[0.5, 0.25]], query=[0], next_token=[1]),
    "next token twice": lambda: ss.SequenceClasses(np.eye(2, 9), query=[8, 8], next_token=[1, 1]),
    "TOML": lambda: toml("vocab_size = 4\nclass 3\n"),
    "key of a TOML file": lambda: toml('preset = "syn-small"\npresets = 1\n'),
    "no TOML file": lambda: ss.SequenceClasses.from_toml("nowhere.toml"),
    "sampler": lambda: ClassSampler(CLASSES, context=1),
    "theory": lambda: theory.h(-1.0, eta_y=1, vocab_size=9),
    "broadcast": lambda: theory.h(np.ones(2), eta_y=np.ones(3), vocab_size=9),
    "measure": lambda: measure.top_mass(np.full((1, 7), 1 / 7), 8),
    "sweep table": lambda: sweep(grids={}),
    "sweep measure": lambda: sweep(measure={"recal": {}}),
    "passage": lambda: read("hot tea hot tea", most=10_000),
    "training": lambda: TrainingSettings(steps=10, schedule="cosine", warmup=10),
    "model": lambda: YZSettings(vocab_size=1),
    "file name": lambda: ss.save(ss.simulate(CLASSES, eta_y=1.0, eta_z=1.0, steps=1), "a.csv"),
    "file that exists": saved_twice,
    "no file": lambda: ss.load("nowhere.zarr"),
    "damaged file": damaged,
    "file in use": claimed_twice,
    "resume without a file": lambda: ss.simulate(CLASSES, eta_y=1.0, eta_z=1.0, resume=True),
}
LINES = (
    "run --eta-y -1",
    "run --set n_queries=3",
    "run --out x.csv",
    "info nowhere.zarr",
    "verify --sgd",
    "survey nonsense",
    "dial --rung nothing",
    "text explain nowhere.safetensors --query the",
    "probe nowhere --batch ids.npy",
    "sweep nowhere.toml --out s.zarr",
)


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except InputError as error:
        return str(error)
    raise AssertionError("it was not refused")


def command(line: str) -> str:
    """What the command line says on stderr."""
    with (
        contextlib.redirect_stderr(io.StringIO()) as err,
        contextlib.redirect_stdout(io.StringIO()) as out,
        patch.object(sys, "argv", ["scansnap", *shlex.split(line)]),
        contextlib.suppress(SystemExit),
    ):
        app.main()
    assert out.getvalue() == ""
    return err.getvalue().rstrip("\n")


def sentences() -> str:
    lines = [f"{name}\n    {refusal(call)}" for name, call in CALLS.items()]
    lines += [f"$ scansnap {line}\n    {command(line)}" for line in LINES]
    return "\n".join(lines) + "\n"


def test_messages_are_worded_as_they_were(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentences().splitlines() == (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()


def test_every_message_is_one_line() -> None:
    lines = (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 * (len(CALLS) + len(LINES))
    assert all(line.startswith("    ") and len(line.strip()) > 10 for line in lines[1::2])


if __name__ == "__main__":
    target = (HERE / "sentences.txt").resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = sentences()
        os.chdir(HERE)
    target.write_text(text, encoding="utf-8")

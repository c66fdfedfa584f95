"""Extras mean what they say: the base does without them, and where one is missing a sentence names it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import scansnap as ss
from refusals import refused
from scansnap.checks.extras import EXTRAS, how

SOURCE = Path(ss.__file__).parent
PROJECT = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# imported by name, but installed by another: package → the one that brings it
BROUGHT = {
    "markupsafe": "jinja2", "triton": "torch", "nvidia": "torch",
    "botocore": "s3fs", "google_crc32c": "zarr", "huggingface_hub": "transformers",
}  # fmt: skip
ELSEWHERE = {"lightning", "pytorch_lightning", "wandb", "trackio"}  # whoever uses them has them


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", one)[0].lower().replace("-", "_") for one in requirements}


def imported() -> set[str]:
    """The packages that the source imports or looks for by name, but the standard library's and its own."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("import_module", "find_spec"):
                found |= {str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) - {"scansnap"}


def test_every_import_is_of_the_base_or_of_an_extra() -> None:
    base, optional = names(PROJECT["dependencies"]), {package for some in EXTRAS.values() for package in some}
    seen = imported()
    known = base | optional | ELSEWHERE | {package for package, by in BROUGHT.items() if by in base}
    assert seen - known == set()
    assert {"torch", "datasets", "tokenizers", "ray", "s3fs", "transformers"} <= seen  # it does see them


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_its_sentence_promises(extra: str) -> None:
    there = names(PROJECT["optional-dependencies"][extra])
    assert {BROUGHT.get(package, package) for package in EXTRAS[extra]} <= there
    assert extra in re.findall(r"\w+", PROJECT["optional-dependencies"]["all"][0])


WITHOUT = [
    ("ray", ("sweep", "s.toml", "--out", "s.zarr", "--engine", "ray")),
    ("s3fs", ("sweep", "s.toml", "--out", "s3://bucket/s.zarr")),
    ("datasets", ("text", "train", "--data", "wikitext-2")),
    ("datasets", ("text", "predict", "--data", "wikitext-103", "--query", "river")),
    ("datasets", ("dial", "--data", "text", "--corpus", "wikitext-2", "--quick", "--out", "d")),
    ("datasets", ("reproduce", "fig7", "--data", "wikitext-2", "--quick", "--out", "o")),
    ("tokenizers", ("text", "train", "--data", "small.txt", "--tokenizer", "bpe")),
    ("tensorboard", ("text", "train", "--data", "small.txt", "--tensorboard", "events")),
    ("transformers", ("probe", "checkpoints", "--batch", "small.txt")),
    ("huggingface_hub", ("probe", "hf:organisation/name", "--batch", "small.txt")),
    ("transformers", ("reproduce", "probe", "--quick", "--out", "o")),
]
SWEEP = '[classes]\npreset = "syn-small"\n[grid]\neta_z = [0.5, 1]\nratio = [1]\n[run]\nsteps = 2\n'


@pytest.mark.parametrize(("package", "words"), WITHOUT, ids=lambda one: one if isinstance(one, str) else one[0])
def test_a_missing_package_is_one_sentence_that_names_its_extra(
    scansnap: Callable[..., tuple[int, str, str]],
    package: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "s.toml").write_text(SWEEP)
    (tmp_path / "small.txt").write_text("a b\n" * 50)
    (tmp_path / "checkpoints" / "step1").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step1" / "config.json").write_text("{}")
    (tmp_path / "checkpoints" / "step1" / "model.safetensors").write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setitem(sys.modules, package, None)  # makes the import fail
    if package == "tensorboard":
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # may have been imported with it before
    code, out, err = scansnap(*words)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert how(package) in err
    assert package in err
    assert sorted(tmp_path.rglob("*")) == before  # refused before any work


def test_every_package_of_an_extra_has_been_left_out_above() -> None:
    carried = {"botocore"}  # of s3fs, without which nothing asks for it
    assert {package for package, _ in WITHOUT} | carried == {package for some in EXTRAS.values() for package in some}


BASE = """
import sys
for name in {absent}: sys.modules[name] = None
from scansnap.cli.app import main
for words in (
    ["run", "--steps", "5", "--out", "run.zarr"],
    ["info", "--check", "run.zarr"],
    ["text", "train", "--data", "small.txt", "--steps", "2", "--out", "m.safetensors"],
    ["text", "explain", "m.safetensors", "--query", "b"],
    ["text", "sample", "m.safetensors", "--words", "3"],
    ["reproduce", "table1", "--quick", "--out", "o"],
):
    sys.argv[:] = ["scansnap", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


@pytest.mark.integration
def test_the_base_alone_runs_trains_on_text_and_draws(tmp_path: Path) -> None:
    (tmp_path / "small.txt").write_text("the river b a\nbank of the river b\n" * 40)
    absent = [one for some in EXTRAS.values() for one in some]
    done = subprocess.run([sys.executable, "-c", BASE.format(absent=absent)], cwd=tmp_path, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "o" / "table1.csv").exists()


@pytest.mark.skipif(find_spec("transformers") is None, reason="the module that is left out must be there otherwise")
def test_the_callback_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "scansnap.probe.hf", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("transformers", names="scansnap[probe]"):
        import scansnap.probe.hf  # noqa: F401

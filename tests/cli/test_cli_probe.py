"""``scansnap probe`` on folders of checkpoints, as a user types it."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.cli import console
from scansnap.probe.probe import Probe

sys.path.insert(0, str(Path(__file__).parents[1] / "probe" / "checkpoints"))
from folders import LOADER, TEXT, hugging_face, state_dicts

SIZE = ("--length", "15", "--sequences", "3")
numbers = itertools.count()


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hugging_face(tmp_path_factory.mktemp("hf") / "run", [0, 5, 20])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text, token ids, state dicts and a module that loads them, under a name of its own."""
    (tmp_path / "text.txt").write_text(TEXT)
    np.save(tmp_path / "ids.npy", np.arange(45).reshape(3, 15) % 40)
    state_dicts(tmp_path / "run", [1, 2, 10])
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def loader(here: Path) -> str:
    name = f"mine{next(numbers)}"
    (here / f"{name}.py").write_text(LOADER)
    return name


def loaded(path: Path) -> xr.Dataset:
    with ss.load(path) as data:
        return data.load()


def test_checkpoints_of_a_trainer(scansnap, here: Path, trainer: Path) -> None:
    code, out, err = scansnap("probe", trainer, "--batch", "text.txt", *SIZE, "--report", "page.html")
    assert (code, err) == (0, "")
    assert out.startswith("GPT2LMHeadModel (")
    assert "transformer.h.1.attn head 1" in out
    assert out.endswith("file probe.zarr\npage page.html\n")
    data = loaded(here / "probe.zarr")
    assert data.step.values.tolist() == [0, 5, 20]
    assert data.sizes["layer"] == 2
    assert np.isfinite(data.moved[1:]).all()
    assert (data.moved[1:, 0] > 1e-4).all(), "its weights change"
    words = data.words.values
    assert "".join(words[data.tokens.values[0]])[1:] == TEXT.replace(" ", "▁")[:14]
    assert "checkpoint-5" in data.attrs["checkpoints"]
    assert "checkpoint-5" not in data.attrs["coverage"]
    assert "<html" in (here / "page.html").read_text()


def test_it_is_what_a_probe_of_each_model_says(scansnap, here: Path, trainer: Path) -> None:
    from transformers import GPT2LMHeadModel

    assert scansnap("probe", trainer, "--batch", "ids.npy", "--out", "a.zarr", "--queries", "5")[0] == 0
    ids = torch.from_numpy(np.load(here / "ids.npy"))
    data = loaded(here / "a.zarr")
    for i, step in enumerate((0, 5, 20)):
        probe = Probe(GPT2LMHeadModel.from_pretrained(trainer / f"checkpoint-{step}"), {"input_ids": ids}, queries=5)
        probe.measure(step)
        np.testing.assert_allclose(data.entropy[i], probe.dataset().entropy[0], atol=1e-6)


def test_state_dicts_with_a_function_of_ones_own(scansnap, here: Path, loader: str) -> None:
    line = ("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load", "--json")
    code, out, err = scansnap(*line)
    assert (code, err) == (0, "")
    messages = json.loads(out)
    assert messages["steps"] == [1, 2, 10], "by number, not by name"
    assert [item["path"] for item in messages["heads"]] == ["attention", "attention"]
    assert (messages["model"], messages["there_before"]) == ("Net", 0)
    assert all(item["verdict"] for item in messages["heads"])
    with_text = ("--batch", "text.txt", "--loader", f"{loader}:with_text", *SIZE, "--corpus", "text.txt")
    assert scansnap("probe", "run", *with_text, "--out", "b.zarr")[0] == 0
    assert "the batch itself" not in loaded(here / "b.zarr").attrs["corpus"]


def test_steps_by_a_regular_expression(scansnap, refuses, here: Path, loader: str) -> None:
    for path in (here / "run").iterdir():
        path.rename(path.with_name(f"{path.stem}_seed1.pt"))
    line = ("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load", "--json")
    refuses("--steps", *line, names=("step_10_seed1.pt", "step_1_seed1.pt"))
    _, out, _ = scansnap(*line, "--steps", r"step_(\d+)")
    assert json.loads(out)["steps"] == [1, 2, 10]


def test_equal_weights_are_measured_once_at_the_first_step(scansnap, here: Path, loader: str) -> None:
    """As published checkpoints once were: several that are the same. A copy that is added later changes nothing."""
    line = ("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load", "--json")
    weights = torch.load(here / "run" / "step_2.pt")
    torch.save(dict(reversed(weights.items())), here / "run" / "step_5.pt")  # other bytes, the same weights
    code, out, err = scansnap(*line)
    assert code == 0
    summary = json.loads(out)
    assert err.startswith("Note: step_5.pt has the weights of step_2.pt")
    assert summary["steps"] == [1, 2, 10]
    assert [checkpoint["step"] for checkpoint in summary["checkpoints"]] == [1, 2, 5, 10]
    before = loaded(here / "probe.zarr")
    torch.save(weights, here / "run" / "step_20.pt")
    summary = json.loads(scansnap(*line)[1])
    assert (summary["steps"], summary["there_before"]) == ([1, 2, 10], 3)
    xr.testing.assert_equal(loaded(here / "probe.zarr"), before)


def test_what_cannot_be_read_is_skipped_and_listed(scansnap, here: Path, loader: str) -> None:
    torch.save(torch.load(here / "run" / "step_1.pt"), here / "run" / "final.pt")  # no step in the name
    (here / "run" / "step_2.pt").write_bytes(b"cut off")
    line = ("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load", "--json")
    for earlier in (0, 2):  # the second time there is nothing new to measure
        code, out, err = scansnap(*line)
        summary = json.loads(out)
        assert (code, summary["steps"], summary["there_before"]) == (1, [1, 10], earlier)
        assert sorted(skipped["name"] for skipped in summary["skipped"]) == ["final.pt", "step_2.pt"]
        assert all(name in err for name in ("final.pt was skipped", "step_2.pt was skipped"))


def test_stopped_it_goes_on(scansnap, here: Path, loader: str, monkeypatch) -> None:
    line = ("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load")
    assert scansnap(*line, "--out", "whole.zarr")[0] == 0
    measure = Probe.measure

    def stopped(probe: Probe, step: int, loss: float | None = None) -> None:
        if step == 10:
            raise KeyboardInterrupt
        measure(probe, step, loss)

    with monkeypatch.context() as patch:
        patch.setattr(Probe, "measure", stopped)
        code, out, err = scansnap(*line)
    assert (code, out) == (130, "")
    assert "probe.zarr" in err
    assert loaded(here / "probe.zarr").step.values.tolist() == [1, 2]
    asked = []
    monkeypatch.setattr(Probe, "measure", lambda probe, step: (asked.append(step), measure(probe, step)))
    code, out, err = scansnap(*line, "--json")
    assert (code, json.loads(out)["there_before"], asked) == (0, 2, [10])
    xr.testing.assert_identical(loaded(here / "probe.zarr"), loaded(here / "whole.zarr"))
    asked.clear()
    assert scansnap(*line)[0] == 0
    assert asked == [], "nothing is left to do"
    torch.save(torch.load(here / "run" / "step_10.pt"), here / "run" / "step_2.pt")
    state_dicts(here / "other", [1, 2])
    shutil.copy(here / "other" / "step_1.pt", here / "run" / "step_0.pt")
    assert scansnap("probe", "other", *line[2:])[0] == 0, "fewer of the same"


def test_other_weights_are_not_taken_for_those_measured(scansnap, refuses, here: Path, loader: str) -> None:
    line = ("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load", "--json")
    assert scansnap(*line)[0] == 0
    before = loaded(here / "probe.zarr")
    weights = torch.load(here / "run" / "step_1.pt")
    torch.save({name: 3 * tensor for name, tensor in weights.items()}, here / "run" / "step_1.pt")
    refuses("--out", *line, value="probe.zarr", names="--overwrite")
    xr.testing.assert_identical(loaded(here / "probe.zarr"), before)
    code, out, _ = scansnap(*line, "--overwrite")
    assert (code, json.loads(out)["there_before"]) == (0, 0)
    assert (loaded(here / "probe.zarr").entropy[0] != before.entropy[0]).any()


@pytest.mark.parametrize(
    ("line", "field", "names"),
    [
        ("nowhere --batch ids.npy", "FOLDER", "nowhere"),
        ("empty --batch ids.npy", "FOLDER", "config.json"),
        ("run --batch ids.npy", "FOLDER", "--loader"),
        ("unnamed --batch ids.npy --loader M:load", "FOLDER", "final.pt"),
        ("hf:a/b/c --batch ids.npy", "FOLDER", "hf:a/b/c"),
        ("hf:a/b --batch ids.npy --revisions log:0", "--revisions", "0"),
        ("run --batch ids.npy --loader M:load --steps (", "--steps", "("),
        ("run --batch ids.npy --loader M:load --steps step", "--steps", "'step'"),
        ("run --batch ids.npy --loader M:load --steps (step)", "FOLDER", "(step)"),
        ("run --batch ids.npy --loader nope", "--loader", "nope"),
        ("run --batch ids.npy --loader nope:load", "--loader", "ModuleNotFoundError"),
        ("run --batch ids.npy --loader M:nope", "--loader", "AttributeError"),
        ("run --batch ids.npy --loader M:CONSTANT", "--loader", "CONSTANT"),
        ("run --batch ids.npy --loader M:broken", "--loader", "OSError: no such weights"),
        ("run --batch ids.npy --loader M:number", "--loader", "torch.nn.Module"),
        ("run --batch text.txt --loader M:load", "--batch", "--loader"),
        ("run --batch nope.txt --loader M:load", "--batch", "nope.txt"),
        ("run --batch text.txt --loader M:with_text --length 99 --sequences 99", "--batch", "9801"),
        ("run --batch text.txt --loader M:with_text --length 8", "--length", "8"),
        ("run --batch text.txt --loader M:with_text --sequences 0", "--sequences", "0"),
        ("run --batch ids.npy --length 9 --loader M:load", "--length", "--batch"),
        ("run --batch flat.npy --loader M:load", "--batch", "(4,)"),
        ("run --batch broken.pt --loader M:load", "--batch", "UnpicklingError"),
        ("run --batch large.npy --loader M:load", "--batch", "IndexError"),
        ("run --batch ids.npy --loader M:load --queries 0", "--queries", "0"),
        ("run --batch ids.npy --loader M:load --corpus nope", "--corpus", "nope"),
        ("run --batch ids.npy --loader M:load --corpus text.txt", "--corpus", "--loader"),
        ("run --batch ids.npy --loader M:load --out x.nc", "--out", ".zarr"),
        ("run --batch ids.npy --loader M:load --report x.txt", "--report", ".html"),
        ("run --batch ids.npy --loader M:load --device tpu", "device", "tpu"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(
    refuses, here: Path, loader: str, line: str, field: str, names: str
) -> None:
    (here / "empty").mkdir()
    (here / "unnamed").mkdir()
    shutil.copy(here / "run" / "step_1.pt", here / "unnamed" / "final.pt")
    np.save(here / "flat.npy", np.arange(4))
    np.save(here / "large.npy", np.full((2, 5), 40))
    (here / "broken.pt").write_bytes(b"x")
    before = sorted(path.name for path in here.iterdir())
    refuses(field, "probe", *line.replace("M:", f"{loader}:").split(), names=names)
    assert sorted(path.name for path in here.iterdir() if path.name != "__pycache__") == before


def test_a_checkpoint_without_a_tokenizer(scansnap, refuses, here: Path, trainer: Path) -> None:
    shutil.copytree(trainer / "checkpoint-5", here / "bare" / "checkpoint-5")
    for file in (here / "bare" / "checkpoint-5").glob("token*"):
        file.unlink()
    refuses("--batch", "probe", "bare", "--batch", "text.txt", *SIZE, names="tokenizer")
    assert scansnap("probe", "bare", "--batch", "ids.npy")[0] == 0
    (here / "bare" / "checkpoint-5" / "config.json").write_text("{}")
    line = ("probe", "bare", "--batch", "ids.npy", "--out", "b.zarr")
    refuses("FOLDER", *line, value="bare/checkpoint-5", names="transformers")
    assert not (here / "b.zarr").exists()


def test_off_a_terminal_progress_is_lines(scansnap, here: Path, loader: str, monkeypatch) -> None:
    monkeypatch.setattr(console, "SILENT", 0)
    _, _, err = scansnap("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load")
    assert "checkpoints: 3/3" in err


def test_help_has_examples(scansnap) -> None:
    code, out, _ = scansnap("probe", "--help")
    assert code == 0
    assert "Example: scansnap probe checkpoints --batch text.txt" in " ".join(out.split())


def test_info_tells_what_a_probe_found_and_whether_it_is_whole(scansnap, here: Path, loader: str) -> None:
    assert scansnap("probe", "run", "--batch", "ids.npy", "--loader", f"{loader}:load")[0] == 0
    code, out, err = scansnap("info", "probe.zarr")
    assert (code, err) == (0, "")
    assert "Net" in out
    assert "attention head 1" in out
    code, out, _ = scansnap("info", "probe.zarr", "--json")
    assert json.loads(out)["steps"] == [1, 2, 10]
    code, out, _ = scansnap("info", "probe.zarr", "--check")
    assert (code, out.startswith("probe.zarr (probe) is intact: ")) == (0, True)
    file = here / "probe.zarr" / "rows" / "000000.0"
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    code, _, err = scansnap("info", "probe.zarr", "--check")
    assert (code, err.startswith("probe.zarr is damaged: rows/000000.0 ")) == (1, True)

"""The first pages do as they say: commands and snippets run as they stand, and the extras are those that there are."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START, INDEX = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("start.md", "index.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.M | re.S)


def test_run_and_look(scansnap: Callable[..., tuple[int, str, str]], run_as_main: Callable[..., str]) -> None:
    """Entropy over the distinct tokens falls, as the page says of it."""
    (command,) = re.findall(r"^scansnap (run .*)$", START, flags=re.M)
    (snippet,) = blocks(START, "python")
    assert scansnap(*command.split())[0] == 0
    assert list(Path("out").glob("*.png"))
    dims, entropy = run_as_main(snippet).split("\n", 1)
    assert dims.startswith("('run', 'step', 'seq_class', 'token')")
    first, *_, last = map(float, entropy.strip(" []\n").split())
    assert last < first


def test_the_probe_in_a_loop(run_as_main: Callable[..., str]) -> None:
    """Step 0 is before the first update, and the last step is measured."""
    import scansnap as ss

    (snippet,) = blocks((ROOT / "docs" / "attach.md").read_text(encoding="utf-8"), "python")
    run_as_main(snippet)
    steps = ss.load("probe.zarr").step.values
    assert (steps[0], steps[-1]) == (0, 30)
    assert Path("probe.html").is_file()


def test_the_probe_page_measures_step_0_before_the_first_update(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    import scansnap as ss

    monkeypatch.chdir(tmp_path)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    model, ids = torch.nn.Sequential(torch.nn.Embedding(7, 8), layer), torch.arange(18).reshape(2, 9) % 7
    untrained = ss.Probe(model, ids)
    untrained.measure(0)

    def loader() -> Iterator[None]:
        for _ in range(3):
            with torch.no_grad():
                layer.self_attn.in_proj_weight.mul_(2)  # in place of the training step
            yield

    snippet, *_ = blocks((ROOT / "docs" / "probe.md").read_text(encoding="utf-8"), "python")
    exec(snippet, {"model": model, "batch": ids, "train_ids": ids.flatten(), "loader": loader()})
    with ss.load("probe.zarr") as data:
        assert data.step.values.tolist() == [0, 1, 2, 3]
        first = (data.entropy == untrained.dataset().entropy[0]).all(("layer", "head")).values
    assert first.tolist() == [True, False, False, False]


def test_the_first_snippet(run_as_main: Callable[..., str]) -> None:
    (snippet,) = blocks(INDEX, "python")
    assert "holds" in run_as_main(snippet)


@pytest.mark.parametrize("command", re.findall(r"^scansnap (\w+)", START, flags=re.M))
def test_every_command_is_one(scansnap: Callable[..., tuple[int, str, str]], command: str) -> None:
    code, out, _ = scansnap(command, "--help")
    assert code == 0
    assert "Example" in out


def test_the_extras_are_those_of_the_package() -> None:
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    assert set(re.findall(r"^\| `\[(\w+)\]` \|", START, flags=re.M)) == extras - {"dev", "docs"}

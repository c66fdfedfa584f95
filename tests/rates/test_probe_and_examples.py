"""The probe records the ratios of a run, and the examples for Trainer, Lightning and accelerate run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import scansnap as ss

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_comparison_of_runs_has_their_ratios() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(7, 8), layer)
    ids, data = torch.arange(18).reshape(2, 9) % 7, []
    for qk in (1.0, 4.0, None):
        optimizer = None if qk is None else torch.optim.SGD(ss.param_groups(model, lr=0.1, qk=qk))
        probe = ss.Probe(model, ids, optimizer=optimizer)
        probe.measure(0)
        data.append(probe.dataset())
    both = ss.probe.diff(*data[:2]).attrs
    assert [json.loads(both[name])["qk"] for name in ("rates_a", "rates_b")] == [[1.0], [4.0]]
    assert json.loads(both["rates_b"])["vo"] == [1.0]
    assert "rates_b" not in ss.probe.diff(data[0], data[2]).attrs


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "package"), [("trainer", "transformers"), ("lightning", "lightning"), ("accelerate", "accelerate")]
)
def test_examples_end_with_the_rates_they_ask_for(name: str, package: str) -> None:
    pytest.importorskip(package)
    command = [sys.executable, str(EXAMPLES / f"rates_{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rates = json.loads(done.stdout.strip().splitlines()[-1].replace("'", '"'))
    assert rates["qk"] == pytest.approx(2 * rates["vo"])

"""A loop's weights, optimiser state and random numbers are bit for bit those without the probe; those with a look that
forgets the mode are not: the control."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import IDS, MODELS, Plain, checkpointed, differing, naive, probing, trained
from torch import nn

from refusals import refused
from scansnap.probe.probe import Probe

pytestmark = [
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad"),  # of the control's checkpoints
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # dynamo asks for it
]


def checkpoints(reentrant: bool) -> Any:
    def wrap(model: nn.Module) -> nn.Module:
        checkpointed(model, reentrant)
        return model

    return wrap


VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bf16": {"autocast": True},
    "accumulated": {"accumulate": 2, "steps": 2},
    "accumulated, bf16": {"accumulate": 2, "steps": 2, "autocast": True},
    "checkpoints": {"wrap": checkpoints(False)},
    "reentrant checkpoints": {"wrap": checkpoints(True)},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_without_the_probe(name: str, variant: str) -> None:
    probes: list[Probe] = []
    options = VARIANTS[variant]
    plain = trained(MODELS[name], None, **options)
    assert differing(plain, trained(MODELS[name], probing(probes), **options)) == []
    data = probes[0].dataset()
    assert len(data.step) == (5 if "accumulate" in options else 4)  # at the start, after updates, in the middle
    assert len(data.layer) == 2
    assert data.entropy.notnull().all()
    control = differing(plain, trained(MODELS[name], naive, **options))
    weights = [weight for weight, _ in MODELS[name]().named_parameters()]
    assert "next" in control
    assert len(set(weights) & set(control)) > len(weights) / 2


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("plain", lambda model: torch.compile(model, backend="aot_eager")),
        ("gpt2", lambda model: torch.compile(model, backend="eager")),
        ("plain", lambda model: (model.compile(backend="eager"), model)[1]),
        ("plain", lambda model: ([block.compile(backend="aot_eager") for block in model.blocks], model)[1]),
    ],
    ids=["plain", "gpt2", "in place", "by block"],
)
def test_compiled_models(name: str, wrap: Any) -> None:
    probes: list[Probe] = []
    try:
        plain = trained(MODELS[name], None, wrap=wrap)
        torch._dynamo.reset()
        assert differing(plain, trained(MODELS[name], probing(probes), wrap=wrap)) == []
    finally:
        torch._dynamo.reset()
    data = probes[0].dataset()
    assert len(data.step) == 4
    assert not any("_orig_mod" in path for path in data.path.values)


def test_a_probe_that_fails_at_every_step_lets_training_go_on() -> None:
    def failing(model: nn.Module) -> Any:
        is_training = False

        def forward(model: nn.Module, batch: Any) -> None:
            model(**batch)
            if is_training:
                raise ZeroDivisionError("on purpose")

        probe = Probe(model, {"input_ids": IDS}, every=1, forward=forward)
        is_training = True
        return lambda model, step: probe.step(step)

    plain = trained(Plain, None)
    with pytest.warns(UserWarning, match=r"could not measure at step \d \(ZeroDivisionError: on purpose\)"):
        failed = trained(Plain, failing)
    assert differing(plain, failed) == []


def test_a_full_disk_lets_training_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(step: int, found: Any) -> None:
        raise OSError("no space left on device")

    probe = Probe(Plain(), {"input_ids": IDS}, out=tmp_path / "probe.zarr")
    monkeypatch.setattr(probe.measurements, "add", full)
    with pytest.warns(UserWarning, match=r"could not measure at step 7 \(OSError: no space left on device\)"):
        probe.measure(7)


def test_the_batch_goes_where_the_model_is() -> None:
    """A Trainer may move the model after the probe was made; a model in two places is refused at once."""
    model, found = Plain(), []
    probe = Probe(model, {"input_ids": IDS}, forward=lambda model, batch: found.append(batch["input_ids"].device.type))
    found.clear()
    model.to("meta")
    with pytest.warns(UserWarning, match="no attention"):
        probe.measure(0)
    assert found == ["meta"]
    assert probe.batch["input_ids"].device.type == "cpu"
    model.out.to_empty(device="cpu")
    with refused("model", names="forward="):
        Probe(model, {"input_ids": IDS})


@pytest.mark.parametrize(
    ("module", "missing", "field"),
    [
        ("hf", ["transformers"], "transformers"),
        (
            "lightning",
            ["lightning.pytorch", "pytorch_lightning"],
            "lightning",
        ),
    ],
)
def test_a_package_that_is_not_there_is_said(module: str, missing: list[str], field: str, monkeypatch: Any) -> None:
    monkeypatch.delitem(sys.modules, f"scansnap.probe.{module}", raising=False)
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with refused(field):
        importlib.import_module(f"scansnap.probe.{module}")

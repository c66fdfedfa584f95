"""A Hugging Face Trainer: the same weights with and without the callback, measured in the precision it trains in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import IDS, M, T, differing, gpt2, llama
from torch import Tensor, nn

from refusals import refused
from scansnap.probe.probe import Probe

pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
from transformers import Trainer, TrainerCallback, TrainingArguments

from scansnap.probe.hf import ProbeCallback

pytestmark = pytest.mark.filterwarnings("ignore:step [01]. <lambda>")  # the alert

# transformers renamed the argument in 5.23; earlier versions know only the old name
CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in TrainingArguments.__dataclass_fields__
)


class Naive(TrainerCallback):
    """Looks in training mode."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: nn.Module, **rest: Any) -> None:
        with torch.no_grad():
            model(input_ids=IDS)


def looks(model: nn.Module, batch: dict[str, Tensor]) -> Any:
    """From inside the model, where accelerate does not cast."""
    looks.autocast = looks.autocast or (torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))
    return model.get_decoder()(**batch)


looks.autocast = False


def fit(
    folder: Path,
    look: str | None,
    make: Any = gpt2,
    resume: bool = False,
    stop: bool = False,
    every: Any = 1,
    fires: int = 2,
    **options: Any,
) -> tuple[dict[str, Tensor], Probe]:
    torch.manual_seed(0)
    model, data = make(), [{"input_ids": row, "labels": row} for row in torch.randint(M, (16, T))]
    args = TrainingArguments(str(folder), **{
        "max_steps": 3, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": [], "logging_steps": 1,
        "save_strategy": "no", "disable_tqdm": True, "learning_rate": 1e-2, "dataloader_pin_memory": False, **options,
    })  # fmt: skip
    out = folder / "probe.zarr" if "save_steps" in options and look == "probe" else None
    batch, forward = ({"input_ids": IDS}, looks) if out is None else ({"input_ids": IDS, "labels": IDS}, None)
    alerts = [lambda history: len(history) == fires]
    probe = Probe(model, batch, every=every, forward=forward, out=out, alerts=alerts, max_bytes=10**9)
    callbacks = {None: [], "probe": [ProbeCallback(probe, stop_training=stop)], "naive": [Naive()]}[look]
    trainer = Trainer(model, args, train_dataset=data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    state = {
        f"{i} {name}": value for i, one in enumerate(trainer.optimizer.state.values()) for name, value in one.items()
    }
    return {**model.state_dict(), **state, "next": torch.rand(2)}, probe


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (gpt2, {}),
        (gpt2, {"bf16": True}),
        (llama, {"gradient_accumulation_steps": 2}),
        (llama, {"bf16": True, CHECKPOINTING: True}),
    ],
    ids=["plain", "bf16", "accumulated", "bf16, checkpoints"],
)
def test_weights_are_those_without_the_probe(make: Any, options: dict[str, Any], tmp_path: Path) -> None:
    looks.autocast = False  # as in the pass that a probe tries when it is made
    (plain, _), (probed, probe), (control, _) = (
        fit(tmp_path, look, make, **options) for look in (None, "probe", "naive")
    )
    assert differing(plain, probed) == []
    assert len(differing(plain, control)) > len(plain) / 2
    data = probe.dataset()
    assert data.step.values.tolist() == [0, 1, 2, 3]  # updates, not batches
    assert data.train_loss.isnull().values.tolist() == [True, True, False, False]  # logged after the step ends
    assert looks.autocast == (torch.bfloat16 if "bf16" in options else False)


@pytest.mark.parametrize(("stop", "fires", "last"), [(True, 2, 1), (False, 2, 3), (True, 1, 1), (False, 1, 3)])
def test_an_alert_stops_the_training_only_if_asked(stop: bool, fires: int, last: int, tmp_path: Path) -> None:
    """A warning before the first update stops the training after that update."""
    _, probe = fit(tmp_path, "probe", stop=stop, fires=fires)
    assert probe.dataset().step.values[-1] == last
    with refused("stop_training"):
        ProbeCallback(probe, stop_training="yes")  # type: ignore[arg-type]


def test_the_last_step_is_measured_though_not_due(tmp_path: Path) -> None:
    _, probe = fit(tmp_path, "probe", every=[0, 1])
    assert probe.dataset().step.values.tolist() == [0, 1, 3]


@pytest.mark.parametrize("report_to", ["tensorboard", "none"])
def test_measurements_go_where_the_trainer_reports(report_to: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, probe = fit(tmp_path, "probe", report_to=report_to)
    assert (tmp_path / "runs").exists() == (report_to == "tensorboard")
    if report_to == "tensorboard":
        events = EventAccumulator(str(tmp_path / "runs" / "probe")).Reload().Scalars("attention/entropy")
        entropy = probe.dataset().entropy.mean(("layer", "head")).values
        torch.testing.assert_close([event.value for event in events], entropy.tolist(), rtol=1e-6, atol=0)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_by_the_trainer(tmp_path: Path) -> None:
    options = {"torch_compile": True, "torch_compile_backend": "eager", "max_steps": 2}
    (plain, _), (probed, probe) = (fit(tmp_path, look, **options) for look in (None, "probe"))
    assert differing(plain, probed) == []
    assert len(probe.dataset().step) == 3


def test_resumed_from_a_checkpoint(tmp_path: Path) -> None:
    """The weights are those of one piece, and so is the record, which has been further than the checkpoint."""
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    (plain, _), (probed, probe) = (fit(tmp_path / str(look), look, **options) for look in (None, "probe"))
    assert differing(plain, probed) == []
    whole = probe.dataset()
    for name in ("None", "probe"):
        (tmp_path / name / "checkpoint-4").rename(tmp_path / f"{name}-4")
    (again, _), (resumed, second) = (
        fit(tmp_path / str(look), look, resume=True, **options) for look in (None, "probe")
    )
    assert differing(again, resumed) == []
    assert differing(plain, resumed) == []
    record = second.dataset()
    assert record.step.values.tolist() == [0, 1, 2, 3, 4]
    for name in ("entropy", "batch_loss", "train_loss"):
        assert record[name].equals(whole[name]), name
    assert whole.batch_loss.notnull().all()
    assert whole.train_loss.isnull().values.tolist() == [True, True, False, False, False]  # logged after the step ends
    kept = [path for path in (tmp_path / "probe").glob("checkpoint*/*.json") if "probe" in path.read_text().lower()]
    assert kept == []  # checkpoints know nothing of it

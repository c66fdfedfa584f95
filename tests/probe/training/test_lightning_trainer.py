"""A Lightning Trainer: the same weights with and without the callback, measured in the precision it trains in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import IDS, M, Plain, T, differing, loss_of
from torch import Tensor, nn
from torch.utils.data import DataLoader

from scansnap.probe.probe import Probe

lightning = pytest.importorskip("lightning.pytorch")
from scansnap.probe.lightning import ProbeCallback  # noqa: E402 needs the package

pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance\\(treespec, LeafSpec\\)."),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:step [01]. <lambda>"),  # the alert
]


class Language(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Plain()

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        self.losses = [*getattr(self, "losses", []), loss := loss_of(self.model, batch)]
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Naive(lightning.Callback):
    """Looks in training mode."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        with torch.no_grad():
            pl_module.model(IDS)


def looks(model: nn.Module, batch: dict[str, Tensor]) -> Any:
    looks.autocast = looks.autocast or (torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))
    return model(**batch)


looks.autocast = False


def fit(
    folder: Path, look: str | None, stop: bool = False, every: Any = 1, fires: int = 2, **options: Any
) -> tuple[dict[str, Tensor], Probe]:
    torch.manual_seed(0)
    module, data = Language(), torch.randint(M, (24, T))
    alerts = [lambda history: len(history) == fires]
    probe = Probe(module.model, {"input_ids": IDS}, every=every, forward=looks, alerts=alerts)
    callbacks = {None: [], "probe": [ProbeCallback(probe, stop_training=stop)], "naive": [Naive()]}[look]
    trainer = lightning.Trainer(
        default_root_dir=folder, max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks, **options,
    )  # fmt: skip
    trainer.fit(module, DataLoader(data, batch_size=3))
    state = {
        f"{i} {name}": value
        for i, one in enumerate(trainer.optimizers[0].state.values())
        for name, value in one.items()
    }
    if trainer.global_step:
        probe.losses = torch.stack(module.losses).view(trainer.global_step, -1).mean(1).tolist()
    return {**module.state_dict(), **state, "next": torch.rand(2)}, probe


@pytest.mark.parametrize(
    "options",
    [{}, {"precision": "bf16-mixed"}, {"accumulate_grad_batches": 2}],
    ids=["float32", "bf16", "accumulated"],
)
def test_weights_are_those_without_the_probe(options: dict[str, Any], tmp_path: Path) -> None:
    looks.autocast = False  # as in the pass that a probe tries when it is made
    (plain, _), (probed, probe), (control, _) = (fit(tmp_path, look, **options) for look in (None, "probe", "naive"))
    assert differing(plain, probed) == []
    assert len(differing(plain, control)) > len(plain) / 2
    data = probe.dataset()
    assert data.step.values.tolist() == [0, 1, 2, 3]  # updates, not batches
    np.testing.assert_allclose(data.train_loss.values, [np.nan, *probe.losses], rtol=1e-6)  # of updates
    assert looks.autocast == (torch.bfloat16 if "precision" in options else False)


@pytest.mark.parametrize(("stop", "fires", "last"), [(True, 2, 1), (False, 2, 3), (True, 1, 0), (False, 1, 3)])
def test_an_alert_stops_the_training_only_if_asked(stop: bool, fires: int, last: int, tmp_path: Path) -> None:
    """A warning before the first update stops it there."""
    _, probe = fit(tmp_path, "probe", stop=stop, fires=fires)
    assert probe.dataset().step.values[-1] == last


def test_the_last_step_is_measured_though_not_due(tmp_path: Path) -> None:
    _, probe = fit(tmp_path, "probe", every=[0, 1])
    assert probe.dataset().step.values.tolist() == [0, 1, 3]

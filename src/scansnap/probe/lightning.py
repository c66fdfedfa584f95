"""The probe in a Lightning ``Trainer``.

    from scansnap.probe.lightning import ProbeCallback

    module = MyLightningModule()
    probe = ss.Probe(module.model, {"input_ids": ids}, out="probe.zarr")   # or the module itself, if it has a forward
    Trainer(max_steps=1000, callbacks=[ProbeCallback(probe)]).fit(module, loader)

Steps are the Trainer's ``global_step``; step 0 is before the first update. The probe's file is independent of the
Trainer's checkpoints. A resumed Trainer continues the file with the same ``out``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from scansnap.checks import InputError
from scansnap.probe.listeners import check_stop_training, has_fired
from scansnap.probe.probe import Probe

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError:
        raise InputError("lightning", "no such package", "an installed package", "pip install lightning") from None


class ProbeCallback(Callback):
    """Call a probe from a Lightning ``Trainer``, in the Trainer's precision, and at the last step in any case.

    ``train_loss`` is the loss of the last update, the mean over its accumulated batches.

    Parameters
    ----------
    probe : scansnap.Probe
        Its ``every`` decides which steps are measured.
    stop_training : bool
        Whether the first warning of an alert sets ``trainer.should_stop``.

    Examples
    --------
    >>> from scansnap.probe.lightning import ProbeCallback  # doctest: +SKIP
    >>> trainer = Trainer(max_steps=1000, callbacks=[ProbeCallback(probe)])  # doctest: +SKIP
    """

    def __init__(self, probe: Probe, stop_training: bool = False) -> None:
        self.probe, self.stop_training = probe, check_stop_training(stop_training, probe)
        self.updates, self.has_updated = 0, False
        self.losses: list[Tensor] = []  # of the batches of the last update

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the first update, or after resuming a checkpoint."""
        self.updates, self.losses = trainer.global_step, []
        self._step(trainer)
        self._stop_if_fired(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After an update; batches that only accumulate gradients do not count."""
        if self.has_updated:
            self.losses, self.has_updated = [], False
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor) and loss.numel() == 1:
            self.losses.append(loss.detach() * trainer.accumulate_grad_batches)  # by which Lightning has divided it
        if trainer.global_step != self.updates:
            self.updates, self.has_updated = trainer.global_step, True
            self._step(trainer)
            self._stop_if_fired(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """After the last update, due or not."""
        self._step(trainer, last=True)

    def _stop_if_fired(self, trainer: Any) -> None:
        if self.stop_training and has_fired(self.probe, trainer.global_step):
            trainer.should_stop = True

    def _step(self, trainer: Any, last: bool = False) -> None:
        if last or self.probe.due(trainer.global_step):  # a loss on a GPU takes long to read
            loss = sum(map(float, self.losses)) / len(self.losses) if self.losses else None
            with trainer.precision_plugin.forward_context():
                self.probe.step(trainer.global_step, loss, last)

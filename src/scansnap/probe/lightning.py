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
from scansnap.probe.probe import Probe

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError:
        raise InputError("lightning", "no such package", "an installed package", "pip install lightning") from None


class ProbeCallback(Callback):
    """Call a probe from a Lightning ``Trainer``, in the Trainer's precision; the loss is that of the last batch.

    Parameters
    ----------
    probe : scansnap.Probe
        Its ``every`` decides which steps are measured.

    Examples
    --------
    >>> from scansnap.probe.lightning import ProbeCallback  # doctest: +SKIP
    >>> trainer = Trainer(max_steps=1000, callbacks=[ProbeCallback(probe)])  # doctest: +SKIP
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.last = -1  # step passed to the probe

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the first update, or after resuming a checkpoint."""
        self._step(trainer, None)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After an update; batches that only accumulate gradients do not count."""
        self._step(trainer, outputs.get("loss") if isinstance(outputs, Mapping) else outputs)

    def _step(self, trainer: Any, loss: Any) -> None:
        step = trainer.global_step
        if step == self.last or not self.probe.due(step):
            return
        self.last = step
        with trainer.precision_plugin.forward_context():
            self.probe.step(step, loss=float(loss) if isinstance(loss, Tensor) and loss.numel() == 1 else None)

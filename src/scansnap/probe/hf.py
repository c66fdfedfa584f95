"""The probe in a Hugging Face ``Trainer``.

    from scansnap.probe.hf import ProbeCallback

    probe = ss.Probe(model, tokenizer(texts, return_tensors="pt", padding=True), out="probe.zarr")
    Trainer(model, args, train_dataset=data, callbacks=[ProbeCallback(probe)]).train()
    probe.report("probe.html")

Steps are the Trainer's ``global_step``; step 0 is before the first update. The probe's file is independent of the
Trainer's checkpoints. A resumed Trainer continues the file with the same ``out``.
"""

from __future__ import annotations

from typing import Any

import torch

from scansnap.checks import InputError
from scansnap.checks.extras import how
from scansnap.probe.probe import Probe

try:
    from transformers import TrainerCallback
except ImportError:
    raise InputError("transformers", "no such package", "an installed package", how("transformers")) from None


class ProbeCallback(TrainerCallback):
    """Call a probe from a Hugging Face ``Trainer``, in the Trainer's precision; the loss is the last one it logged.

    Parameters
    ----------
    probe : scansnap.Probe
        Its ``every`` decides which steps are measured.

    Examples
    --------
    >>> from scansnap.probe.hf import ProbeCallback
    >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[ProbeCallback(probe)])  # doctest: +SKIP
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.loss: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Before the first update, or after resuming a checkpoint."""
        self._step(args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """After an update; batches that only accumulate gradients do not count."""
        self._step(args, state)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> None:
        """Remember the Trainer's mean loss since its last log."""
        if logs is not None and "loss" in logs:
            self.loss = float(logs["loss"])

    def _step(self, args: Any, state: Any) -> None:
        """Accelerate autocasts in the model's forward, which a probe's ``forward`` may bypass."""
        dtype = torch.bfloat16 if args.bf16 else torch.float16
        with torch.autocast(args.device.type, dtype, enabled=args.bf16 or args.fp16):
            self.probe.step(state.global_step, loss=self.loss)

"""The probe in a Hugging Face ``Trainer``.

    from scansnap.probe.hf import ProbeCallback

    probe = ss.Probe(model, tokenizer(texts, return_tensors="pt", padding=True), out="probe.zarr")
    Trainer(model, args, train_dataset=data, callbacks=[ProbeCallback(probe)]).train()
    probe.report("probe.html")

Steps are the Trainer's ``global_step``, updates done, with 0 before the first. Checkpoints hold nothing of it: the
probe's own file is the record, and a resumed Trainer goes on with it (same ``out``).
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
    allowed = f"there for a Trainer: {how('transformers')}"
    raise InputError("transformers", "not installed", allowed) from None


class ProbeCallback(TrainerCallback):
    """Measures where it is due, in the precision the Trainer trains in; the loss is the one it logged last."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.loss: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Before the first update, or where a checkpoint is taken up."""
        self._step(args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """After an update; batches whose gradients are only gathered do not count."""
        self._step(args, state)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> None:
        """The Trainer's mean loss since its last log."""
        if logs is not None and "loss" in logs:
            self.loss = float(logs["loss"])

    def _step(self, args: Any, state: Any) -> None:
        """Accelerate casts in the model's own forward; a probe's ``forward`` may start further inside."""
        dtype = torch.bfloat16 if args.bf16 else torch.float16
        with torch.autocast(args.device.type, dtype, enabled=args.bf16 or args.fp16):
            self.probe.step(state.global_step, loss=self.loss)

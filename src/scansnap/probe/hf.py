"""The probe in a Hugging Face ``Trainer``.

    from scansnap.probe.hf import ProbeCallback

    probe = ss.Probe(model, tokenizer(texts, return_tensors="pt", padding=True), out="probe.zarr")
    Trainer(model, args, train_dataset=data, callbacks=[ProbeCallback(probe)]).train()
    probe.report("probe.html")

Steps are the Trainer's ``global_step``; step 0 is before the first update. The probe's file is independent of the
Trainer's checkpoints. A resumed Trainer continues the file with the same ``out``.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from scansnap.checks import InputError
from scansnap.checks.extras import how
from scansnap.probe.listeners import check_stop_training, has_fired
from scansnap.probe.loggers.targets import LOGGERS
from scansnap.probe.probe import Probe

try:
    from transformers import TrainerCallback
except ImportError:
    raise InputError("transformers", "no such package", "an installed package", how("transformers")) from None


class ProbeCallback(TrainerCallback):
    """Call a probe from a Hugging Face ``Trainer``, in the Trainer's precision, and at the last step in any case.

    ``train_loss`` is the loss that the Trainer logged last before a step, its mean since the log before. After a resume
    the Trainer begins a new mean, so that the curve is the same only if it also logs where it saves. Measurements are
    logged where ``report_to`` sends the Trainer's own logs: Weights & Biases, Trackio and TensorBoard.

    Parameters
    ----------
    probe : scansnap.Probe
        Its ``every`` decides which steps are measured.
    stop_training : bool
        Whether the first warning of an alert ends the training, as the Trainer's own callbacks do.

    Examples
    --------
    >>> from scansnap.probe.hf import ProbeCallback
    >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[ProbeCallback(probe)])  # doctest: +SKIP
    """

    def __init__(self, probe: Probe, stop_training: bool = False) -> None:
        self.probe, self.stop_training = probe, check_stop_training(stop_training, probe)

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Before the first update, or after resuming a checkpoint."""
        for name in args.report_to:
            if name in LOGGERS:
                runs = os.getenv("TENSORBOARD_LOGGING_DIR") or os.path.join(args.output_dir, "runs")
                self.probe.listeners.add_logger(name, os.path.join(runs, "probe"))
        self._step(args, state)
        self._stop_if_fired(state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """After an update; batches that only accumulate gradients do not count."""
        last = control.should_training_stop
        self._step(args, state, last)
        self._stop_if_fired(state, control, last)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """After the last update, if another callback has stopped the training."""
        if not (args.load_best_model_at_end and state.best_model_checkpoint):  # then these are other weights
            self._step(args, state, last=True)

    def _stop_if_fired(self, state: Any, control: Any, last: bool = False) -> None:
        if self.stop_training and has_fired(self.probe, state.global_step, last):
            control.should_training_stop = True

    def _step(self, args: Any, state: Any, last: bool = False) -> None:
        """Accelerate autocasts in the model's forward, which a probe's ``forward`` may bypass."""
        dtype = torch.bfloat16 if args.bf16 else torch.float16
        losses = [logs["loss"] for logs in state.log_history if "loss" in logs and logs["step"] < state.global_step]
        with torch.autocast(args.device.type, dtype, enabled=args.bf16 or args.fp16):
            self.probe.step(state.global_step, losses[-1] if losses else None, last)

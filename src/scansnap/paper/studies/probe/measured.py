"""What is looked at in one training: the probe with the training text as its corpus, and a control beside it.

The control is the same probe with another corpus: the training text with its words renamed at random, so that each word
has the distinctness of some other one. A head that leaves common for distinct words does not scan by that measure,
unless the renaming happens to favour what it looks at; each training has a renaming of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from scansnap.probe.findings import findings
from scansnap.probe.probe import Probe

OF_HEADS = ("scan_index", "scan_low", "scan_high", "t_snap", "t_snap_ln", "frozenness")
CURVES = ("moved_from_start", "rank_corr", "sink_share")


class Measured:
    """The probes of one training, and the losses on the validation text."""

    def __init__(
        self, model: nn.Module, ids: Tensor, train: np.ndarray, steps: Sequence[int], *, vocab_size: int, renaming: int
    ) -> None:
        names = np.random.default_rng(renaming).permutation(vocab_size)
        self.probe = Probe(model, {"input_ids": ids}, corpus=train, every=steps)
        ends = (steps[0], steps[-1])  # a scan is the way from the first to the last
        self.control = Probe(model, {"input_ids": ids}, corpus=names[train], every=ends)
        self.losses: list[float] = []

    def look(self, step: int, loss: float) -> None:
        """Measure now, where one of them is due."""
        self.losses.append(loss)
        self.probe.step(step)
        self.control.step(step)

    def record(self, failed: bool = False) -> dict[str, Any]:
        """By step S, layer L and head H.

        steps, loss (S,); of the last step (L, H) what :mod:`scansnap.probe.findings` derives, the verdicts, and those
        of the control; scan, moved_from_start and sink_share (S, L, H), rank_corr (S, L, H, 3). NaN where training
        failed.
        """
        data, other = (findings(probe.dataset()) for probe in (self.probe, self.control))
        found: dict[str, Any] = {name: data[name].transpose("layer", "head").values for name in OF_HEADS}
        found |= {name: data[name].transpose("step", "layer", "head", ...).values for name in CURVES}
        at = data["distinctness"].mean("sequence")
        found["scan"] = (at - at.isel(step=0)).transpose("step", "layer", "head").values
        found["control"] = other["scan_index"].transpose("layer", "head").values
        if failed:
            found = {name: np.full_like(values, np.nan, dtype=np.float64) for name, values in found.items()}
        for name, whose in (("verdict", data), ("control_verdict", other)):
            words = whose["verdict"].transpose("layer", "head").values.astype(str)
            found[name] = np.full_like(words, "failed", dtype="U6") if failed else words
        return {"steps": data["step"].values, "loss": self.losses, **found}

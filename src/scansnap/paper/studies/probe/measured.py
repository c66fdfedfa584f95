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

from scansnap.probe.probe import Probe

IN_THE_END = ("scan_index", "scan_low", "scan_high", "scan_chance")
OF_HEADS = ("scans", "snaps", "t_snap", "t_snap_ln", "t_fastest_ln", "frozenness", "frozenness_ln")
WORDS = ("verdict", "t_snap_ln_reason")
CURVES = ("scan_index", "moved_from_start", "rank_corr", "sink_share")


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
        self.probe.step(step, loss)
        self.control.step(step, loss)

    def record(self, failed: bool = False) -> dict[str, Any]:
        """By step S, layer L and head H: what was seen, and what :mod:`scansnap.probe.findings` derives from it.

        steps, loss (S,); CURVES (S, L, H), rank_corr also by what it is against; the rest (L, H), the scan index of the
        control and whether it scans among it. NaN where training failed, and ``failed`` is the verdict.
        """
        data, other = (probe.dataset() for probe in (self.probe, self.control))
        if not failed and data.sizes["step"] < len(self.losses):
            raise RuntimeError("a measurement failed")  # the probe has warned, and let training go on
        last, heads = data.isel(step=-1), ("layer", "head")
        found = {f"{name}_curve": data[name].transpose("step", *heads, ...).values for name in CURVES}
        found |= {name: last[name].transpose(*heads).values for name in (*IN_THE_END, *OF_HEADS)}
        found |= {"control": other["scan_index"].isel(step=-1).transpose(*heads).values,
                  "control_scans": other["scans"].transpose(*heads).values}  # fmt: skip
        words = {name: data[name].transpose(*heads).values.astype(np.str_) for name in WORDS}
        if failed:
            found = {name: np.full(values.shape, np.nan) for name, values in found.items()}
            words = {name: np.full(values.shape, "failed") for name, values in words.items()}
        return {"steps": data["step"].values, "loss": self.losses, **found, **words}

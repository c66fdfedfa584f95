"""What attention rests on, gathered batch by batch: entropy, largest weight, keys needed, mass by group of tokens.

A row is the attention of one position of a window. Its keys are the positions the model lets it look at, whatever
they get: attention that has snapped to one key gives the others exactly 0 in floating point, and they are keys still.
A row with a single key has no choice, entropy 0 and all its mass in place; such rows count in no mean (the first
position of a causal window is one, and so is the second where a position does not look at itself).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_float


def smallest_set(attention: Tensor, mass: float) -> Tensor:
    """The keys, as booleans (…, T), of the smallest set that has at least this mass in each row (…, T)."""
    ordered, place = attention.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(attention, dtype=torch.bool).scatter(-1, place, before < mass)


def keep_mass(attention: Tensor, mass: float) -> Tensor:
    """Attention on the smallest set of keys with this mass, renormalised: what contextual sparsity computes with."""
    kept = attention * smallest_set(attention, mass)
    return kept / kept.sum(-1, keepdim=True)


class AttentionStatistics:
    """Means over rows, by layer.

    groups  (M,) whole numbers from 0, a group of each token such as its distinctness; −1 leaves a token out
    mass    the share of attention whose keys are counted
    """

    def __init__(self, groups: Any = None, mass: float = 0.95) -> None:
        self.mass = check_float("mass", mass, above=0, most=1)
        self.groups = None if groups is None else _groups(groups)
        self.n_groups = 0 if self.groups is None else int(self.groups.max()) + 1
        self.sums: list[dict[str, Tensor]] = []

    def add(self, attention: list[Tensor], inputs: Tensor, keys: Tensor) -> None:
        """The attention (B, H, T, T) of each layer to the tokens (B, T) of a batch.

        keys  (T, T) booleans, the positions that each position may look at: ``model.keys(T)``
        """
        length = inputs.shape[-1]
        if keys.shape != (length, length) or keys.dtype != torch.bool:
            raise InputError("keys", f"{keys.dtype} of shape {tuple(keys.shape)}", f"booleans ({length}, {length})")
        for layer, b in enumerate(attention):
            found = self._sums(b.double(), inputs, keys.to(b.device))
            if layer == len(self.sums):
                self.sums.append(found)
            else:
                for name, value in found.items():
                    self.sums[layer][name] = _added(self.sums[layer][name], value)

    def _sums(self, b: Tensor, inputs: Tensor, keys: Tensor) -> dict[str, Tensor]:
        n_keys = keys.sum(-1)  # (T,)
        chooses = n_keys > 1
        rows = chooses * float(b.shape[0] * b.shape[1])  # (T,), how many rows of each position count
        entropy = torch.special.entr(b).sum(-1)  # (B, H, T)
        needed = smallest_set(b, self.mass).sum(-1).double()  # (B, H, T)
        needed = needed.masked_fill(entropy.isnan(), math.nan)  # no attention is not sparse attention

        def over_rows(x: Tensor) -> Tensor:
            return (x.sum((0, 1)) * chooses).cpu()  # (T,)

        found = {
            "rows": rows.cpu(),
            "entropy": over_rows(entropy),
            "most": (n_keys.double().clamp(min=1).log() * rows).cpu(),
            "max": over_rows(b.amax(-1)),
            "keys_needed": over_rows(needed),
            "share_needed": over_rows(needed / n_keys.clamp(min=1)),
        }
        if self.groups is not None:
            if int(inputs.max()) >= self.groups.numel():
                raise InputError("groups", f"{self.groups.numel()} tokens", "one for each token of the vocabulary")
            of_key = self.groups.to(inputs.device)[inputs]  # (B, T)
            member = torch.stack([of_key == g for g in range(self.n_groups)], -1).double()  # (B, T, G)
            uniform = (keys.double() / n_keys.clamp(min=1)[:, None])[None, None].expand_as(b)
            found["group"] = ((b @ member[:, None]) * chooses[:, None]).sum((0, 1, 2)).cpu()  # (G,)
            found["group_uniform"] = ((uniform @ member[:, None]) * chooses[:, None]).sum((0, 1, 2)).cpu()
        return found

    def means(self, layer: int = 0) -> dict[str, float | np.ndarray]:
        """What was gathered for a layer; NaN where no row counts.

        entropy              nats, mean over rows
        entropy_share        the mean entropy over the mean ln(number of keys), what uniform attention would have
        entropy_by_position  (T,) nats
        max                  the largest weight of a row, mean over rows
        keys_needed          keys of the smallest set with ``mass``, mean over rows
        share_needed         the same as a share of the row's keys
        group_mass           (G,) attention to each group
        group_uniform        (G,) what uniform attention would give it
        """
        if not 0 <= layer < len(self.sums):
            raise InputError("layer", layer, f"below {len(self.sums)}, the number of layers gathered")
        s = {name: value.numpy() for name, value in self.sums[layer].items()}
        rows = float(s["rows"].sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            found: dict[str, float | np.ndarray] = {
                name: float(s[name].sum() / rows) if rows else math.nan
                for name in ("entropy", "max", "keys_needed", "share_needed")
            }
            found["entropy_share"] = float(s["entropy"].sum() / s["most"].sum()) if rows else math.nan
            found["entropy_by_position"] = np.where(s["rows"] > 0, s["entropy"] / s["rows"], np.nan)
            if "group" in s:
                found["group_mass"], found["group_uniform"] = s["group"] / rows, s["group_uniform"] / rows
        return found


def _groups(given: Any) -> Tensor:
    try:
        groups = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        groups = torch.empty(0)
    if (
        groups.ndim != 1
        or not groups.numel()
        or groups.is_floating_point()
        or int(groups.min()) < -1
        or int(groups.max()) < 0
    ):
        raise InputError("groups", given, "one whole number for each token, from 0, or −1 for none")
    return groups.long()


def _added(a: Tensor, b: Tensor) -> Tensor:
    """Sums by position of windows of different lengths."""
    if a.shape == b.shape:
        return a + b
    total = torch.zeros(max(len(a), len(b)), dtype=a.dtype)
    total[: len(a)] += a
    total[: len(b)] += b
    return total

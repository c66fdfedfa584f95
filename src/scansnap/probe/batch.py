"""The batch a probe looks at: kept as it was, given to the model, known by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.checks import InputError


def copied(batch: Any) -> Any:
    """The batch as it is now: loaders may write the next one into the same memory."""
    if isinstance(batch, Tensor):
        return batch.detach().clone()
    if isinstance(batch, Mapping):
        return {name: copied(one) for name, one in batch.items()}
    return type(batch)(map(copied, batch)) if isinstance(batch, tuple | list) else batch


def called(model: nn.Module, batch: Any) -> Any:
    """``model(**batch)``, ``model(*batch)`` or ``model(batch)``."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def placed(model: nn.Module, batch: Any) -> Any:
    """The batch where the model is now: a Trainer may have moved it. As it is, where that is no single place."""
    devices = {tensor.device for tensor in model.parameters()}
    return moved_to(batch, devices.pop()) if len(devices) == 1 else batch


def moved_to(batch: Any, device: torch.device) -> Any:
    """The batch where the model is."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved_to(one, device) for name, one in batch.items()}
    return type(batch)(moved_to(one, device) for one in batch) if isinstance(batch, tuple | list) else batch


def token_ids(given: Any) -> Tensor | None:
    """Token ids (B, T), if that is what it is or has."""
    if isinstance(given, Mapping):
        found = given.get("input_ids")
    else:
        found = given[0] if isinstance(given, tuple | list) and given else given
    whole_numbers = isinstance(found, Tensor) and found.ndim == 2 and not found.is_floating_point()
    return found if whole_numbers else None


def padding(batch: Any) -> Tensor | None:
    """(B, T) 0 where the batch is padded, if it says so."""
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def own_loss(output: Any) -> Tensor | None:
    """The loss that a model gives by itself, where its batch has labels."""
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return found.detach() if isinstance(found, Tensor) and found.numel() == 1 else None


def tensors_of(batch: Any) -> list[Tensor]:
    """All tensors in it, in order."""
    if isinstance(batch, Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]


def fingerprint(batch: Any) -> str:
    """One word for what is in its tensors."""
    digest = hashlib.sha256()
    for tensor in tensors_of(batch):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def device_of(model: nn.Module) -> torch.device:
    """Where the model is; refused if that is two places, since one batch cannot be in both."""
    devices = sorted({str(tensor.device) for tensor in model.parameters()})
    if len(devices) > 1:
        raise InputError(
            "model", f"on {' and '.join(devices)}", "on one device, or give forward= that places the batch"
        )
    return torch.device(devices[0] if devices else "cpu")

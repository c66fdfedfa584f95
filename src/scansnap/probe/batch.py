"""The probe's fixed batch: copy it, pass it to the model, hash it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.checks import InputError


def copy_batch(batch: Any) -> Any:
    """A copy of the tensors, since a loader may reuse their memory."""
    if isinstance(batch, Tensor):
        return batch.detach().clone()
    if isinstance(batch, Mapping):
        return {name: copy_batch(part) for name, part in batch.items()}
    return type(batch)(map(copy_batch, batch)) if isinstance(batch, tuple | list) else batch


def call_model(model: nn.Module, batch: Any) -> Any:
    """``model(**batch)``, ``model(*batch)`` or ``model(batch)``."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on a device."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: to_device(part, device) for name, part in batch.items()}
    return type(batch)(to_device(part, device) for part in batch) if isinstance(batch, tuple | list) else batch


def to_model(batch: Any, model: nn.Module) -> Any:
    """The batch on the model's device, which a Trainer may have changed; as it is for a model on several devices."""
    devices = {tensor.device for tensor in model.parameters()}
    return to_device(batch, devices.pop()) if len(devices) == 1 else batch


def token_ids(batch: Any) -> Tensor | None:
    """Token ids (B, T), if the batch is or has them."""
    if isinstance(batch, Mapping):
        ids = batch.get("input_ids")
    else:
        ids = batch[0] if isinstance(batch, tuple | list) and batch else batch
    return ids if isinstance(ids, Tensor) and ids.ndim == 2 and not ids.is_floating_point() else None


def padding_mask(batch: Any) -> Tensor | None:
    """The attention mask (B, T) of the batch, 0 at padding."""
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def model_loss(output: Any) -> Tensor | None:
    """The loss that a model returns when its batch has labels."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return loss.detach() if isinstance(loss, Tensor) and loss.numel() == 1 else None


def is_output_finite(output: Any, padding: Tensor | None) -> Tensor | None:
    """Whether the first tensor of an output has neither NaN nor +∞, without the positions that ``padding`` marks by 0.

    −∞ is allowed: some models mask unused tokens by it.
    """
    tensors = (tensor for tensor in tensors_of(output) if tensor.is_floating_point() and tensor.ndim and tensor.numel())
    values = next(tensors, None)
    if values is None:
        return None
    values = values.detach()
    if padding is not None and values.shape[:2] == padding.shape:
        values = values.flatten(2).amax(-1) if values.ndim > 2 else values
        values = values.masked_fill(padding.to(values.device) == 0, 0.0)
    return values.amax() < torch.inf


def tensors_of(batch: Any) -> list[Tensor]:
    """All tensors of the batch, in order."""
    if isinstance(batch, Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]


def hash_batch(batch: Any) -> str:
    """A fingerprint of the tensors."""
    digest = hashlib.sha256()
    for tensor in tensors_of(batch):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def require_single_device(model: nn.Module) -> None:
    """Refuse a model on several devices: one batch cannot be on all of them."""
    devices = sorted({str(tensor.device) for tensor in model.parameters()})
    if len(devices) > 1:
        raise InputError(
            "model", " and ".join(devices), "a model on one device", "pass forward= to place the batch yourself"
        )

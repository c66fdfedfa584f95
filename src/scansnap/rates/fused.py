"""Fused projections: one tensor that holds queries, keys and values, trained as if its parts were parameters.

A `FusedPart` is a parameter whose values are a view of the whole tensor and whose gradient is the same view of the
whole gradient. An optimiser that gets the parts instead of the whole treats them as separate parameters: rates, weight
decay, moments and orthogonalised updates are exactly those of separate projections, and the whole tensor changes in
place. Clearing the gradient of a part clears that of the whole, so clipping, gradient accumulation and loss scaling
work on either.

    thirds      q, k, v one after the other (GPT-2, nanoGPT, nn.MultiheadAttention, ModernBERT, MPT, timm)
    grouped     all queries, then fewer keys and values (Phi-3, and others with grouped-query attention)
    interleaved q, k, v of head 0, then of head 1, … (GPT-NeoX, BLOOM, Falcon)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.checks import InputError

_FUSED = re.compile(r"^(c_attn|query_key_value|qkv_proj|w_?qkv|qkv|in_proj(_weight|_bias)?|to_(qkv|kv)|kv_proj)$")
_INTERLEAVED = ("GPTNeoXAttention", "BloomAttention", "FalconAttention", "FalconFlashAttention2")
_OTHER_LAYOUT = re.compile(r"codegen|bigcode|chatglm|glm|persimmon|mpt_mqa")  # neither of the layouts above
_REMEDY = "pass rules={NAME: ROLE} to give all of it one role, or rules={NAME: ('qk', 'qk', 'vo')} for equal thirds"
ROLE_OF = {"q": "qk", "k": "qk", "v": "vo"}


@dataclass(frozen=True)
class Part:
    """A part of a fused tensor: its name, and how to view it."""

    name: str
    view: Callable[[Tensor], Tensor]


class FusedPart(nn.Parameter):
    """A parameter that is a view of another one, with the same view of its gradient.

    Optimisers read ``grad`` before each update, so that is where a tensor that has moved to another device is found.
    """

    whole: nn.Parameter
    view_of: Callable[[Tensor], Tensor]

    def __new__(cls, whole: nn.Parameter, view: Callable[[Tensor], Tensor]) -> FusedPart:
        part = torch.Tensor._make_subclass(cls, view(whole.data), True)
        part.whole, part.view_of = whole, view
        return part

    def __init__(self, whole: nn.Parameter, view: Callable[[Tensor], Tensor]) -> None:
        """As created."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FusedPart:
        raise InputError(
            "optimizer", "a part of a fused projection", "no copy", "copy the model, then call param_groups"
        )

    @property
    def grad(self) -> Tensor | None:
        """The same view of the whole gradient; None if there is none."""
        current = self.view_of(self.whole.data)
        if current.data_ptr() != self.data_ptr() or current.dtype != self.dtype:
            self.data = current
        gradient = self.whole.grad
        return None if gradient is None else self.view_of(gradient)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            self.whole.grad = None
            return
        if self.whole.grad is None:
            self.whole.grad = torch.zeros_like(self.whole)
        self.view_of(self.whole.grad).copy_(value)


def make_part(parameter: nn.Parameter, part: Part, name: str) -> FusedPart:
    """The part as a parameter; sharded tensors are refused."""
    if hasattr(parameter, "ds_id") or hasattr(parameter, "device_mesh") or type(parameter).__name__ == "FlatParameter":
        raise InputError("model", f"{name}, which is sharded", "a fused projection on one device",
                         "call param_groups with equal ratios for qk and vo, or use separate projections")  # fmt: skip
    return FusedPart(parameter, part.view)


def split_fused(
    name: str, module: nn.Module, parent: nn.Module | None, parameter: nn.Parameter
) -> list[tuple[str, Part]]:
    """The parts of a fused projection with their roles; empty for any other parameter.

    ``module`` holds the parameter, and ``parent`` is the module around it.
    """
    parts = name.split(".")
    leaf = (parts[-2] if parts[-1] in ("weight", "bias") and len(parts) > 1 else parts[-1]).lower()
    if not _FUSED.search(leaf) or "norm" in type(module).__name__.lower():
        return []
    if leaf == "in_proj" and not re.search(r"attn|attention", name.lower()):
        return []  # the input projection of something else, such as Mamba
    attention = module if isinstance(module, nn.MultiheadAttention) else parent
    kind = type(attention).__name__
    if _OTHER_LAYOUT.search(kind.lower()):
        raise InputError("model", f"{name} of {kind}", "a fused projection with a known layout", _REMEDY)
    if leaf == "query_key_value":
        return _interleaved(name, module, attention, parameter)
    dim, size = _output(module, parameter)
    if leaf in ("to_kv", "kv_proj"):
        return _consecutive(name, dim, size, [("k", size // 2), ("v", size // 2)])
    query = _query_size(attention, module, parameter) if leaf in ("qkv_proj", "wqkv", "w_qkv", "qkv") else None
    if query is not None and query != size:
        rest = (size - query) // 2
        return _consecutive(name, dim, size, [("q", query), ("k", rest), ("v", rest)])
    if leaf == "c_attn" and attention is not None and hasattr(attention, "q_attn"):  # GPT-2 cross-attention
        return _consecutive(name, dim, size, [("k", size // 2), ("v", size // 2)])
    return _consecutive(name, dim, size, [(part, size // 3) for part in "qkv"])


def equal_parts(
    name: str, module: nn.Module, parameter: nn.Parameter, roles: tuple[str, ...]
) -> list[tuple[str, Part]]:
    """Consecutive equal parts with these roles, as a user's rule states."""
    dim, size = _output(module, parameter)
    sized = [(str(i), size // len(roles)) for i in range(len(roles))]
    return [(role, part) for role, (_, part) in zip(roles, _consecutive(name, dim, size, sized), strict=True)]


def _output(module: nn.Module, parameter: Tensor) -> tuple[int, int]:
    """The dimension of the outputs and its size; transformers' Conv1D has them last."""
    dim = parameter.ndim - 1 if type(module).__name__ == "Conv1D" else 0
    return dim, parameter.shape[dim]


def _consecutive(name: str, dim: int, size: int, parts: list[tuple[str, int]]) -> list[tuple[str, Part]]:
    if sum(length for _, length in parts) != size or min(length for _, length in parts) < 1:
        raise InputError("model", f"{name} with {size} outputs", f"parts {'+'.join(p for p, _ in parts)}", _REMEDY)
    result, start = [], 0
    for part, length in parts:
        result.append((ROLE_OF.get(part, part), Part(part, _narrow(dim, start, length))))
        start += length
    return result


def _narrow(dim: int, start: int, length: int) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.narrow(dim, start, length)


def _query_size(attention: nn.Module | None, module: nn.Module, parameter: Tensor) -> int | None:
    """Query outputs: the inputs of the output projection next to it."""
    for name in ("o_proj", "out_proj", "Wo", "proj"):
        output = getattr(attention, name, None)
        if isinstance(output, nn.Linear):
            return output.in_features
    return None


def _interleaved(
    name: str, module: nn.Module, attention: nn.Module | None, parameter: nn.Parameter
) -> list[tuple[str, Part]]:
    """Per head, or per group of heads with a shared key and value; Falcon's multi-query layout is consecutive."""
    kind, size = type(attention).__name__, parameter.shape[0]
    config: Any = getattr(attention, "config", None)
    heads = getattr(config, "num_attention_heads", None) or getattr(config, "n_head", None)
    heads = heads or getattr(attention, "num_attention_heads", None) or getattr(attention, "num_heads", None)
    if kind not in _INTERLEAVED or not isinstance(heads, int):
        raise InputError("model", f"{name} of {kind}", f"one of {', '.join(_INTERLEAVED)}", _REMEDY)
    groups, per_group = heads, 1
    if "Falcon" in kind:
        if getattr(config, "new_decoder_architecture", False):
            groups = int(config.num_kv_heads)
            per_group = heads // groups
        elif getattr(config, "multi_query", False):
            width = size // (heads + 2)
            return _consecutive(name, 0, size, [("q", heads * width), ("k", width), ("v", width)])
    if size % (groups * (per_group + 2)):
        raise InputError("model", f"{name} with {size} outputs", f"a multiple of {groups * (per_group + 2)}", _REMEDY)
    starts = {"q": (0, per_group), "k": (per_group, 1), "v": (per_group + 1, 1)}
    return [(ROLE_OF[part], Part(part, _per_group(groups, per_group + 2, *place))) for part, place in starts.items()]


def _per_group(groups: int, slots: int, start: int, length: int) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.unflatten(0, (groups, slots, -1)).narrow(1, start, length)

"""Capture attention that transformers computes in a kernel.

Models of transformers look their attention function up by name. During a measurement flash attention and other kernels
are replaced by our function, which computes the same from q, k and v: softmax(cap(scale · q kᵀ) + mask), with the masks
of the model (windows, padding, packed sequences) and its sink. A function that the user has registered stays, since it
may compute anything: q and k are taken as its attention if they reproduce its output. What torch computes (sdpa, eager,
flex attention) needs no replacement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from scansnap.probe.capture.call import CapturedAttention
from scansnap.probe.capture.sources import from_scores

NAME = "scansnap"
BLOCK = 1 << 22  # weights in memory at once
CHECKED = 8  # queries to compare with a user's function
_CAPTURED = (None, "eager", "sdpa", "flex_attention")


class CaptureTarget(Protocol):
    """What receives the attention."""

    calls: Any  # Counter of captures, by path

    def capture(self, attention: CapturedAttention, name: str | None = None) -> None: ...


@contextmanager
def replace_kernels(model: nn.Module, watcher: CaptureTarget) -> Iterator[None]:
    """Inside the block the attention of every transformers module in ``model`` can be captured."""
    library: Any = sys.modules.get("transformers.modeling_utils")  # missing: the model is not of transformers
    masks: Any = sys.modules.get("transformers.masking_utils")
    configs = _configs(model, library) if library and masks else []
    with ExitStack() as stack:
        for config in configs:
            name = config._attn_implementation
            if name.startswith("flash_attention") or "/" in name:  # or a kernel of the hub
                _register(stack, library.AttentionInterface, NAME, _make_attention(watcher, library))
                _register(stack, masks.AttentionMaskInterface, NAME, masks.sdpa_mask)
                stack.callback(setattr, config, "_attn_implementation_internal", name)
                config._attn_implementation_internal = NAME
        for name in {config._attn_implementation for config in configs} - {NAME}:
            original = library.AttentionInterface._global_mapping.get(name)
            if original is not None:
                _register(stack, library.AttentionInterface, name, _check_function(watcher, original))
        yield


def _configs(model: nn.Module, library: Any) -> list[Any]:
    """Configs that name an attention to replace, of modules that look it up when they run."""
    result: dict[int, Any] = {}
    configs_of_all = [module.__dict__.get("config") for module in model.modules()]
    if all(getattr(config, "_attn_implementation", None) in _CAPTURED for config in configs_of_all):
        return []
    for part in (module for module in model.modules() if isinstance(module, library.PreTrainedModel)):
        configs = {
            id(config): config for module in part.modules() if (config := module.__dict__.get("config")) is not None
        }
        hidden = {
            key: config
            for key, config in configs.items()
            if getattr(config, "_attn_implementation", None) not in _CAPTURED
        }
        can = hidden and getattr(part, "_can_set_attn_implementation", lambda: False)()
        result = {**result, **hidden} if can else {key: c for key, c in result.items() if key not in hidden}
    return list(result.values())


def _register(stack: ExitStack, interface: Any, name: str, function: Callable[..., Any]) -> None:
    """Register it, until the stack is left."""
    mapping = interface._global_mapping
    stack.callback(mapping.__setitem__ if name in mapping else mapping.pop, name, mapping.get(name))
    interface.register(name, function)


def _make_attention(watcher: CaptureTarget, library: Any) -> Callable[..., Any]:
    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
        more["dropout"] = 0.0
        if more.get("softcap") is None and more.get("s_aux") is None:  # captured as sdpa
            return library.sdpa_attention_forward(module, query, key, value, mask, **more)
        attention = _from_interface(module, query, key, mask, **more)._replace(value_width=value.shape[-1])
        watcher.capture(attention)
        b, h, n_queries, n_keys = attention.shape
        blocks = torch.arange(n_queries, device=query.device).split(max(1, BLOCK // (b * h * n_keys)))
        parts = [_output(attention, value, some).nan_to_num(0.0) for some in blocks]  # 0 in masked rows
        return torch.cat(parts, dim=1).to(query.dtype), None

    return attend


def _check_function(watcher: CaptureTarget, original: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function. If nothing was captured inside it, compare its output with that of q and k."""

    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
        before = watcher.calls.total()
        result = original(module, query, key, value, mask, **more)
        if watcher.calls.total() == before and (mask is None or isinstance(mask, Tensor)):
            attention = _from_interface(module, query, key, mask, **more)
            some = torch.linspace(
                0, attention.shape[2] - 1, min(CHECKED, attention.shape[2]), device=query.device
            ).long()
            output, expected = result[0][:, some].flatten(2), _output(attention, value, some).flatten(2)
            far, size = (t.abs().nan_to_num(0.0).max() for t in (output - expected, output))  # NaN in masked rows
            if far <= max(1e-4, 4 * torch.finfo(query.dtype).eps) * size:
                watcher.capture(attention._replace(value_width=value.shape[-1]))
        return result

    return attend


def _output(attention: CapturedAttention, value: Tensor, queries: Tensor) -> Tensor:
    """The attention output of some queries, (B, Q, H, width)."""
    with torch.no_grad(), torch.autocast(value.device.type, enabled=False), torch._C.DisableTorchFunction():
        p = attention.rows(queries).p
        values = value.to(p.dtype).repeat_interleave(p.shape[1] // value.shape[1], dim=1)
        return (p @ values).transpose(1, 2)


def _from_interface(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> CapturedAttention:
    """From the arguments that transformers passes to an attention function.

    mask  (B, 1, T, S): True is visible, floats are added; or (B, S): True is no padding; None: only causal masking
    """
    n_queries, n_keys = query.shape[2], key.shape[2]
    causal = (getattr(module, "is_causal", True) if is_causal is None else is_causal) and n_queries > 1
    is_full = mask is not None and mask.ndim == 4

    def modify(scores: Tensor, queries: Tensor) -> Tensor:
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if position_bias is not None:
            scores = scores + position_bias.expand(-1, -1, n_queries, -1)[..., queries, :]
        if mask is not None and is_full:
            chosen = mask.expand(-1, -1, n_queries, -1)[..., queries, :n_keys]
            return scores.masked_fill(~chosen, -torch.inf) if chosen.dtype == torch.bool else scores + chosen
        ahead = torch.arange(n_keys, device=scores.device) - (queries[:, None] + n_keys - n_queries)
        if causal:
            scores = scores.masked_fill(ahead > 0, -torch.inf)
        if sliding_window is not None:
            scores = scores.masked_fill(ahead <= -sliding_window, -torch.inf)
        return scores if mask is None else scores.masked_fill(~mask[:, None, None, -n_keys:].bool(), -torch.inf)

    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return from_scores(query, key, scale, modify, s_aux)

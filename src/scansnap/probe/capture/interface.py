"""Models of transformers whose attention is a kernel that cannot be seen into.

Their attention is a function that is looked up by name. For the measurement flash attention and other kernels are
replaced by one of ours, which computes the same from the same q, k and v: softmax(cap(scale · q kᵀ) + mask), with masks
made for it (windows, padding, packed sequences), and with a sink where the model has one. A function that a user has
registered may compute anything: it stays, and its q and k are taken for its attention if they give what it gave.
What torch computes (sdpa, eager, flex attention) is seen as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from scansnap.probe.capture.call import Seen
from scansnap.probe.capture.sources import of_scores

NAME = "scansnap"
BLOCK = 1 << 22  # weights that are there at once
CHECKED = 8  # queries by which a user's function is compared
_SEEN = (None, "eager", "sdpa", "flex_attention")


class Watcher(Protocol):
    """Who is told what is seen."""

    calls: Any  # Counter of what was seen, by path

    def hand(self, seen: Seen, name: str | None = None) -> None: ...


@contextmanager
def switched(model: nn.Module, watcher: Watcher) -> Iterator[None]:
    """Inside the block the attention of every part of ``model`` that comes from transformers can be seen."""
    library: Any = sys.modules.get("transformers.modeling_utils")  # not there: nor is a model of it
    masks: Any = sys.modules.get("transformers.masking_utils")
    configs = _configs(model, library) if library and masks else []
    with ExitStack() as stack:
        for config in configs:
            name = config._attn_implementation
            if name.startswith("flash_attention") or "/" in name:  # a kernel is called after where it is kept
                _put(stack, library.AttentionInterface, NAME, _ours(watcher, library))
                _put(stack, masks.AttentionMaskInterface, NAME, masks.sdpa_mask)
                stack.callback(setattr, config, "_attn_implementation_internal", name)
                config._attn_implementation_internal = NAME
        for name in {config._attn_implementation for config in configs} - {NAME}:
            theirs = library.AttentionInterface._global_mapping.get(name)
            if theirs is not None:
                _put(stack, library.AttentionInterface, name, _checked(watcher, theirs))
        yield


def _configs(model: nn.Module, library: Any) -> list[Any]:
    """Those that name an attention that cannot be seen, of parts that look it up when they run."""
    found: dict[int, Any] = {}
    told = [module.__dict__.get("config") for module in model.modules()]
    if all(getattr(config, "_attn_implementation", None) in _SEEN for config in told):  # as it nearly always is
        return []
    for part in (module for module in model.modules() if isinstance(module, library.PreTrainedModel)):
        configs = {id(own): own for module in part.modules() if (own := module.__dict__.get("config")) is not None}
        hidden = {key: own for key, own in configs.items() if getattr(own, "_attn_implementation", None) not in _SEEN}
        can = hidden and getattr(part, "_can_set_attn_implementation", lambda: False)()
        found = {**found, **hidden} if can else {key: own for key, own in found.items() if key not in hidden}
    return list(found.values())


def _put(stack: ExitStack, interface: Any, name: str, function: Callable[..., Any]) -> None:
    """Register it, until the stack is left."""
    mapping = interface._global_mapping
    stack.callback(mapping.__setitem__ if name in mapping else mapping.pop, name, mapping.get(name))
    interface.register(name, function)


def _ours(watcher: Watcher, library: Any) -> Callable[..., Any]:
    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
        more["dropout"] = 0.0
        if more.get("softcap") is None and more.get("s_aux") is None:  # seen as any other is
            return library.sdpa_attention_forward(module, query, key, value, mask, **more)
        seen = _of_interface(module, query, key, mask, **more)
        watcher.hand(seen)
        b, h, n_queries, n_keys = seen.shape
        every = torch.arange(n_queries, device=query.device).split(max(1, BLOCK // (b * h * n_keys)))
        parts = [_given(seen, value, some).nan_to_num(0.0) for some in every]  # nothing where all is masked
        return torch.cat(parts, dim=1).to(query.dtype), None

    return attend


def _checked(watcher: Watcher, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function. Where nothing was seen inside it, what q and k say is compared with what it gave."""

    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
        before = watcher.calls.total()
        result = theirs(module, query, key, value, mask, **more)
        if watcher.calls.total() == before and (mask is None or isinstance(mask, Tensor)):
            seen = _of_interface(module, query, key, mask, **more)
            some = torch.linspace(0, seen.shape[2] - 1, min(CHECKED, seen.shape[2]), device=query.device).long()
            given, expected = result[0][:, some].flatten(2), _given(seen, value, some).flatten(2)
            far, size = (t.abs().nan_to_num(0.0).max() for t in (given - expected, given))  # all masked: says nothing
            if far <= max(1e-4, 4 * torch.finfo(query.dtype).eps) * size:
                watcher.hand(seen)
        return result

    return attend


def _given(seen: Seen, value: Tensor, queries: Tensor) -> Tensor:
    """What some queries take from the values, (B, Q, H, width)."""
    with torch.no_grad(), torch.autocast(value.device.type, enabled=False), torch._C.DisableTorchFunction():
        p = seen.rows(queries).p
        values = value.to(p.dtype).repeat_interleave(p.shape[1] // value.shape[1], dim=1)
        return (p @ values).transpose(1, 2)


def _of_interface(
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
) -> Seen:
    """From what transformers hands to an attention function.

    mask  (B, 1, T, S), booleans say what is seen and numbers are added; or (B, S), what is no padding; None: nothing is
          hidden but what comes later, where the attention is causal
    """
    n_queries, n_keys = query.shape[2], key.shape[2]
    causal = (getattr(module, "is_causal", True) if is_causal is None else is_causal) and n_queries > 1
    whole = mask is not None and mask.ndim == 4

    def changed(scores: Tensor, queries: Tensor) -> Tensor:
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if position_bias is not None:
            scores = scores + position_bias.expand(-1, -1, n_queries, -1)[..., queries, :]
        if mask is not None and whole:
            chosen = mask.expand(-1, -1, n_queries, -1)[..., queries, :n_keys]
            return scores.masked_fill(~chosen, -torch.inf) if chosen.dtype == torch.bool else scores + chosen
        ahead = torch.arange(n_keys, device=scores.device) - (queries[:, None] + n_keys - n_queries)
        if causal:
            scores = scores.masked_fill(ahead > 0, -torch.inf)
        if sliding_window is not None:
            scores = scores.masked_fill(ahead <= -sliding_window, -torch.inf)
        return scores if mask is None else scores.masked_fill(~mask[:, None, None, -n_keys:].bool(), -torch.inf)

    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return of_scores(query, key, scale, changed, s_aux)

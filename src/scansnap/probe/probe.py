"""The probe: measures the attention of a model on one batch, at chosen steps of somebody else's training loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from scansnap.checks import InputError, whole
from scansnap.probe.capture import AttentionCall, watching
from scansnap.probe.quiet import undisturbed
from scansnap.probe.statistics import Statistic, statistics

_EVERY = "a number of steps, a list of steps, or log:N with N measurements a decade"
Due = Callable[[int], bool]


class Probe:
    """Statistics of every attention of a model, over training.

    batch    what ``model(**batch)``, ``model(*batch)`` or ``model(batch)`` takes; for anything else there is
             ``forward(model, batch)``
    every    when :meth:`step` measures: a number of steps, a list of steps, or ``log:N``, N a decade
    queries  query positions looked at in each sequence, spread evenly; None: all
    tokens   token ids (B, T) of the batch, where it does not have them as ``input_ids`` or is not made of them: without
             them nothing is known of which words are looked at

    Weights, buffers, modes and random numbers are as if nobody had looked. A measurement that fails warns, and training
    goes on.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Any,
        *,
        every: int | str | Iterable[int] = "log:40",
        queries: int | None = 64,
        tokens: Tensor | None = None,
        forward: Callable[[nn.Module, Any], Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        self.model, self.batch, self.forward = model, _copied(batch), forward or _call
        self.due, self.queries = schedule(every), None if queries is None else whole("queries", queries, least=1)
        self.tokens = _tokens(self.batch if tokens is None else tokens)
        self.steps: list[int] = []
        self.calls: dict[tuple[str, int], str] = {}  # path and number of each attention, and its kind
        self.found: list[dict[tuple[str, int], dict[str, Statistic]]] = []  # of each measured step

    def step(self, step: int) -> None:
        """Say after which update the training is; measures where that is due."""
        if self.due(step) and step not in self.steps:
            self.measure(step)

    def measure(self, step: int) -> None:
        """Measure now."""
        whole("step", step)
        found: dict[tuple[str, int], dict[str, Statistic]] = {}

        def look(seen: AttentionCall) -> None:
            queries = self._positions(seen.shape[2], seen.shape[2] == seen.shape[3])
            own = self.tokens is not None and self.tokens.shape == (seen.shape[0], seen.shape[3])
            tokens = self.tokens.to(queries.device) if own and self.tokens is not None else None
            found[seen.path, seen.number] = statistics(seen.rows(queries), queries, tokens)
            self.calls.setdefault((seen.path, seen.number), seen.kind)

        try:
            with undisturbed(self.model), watching(self.model, look):
                self.forward(self.model, self.batch)
        except Exception as error:
            warnings.warn(f"the probe could not measure at step {step} ({type(error).__name__}: {error})", stacklevel=2)
            return
        if not found:
            ways = "neither scaled_dot_product_attention nor a softmax in a module called attention"
            warnings.warn(f"the probe saw no attention: {ways}", stacklevel=2)
        self.steps.append(step)
        self.found.append(found)

    def dataset(self) -> xr.Dataset:
        """Means over the sequences of the batch by step, attention and head, and ``…_uniform`` beside each."""
        calls = list(self.calls)
        each = [one for found in self.found for one in found.values()]
        names = list(dict.fromkeys(name for one in each for name in one))
        heads = max((statistic.value.shape[1] for one in each for statistic in one.values()), default=0)
        shape = (len(self.steps), len(calls), heads)
        data = {key: np.full(shape, np.nan) for name in names for key in (name, f"{name}_uniform")}
        for i, found in enumerate(self.found):
            for call, values in found.items():
                for name, one in values.items():
                    for key, tensor in ((name, one.value), (f"{name}_uniform", one.uniform)):
                        mean = tensor.double().nanmean(0).cpu().numpy()  # (H,)
                        data[key][i, calls.index(call), : len(mean)] = mean
        dims = ("step", "attention", "head")
        coords = {"step": self.steps, "path": ("attention", [path for path, _ in calls]),
                  "call": ("attention", [number for _, number in calls]),
                  "kind": ("attention", list(self.calls.values()))}  # fmt: skip
        return xr.Dataset({key: (dims, values) for key, values in data.items()}, coords=coords)

    def _positions(self, n_queries: int, to_itself: bool) -> Tensor:
        """Evenly spread; the first of a window that looks at itself has one key at most where it is causal."""
        first = 1 if to_itself and n_queries > 1 else 0
        n = n_queries - first if self.queries is None else min(self.queries, n_queries - first)
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        return torch.linspace(first, n_queries - 1, n, device=device).round().long().unique()


def schedule(every: int | str | Iterable[int]) -> Due:
    """Whether a step is to be measured."""
    if isinstance(every, str):
        kind, _, number = every.partition(":")
        if kind != "log" or not number.isdecimal() or int(number) < 1:
            raise InputError("every", every, _EVERY)
        per_decade = int(number)

        def place(step: int) -> int:
            return math.floor(per_decade * math.log10(step) + 1e-9)

        return lambda step: step < 2 or place(step) > place(step - 1)
    if isinstance(every, Iterable):
        steps = {whole("every", one) for one in every}
        return lambda step: step in steps
    n = whole("every", every, least=1)
    return lambda step: step % n == 0


def _call(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _copied(batch: Any) -> Any:
    """The batch as it is now: loaders may write the next one into the same memory."""
    if isinstance(batch, Tensor):
        return batch.detach().clone()
    if isinstance(batch, Mapping):
        return {name: _copied(one) for name, one in batch.items()}
    return type(batch)(map(_copied, batch)) if isinstance(batch, tuple | list) else batch


def _tokens(given: Any) -> Tensor | None:
    """Token ids (B, T), if that is what it is or has."""
    if isinstance(given, Mapping):
        found = given.get("input_ids")
    else:
        found = given[0] if isinstance(given, tuple | list) and given else given
    whole_numbers = isinstance(found, Tensor) and found.ndim == 2 and not found.is_floating_point()
    return found if whole_numbers else None

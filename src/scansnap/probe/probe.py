"""The probe: measures the attention of a model on one batch, at chosen steps of somebody else's training loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import xarray as xr
from torch import Tensor, nn

from scansnap.checks import InputError, whole
from scansnap.probe.batch import called, copied, token_ids
from scansnap.probe.capture import watching
from scansnap.probe.look import Look
from scansnap.probe.quiet import undisturbed
from scansnap.probe.schedule import schedule
from scansnap.probe.store import Measurements, described, kept_in


class Probe:
    """Statistics of every attention of a model, over training.

    batch    what ``model(**batch)``, ``model(*batch)`` or ``model(batch)`` takes; for anything else there is
             ``forward(model, batch)``
    every    when :meth:`step` measures: a number of steps, a list of steps, or ``log:N``, N a decade
    queries  query positions looked at in each sequence, spread evenly; None: all
    tokens   token ids (B, T) of the batch, where it does not have them as ``input_ids`` or is not made of them: without
             them nothing is known of which words are looked at
    out      a Zarr folder that every measurement goes to; it is there and of the same batch where a training is
             resumed, and goes on from the first step that is told. One that cannot be gone on with is refused, or
             replaced with ``overwrite``. None: in memory only

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
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        self.model, self.batch, self.forward = model, copied(batch), forward or called
        every = every if isinstance(every, int | str) else list(every)
        self.due, self.queries = schedule(every), None if queries is None else whole("queries", queries, least=1)
        self.tokens = token_ids(self.batch if tokens is None else tokens)
        attrs = described(model, self.batch, every, self.queries)
        self.measurements = (
            Measurements(attrs, self.tokens) if out is None else kept_in(out, attrs, self.tokens, overwrite)
        )

    def step(self, step: int) -> None:
        """Say after which update the training is; measures where that is due."""
        self.measurements.begin(step)
        if self.due(step) and step not in self.measurements.steps:
            self.measure(step)

    def measure(self, step: int) -> None:
        """Measure now."""
        whole("step", step)
        self.measurements.begin(step)
        look = Look(self.queries, self.tokens)
        try:
            with undisturbed(self.model), watching(self.model, look):
                self.forward(self.model, self.batch)
            found = look.finish(self.measurements.last, self.measurements.first)
        except Exception as error:
            warnings.warn(f"the probe could not measure at step {step} ({type(error).__name__}: {error})", stacklevel=2)
            return
        if not found.layers:
            ways = "neither scaled_dot_product_attention nor a softmax in a module called attention"
            warnings.warn(f"the probe saw no attention: {ways}", stacklevel=2)
        self.measurements.add(step, found)

    def dataset(self) -> xr.Dataset:
        """Means over the sequences of the batch by step, layer and head, and ``…_uniform`` beside each."""
        return self.measurements.dataset()

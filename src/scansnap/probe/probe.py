"""The probe: measures the attention of a model on one batch, at chosen steps of somebody else's training loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import xarray as xr
from torch import Tensor, nn

from scansnap.checks import InputError, whole
from scansnap.probe.batch import called, copied, fingerprint, padding, token_ids
from scansnap.probe.capture import watching
from scansnap.probe.corpus import facts
from scansnap.probe.findings import findings
from scansnap.probe.look import Look
from scansnap.probe.quiet import undisturbed
from scansnap.probe.schedule import schedule
from scansnap.probe.store import Measurements


class Probe:
    """Statistics of every attention of a model, over training.

    batch    what ``model(**batch)``, ``model(*batch)`` or ``model(batch)`` takes; for anything else there is
             ``forward(model, batch)``
    corpus   what tells common from distinct tokens: token ids in one row, a table or a list of documents, or a
             scansnap corpus; None: the batch itself
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
        corpus: Any = None,
        *,
        every: int | str | Iterable[int] = "log:40",
        queries: int | None = 64,
        tokens: Tensor | None = None,
        forward: Callable[[nn.Module, Any], Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        self.model, self.batch, self.forward = model, copied(batch), forward or called
        self.due, self.queries = schedule(every), None if queries is None else whole("queries", queries, least=1)
        self.tokens = token_ids(self.batch if tokens is None else tokens)
        if self.tokens is None and corpus is not None:
            raise InputError(
                "batch", "without token ids", "one with input_ids, or give tokens=, where there is a corpus"
            )
        self.facts = None if self.tokens is None else facts(corpus, self.tokens, padding(self.batch))
        self.measurements = Measurements()

    def step(self, step: int) -> None:
        """Say after which update the training is; measures where that is due."""
        if self.due(step) and step not in self.measurements.steps:
            self.measure(step)

    def measure(self, step: int) -> None:
        """Measure now."""
        whole("step", step)
        look = Look(self.queries, self.tokens, self.facts)
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
        """Means over the sequences of the batch by step, layer and head, ``…_uniform`` beside each, and what follows:

        scan index, snapping times, verdicts (:mod:`scansnap.probe.findings`).
        """
        n_sequences = 0 if self.tokens is None else len(self.tokens)
        attrs = {"batch": fingerprint(self.batch), **({} if self.facts is None else self.facts.attrs)}
        return findings(self.measurements.dataset(n_sequences, attrs))

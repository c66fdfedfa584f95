"""The probe: measures the attention of a model on one batch, at chosen steps of somebody else's training loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from torch import Tensor, nn

from scansnap.checks import InputError, check_integer
from scansnap.probe.batch import called, copied, device_of, own_loss, padding, placed, token_ids
from scansnap.probe.capture import AttentionCall, watching
from scansnap.probe.corpus import facts
from scansnap.probe.coverage import Coverage
from scansnap.probe.findings import findings
from scansnap.probe.graph import Recorded, cannot_be_recorded, recorded, what_it_depends_on
from scansnap.probe.look import Chosen, Look, Measurement, Pass
from scansnap.probe.parallel import agreed, bare, first_process, sharded
from scansnap.probe.quiet import any_algorithm, undisturbed, without_collecting
from scansnap.probe.schedule import schedule
from scansnap.probe.store import Measurements, described, kept_in

T = TypeVar("T")


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
    out      a Zarr folder that every measurement goes to; it is there and of the same batch where a training is
             resumed, and goes on from the first step that is told. One that cannot be gone on with is refused, or
             replaced with ``overwrite``. None: in memory only
    words    the text of each token id, from 0 on, so that the report can show sentences
    graph    measure by replaying a CUDA graph, for passes that depend on weights, buffers and the batch alone (not on
             Python's numbers that change while it trains); the memory of one pass stays taken

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
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        words: Sequence[str] | None = None,
        graph: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        self.model, self.batch, self.forward = bare(model), copied(batch), forward or called
        if forward is None:
            device_of(self.model)
        every = every if isinstance(every, int | str) else list(every)
        self.due, self.queries = (
            schedule(every),
            None if queries is None else check_integer("queries", queries, least=1),
        )
        self.tokens = token_ids(self.batch if tokens is None else tokens)
        if self.tokens is None and corpus is not None:
            raise InputError(
                "batch", "without token ids", "one with input_ids, or give tokens=, where there is a corpus"
            )
        self.facts = None if self.tokens is None else facts(corpus, self.tokens, padding(self.batch))
        self.coverage: Coverage | None = None  # of the last measurement
        self.chosen: dict[Any, Chosen] = {}  # what is looked at, by the shape of an attention
        attrs = described(self.model, self.batch, every, self.queries)
        attrs |= {} if self.facts is None else self.facts.attrs
        self._graph = graph  # whether to replay; not once it has turned out to be impossible
        self._recorded: Recorded | None = None
        self._depended: tuple[Any, ...] | None = None  # what the last pass that was not replayed depended on
        self._kept = Measurements(attrs, self.tokens, words)
        self._on_its_way: tuple[int, Any, Callable[[], Measurement]] | None = None  # step, loss, and the rest
        self._at_once = out is not None  # what is on disk must not lag behind a checkpoint
        if out is not None and first_process():
            self._kept = kept_in(out, attrs, self.tokens, words, overwrite)

    @property
    def measurements(self) -> Measurements:
        """All so far; waits for the last one."""
        self._settle()
        return self._kept

    def step(self, step: int, loss: float | Tensor | None = None) -> None:
        """Say after which update the training is, and its loss if you like; measures where that is due."""
        self._kept.begin(step)
        if self.due(step):
            new = step not in self.measurements.steps
            if agreed(new) if sharded(self.model) else new:
                self.measure(step, loss)

    def measure(self, step: int, loss: float | Tensor | None = None) -> None:
        """Measure now. Of several processes the first keeps it; the others run the model only if it is in shards."""
        check_integer("step", step)
        if not first_process() and not sharded(self.model):
            return
        kept = self.measurements
        kept.begin(step)
        try:
            found = self._pass()
            if not first_process():
                return
            with any_algorithm():
                arriving = found.look.finish(kept.last, kept.first, kept.before(step))
        except Exception as error:
            self._say(step, error)
            return
        before, self.coverage = self.coverage, found.coverage
        kept.attrs["coverage"] = self.coverage.sentence()
        told = found.loss if loss is None else loss
        self._on_its_way = step, told.detach().clone() if isinstance(told, Tensor) else told, arriving
        if self._at_once:
            self._settle()
        if not self.coverage.complete and self.coverage != before:  # said once
            warnings.warn(self.coverage.sentence(), stacklevel=2)

    def _pass(self) -> Pass:
        """One of the model over the batch, looked at; replayed if it may be and is as the one that was recorded."""
        batch = placed(self.model, self.batch)
        if not self._graph:
            return self._watched(batch, lambda run: run())
        depends = what_it_depends_on(self.model)
        if self._recorded is None or self._recorded.made_for != depends:
            self._recorded = None  # its memory is free before the next is recorded
            last, self._depended = self._depended, depends
            if last != depends:  # the first of its kind: what compiles or chooses as it runs does so now
                return self._watched(batch, lambda run: run())
            try:
                if why := cannot_be_recorded(self.model, batch):
                    raise RuntimeError(why)
                self._recorded = self._watched(batch, lambda run: recorded(self.model, batch, run))
            except Exception as error:
                self._graph = False
                warnings.warn(f"the probe goes on without a CUDA graph: {error}", stacklevel=4)
                return self._watched(batch, lambda run: run())
        return self._recorded.again(self.model)

    def _watched(self, batch: Any, how: Callable[[Callable[[], Pass]], T]) -> T:
        """``how`` is given a pass to run."""
        look, failed = Look(self.queries, self.tokens, self.facts, self.chosen), list[Exception]()

        def seen(call: AttentionCall) -> None:
            """The model's pass goes on if a look fails: other processes may wait for this one inside it."""
            if first_process() and not failed:
                try:
                    with any_algorithm():
                        look(call)
                except Exception as error:
                    failed.append(error)

        with without_collecting(), undisturbed(self.model), watching(self.model, seen) as watched:
            found = how(lambda: Pass(look, own_loss(self.forward(self.model, batch)), Coverage.of(watched)))
        if failed:
            raise failed[0]
        return found

    def _settle(self) -> None:
        """Keep what is on its way. A GPU goes on with the training meanwhile, so it is asked for when it is needed."""
        if self._on_its_way is None:
            return
        (step, loss, found), self._on_its_way = self._on_its_way, None
        try:
            new = found()
            if loss is not None:
                new.values["loss"] = [np.array(float(loss))]
            self._kept.add(step, new)
        except Exception as error:
            self._say(step, error)

    def _say(self, step: int, error: Exception) -> None:
        words = f"the probe could not measure at step {step} ({type(error).__name__}: {error})"
        warnings.warn(words, stacklevel=4)

    def dataset(self) -> xr.Dataset:
        """Means over the sequences of the batch by step, layer and head, ``…_uniform`` beside each, and what follows:

        scan index, snapping times, verdicts (:mod:`scansnap.probe.findings`).
        """
        return findings(self.measurements.dataset())

    def report(self, path: str | PathLike[str]) -> None:
        """Write the page about all measurements so far: one HTML file, which opens offline."""
        from scansnap.probe.report.page import report

        report(self.dataset(), path)

    def tensorboard(self, folder: str | PathLike[str]) -> None:
        """Write the measurements so far as TensorBoard scalars, in place of those written there before."""
        from scansnap.probe.tensorboard import export

        export(self.dataset(), folder)

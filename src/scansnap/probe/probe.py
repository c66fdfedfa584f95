"""Measure the attention of a model on one batch, at chosen steps of a training loop."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypeVar

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.optim import Optimizer

from scansnap.checks import InputError, check_integer, digits
from scansnap.probe.alerts import Alert, FiredAlert
from scansnap.probe.batch import (
    call_model,
    copy_batch,
    is_output_finite,
    model_loss,
    padding_mask,
    require_single_device,
    to_model,
    token_ids,
)
from scansnap.probe.capture import AttentionWatcher, watch_attention
from scansnap.probe.capture.modules import Coverage
from scansnap.probe.corpus import token_facts
from scansnap.probe.distributed import broadcast_decision, is_main_process, is_sharded, unwrap_model
from scansnap.probe.findings import add_findings
from scansnap.probe.graph import RecordedPass, pass_dependencies, record_pass, why_not_recordable
from scansnap.probe.listeners import Listeners
from scansnap.probe.loggers.scalars import History
from scansnap.probe.loggers.targets import export
from scansnap.probe.measurement import AttentionCollector, ForwardPass, LayerPlan, Measurement
from scansnap.probe.schema import PARTS
from scansnap.probe.state import allow_nondeterminism, pause_garbage_collection, preserve_state
from scansnap.probe.store import Measurements, describe_run, open_measurements
from scansnap.probe.trial import MAX_BYTES, FileSize, check_words, file_size, sample_size, try_batch
from scansnap.rates.ratio import ratios_by_role

T = TypeVar("T")


class Probe:
    """Record how every attention head of a model changes during training.

    The probe runs the model on a fixed batch at chosen steps and stores statistics of its attention: entropy, what it
    attends to, how far it has moved. Training with the probe gives bit-identical weights to training without it. A
    measurement that fails gives a warning, and training continues.

    Parameters
    ----------
    model : torch.nn.Module
        Any model that computes attention by softmax over keys.
    batch : Any
        What ``model(**batch)``, ``model(*batch)`` or ``model(batch)`` takes.
    corpus : Any, optional
        Token ids that determine which tokens are common: one row, a table, a list of documents, or a
        `scansnap.Corpus`. Without it the batch is the corpus.
    every : int, str or iterable of int
        When `step` measures: every n-th step, a list of steps, or ``log:N`` with N measurements per decade.
    queries : int or None
        Query positions measured in each sequence, evenly spread. None measures all. Queries at padding (0 in
        ``attention_mask``) and queries that see a single key, as the first one of causal attention, do not count.
    tokens : torch.Tensor, optional
        Token ids (B, T) of the batch, for a batch that neither is token ids nor has ``input_ids``.
    forward : callable, optional
        ``forward(model, batch)``, for models that cannot be called with the batch.
    out : path, optional
        A folder NAME.zarr that receives every measurement. An existing one is continued if it has the same batch and
        corpus. None keeps the measurements in memory.
    overwrite : bool
        Replace what is at ``out``.
    words : sequence of str, optional
        The text of each token id, for the sentences of the report.
    graph : bool
        Replay a CUDA graph of the pass. The pass must depend on weights, buffers and the batch alone.
    sink_tokens : sequence of int
        Token ids that count as sinks beside the first key, such as a BOS token anywhere in packed sequences.
    max_bytes : int
        Bound of the stored attention, about. A large model has fewer sampled queries stored, not fewer steps. The
        attribute ``size`` and one line on stderr estimate the size of the file before the training. If ``every`` takes
        the file over the bound within 100,000 steps, a warning says from which step on.
    optimizer : torch.optim.Optimizer, optional
        With the groups of `scansnap.param_groups`: the attribute ``rates`` of the measurements has the ratio of each
        role, and `scansnap.probe.diff` returns those of both runs.
    on_measure : callable, optional
        Called with every measurement as a flat dict of numbers, ``{"probe/step": 100, "attention/max_logit": 8.3,
        "attention/layer0/head1/entropy": 2.1, …}``.
    log : str or list of str, optional
        Log the same numbers: ``wandb`` and ``trackio`` to the active run, ``tensorboard`` or ``tensorboard:FOLDER``.
    alerts : list, optional
        What to warn of: alerts of `scansnap.probe.alerts`, or functions of the history that return a message or None.
        None is ``scansnap.probe.alerts.DEFAULT``.
    on_alert : callable, optional
        Called with each warning of an alert: its step, name and message.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    >>> model = torch.nn.Sequential(torch.nn.Embedding(7, 8), layer)
    >>> probe = ss.Probe(model, torch.arange(18).reshape(2, 9) % 7, every=10)
    >>> for step in range(21):
    ...     probe.step(step)  # after each training step
    >>> probe.dataset().entropy.dims, probe.dataset().step.values.tolist()
    (('step', 'layer', 'head'), [0, 10, 20])
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
        sink_tokens: Sequence[int] = (),
        max_bytes: int = MAX_BYTES,
        optimizer: Optimizer | None = None,
        on_measure: Callable[[Mapping[str, float]], Any] | None = None,
        log: str | Iterable[str] | None = None,
        alerts: Iterable[Alert | Callable[[History], Any]] | None = None,
        on_alert: Callable[[FiredAlert], Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError("model", type(model).__name__, "a torch.nn.Module")
        self.listeners = Listeners(on_measure, log, alerts, on_alert)
        self.model, self.batch, self.forward = unwrap_model(model), copy_batch(batch), forward or call_model
        if forward is None:
            require_single_device(self.model)
        every = list(every) if isinstance(every, Iterable) and not isinstance(every, str) else every
        self.due, self.queries = (
            schedule(every),
            None if queries is None else check_integer("queries", queries, least=1),
        )
        self.tokens, self.padding = token_ids(self.batch if tokens is None else tokens), padding_mask(self.batch)
        if self.tokens is None and corpus is not None:
            raise InputError("batch", "no token ids", "token ids or input_ids", "pass tokens= with the corpus")
        self.facts = None if self.tokens is None else token_facts(corpus, self.tokens, self.padding)
        check_words(words, self.tokens)
        self.sinks = _token_mask(self.tokens, sink_tokens)
        shapes = try_batch(self.model, self.batch, self.forward)
        self.sample = sample_size(shapes, check_integer("max_bytes", max_bytes, least=1))
        self.size = file_size(shapes, self.sample, self.queries) if shapes else None
        self.coverage: Coverage | None = None  # of the last measurement
        self.plans: dict[Any, LayerPlan] = {}  # what to measure, by the shape of an attention
        attrs = describe_run(self.model, self.batch, every, self.queries)
        attrs |= {} if self.facts is None else self.facts.attrs
        attrs |= {"sink_tokens": json.dumps(list(sink_tokens))} if sink_tokens else {}
        attrs |= {} if optimizer is None else {"rates": json.dumps(ratios_by_role(optimizer))}
        self._graph = graph  # False once recording has failed
        self._recorded: RecordedPass | None = None
        self._dependencies: tuple[Any, ...] | None = None  # of the last pass that was not a replay
        self._measurements = Measurements(attrs, self.tokens, words)
        self._pending: tuple[int, dict[str, Any], Callable[[], Measurement]] | None = None  # step, scalars, transfer
        self._write_at_once = out is not None  # the file must not lag behind a checkpoint
        if out is not None and is_main_process():
            self._measurements = open_measurements(out, attrs, self.tokens, words, overwrite)
            if self.size is not None:
                self._state_size(fspath(out), self.size, max_bytes)

    def _state_size(self, out: str, size: FileSize, max_bytes: int) -> None:
        print(f"scansnap probe: {out} takes {size.sentence(self.due)}", file=sys.stderr)
        if (first := size.exceeded_at(max_bytes, self.due)) is not None:
            warnings.warn(
                f"every: the file exceeds max_bytes={max_bytes:,} from step {first:,} on, since no step is left out; "
                'pass fewer steps, such as every="log:40", or a larger max_bytes',
                stacklevel=3,
            )

    @property
    def measurements(self) -> Measurements:
        """All measurements so far; waits for the last one."""
        self._finish_pending()
        return self._measurements

    def step(self, step: int, loss: float | Tensor | None = None, last: bool = False) -> None:
        """Measure if this step is due.

        Parameters
        ----------
        step : int
            The number of updates so far; 0 is before the first.
        loss : float or torch.Tensor, optional
            The training loss, stored as ``train_loss``. The model's own loss on the batch is ``batch_loss``.
        last : bool
            Whether this is the last step of the training, which is measured whether due or not.
        """
        self._measurements.begin(step)
        if last or self.due(step):
            new = step not in self.measurements.steps
            if broadcast_decision(new) if is_sharded(self.model) else new:
                self.measure(step, loss)

    def measure(self, step: int, loss: float | Tensor | None = None) -> None:
        """Measure now, whatever the schedule; parameters as in `step`.

        Of several processes the first one stores the measurement. The others run the model only if it is sharded.
        """
        check_integer("step", step)
        if not is_main_process() and not is_sharded(self.model):
            return
        measurements = self.measurements
        measurements.begin(step)
        try:
            result = self._run_pass()
            if not is_main_process():
                return
            with allow_nondeterminism():
                transfer = result.collector.finish(measurements.last, measurements.first, measurements.before(step))
        except Exception as error:
            self._warn(step, error)
            return
        before, self.coverage = self.coverage, result.coverage
        measurements.attrs["coverage"] = self.coverage.sentence()
        scalars = {"batch_loss": result.loss, "train_loss": loss, "is_finite": result.is_finite}
        self._pending = step, {name: copy_batch(value) for name, value in scalars.items()}, transfer
        if self._write_at_once or self.listeners.at_once or not result.collector.is_on_gpu:
            self._finish_pending()
        if not self.coverage.complete and self.coverage != before:  # warn once
            warnings.warn(self.coverage.sentence(), stacklevel=2)

    def _run_pass(self) -> ForwardPass:
        """Run the model on the batch, or replay the recorded pass if nothing that it depends on has changed."""
        batch = to_model(self.batch, self.model)
        if not self._graph:
            return self._watch(batch, lambda run: run())
        dependencies = pass_dependencies(self.model)
        if self._recorded is None or self._recorded.dependencies != dependencies:
            self._recorded = None  # free its memory before the next is recorded
            last, self._dependencies = self._dependencies, dependencies
            if last != dependencies:  # the first pass compiles and selects kernels
                return self._watch(batch, lambda run: run())
            try:
                if reason := why_not_recordable(self.model, batch):
                    raise RuntimeError(reason)
                self._recorded = self._watch(batch, lambda run: record_pass(self.model, batch, run))
            except Exception as error:
                self._graph = False
                warnings.warn(f"the probe continues without a CUDA graph: {error}", stacklevel=4)
                return self._watch(batch, lambda run: run())
        return self._recorded.replay(self.model)

    def _watch(self, batch: Any, execute: Callable[[Callable[[], ForwardPass]], T]) -> T:
        """Call ``execute`` with a function that runs a measured pass."""
        collector, errors = (
            AttentionCollector(
                self.queries, self.tokens, self.facts, self.padding, self.plans, sample=self.sample, sinks=self.sinks
            ),
            list[Exception](),
        )

        def collect(receive: Callable[[Any], None]) -> Callable[[Any], None]:
            """An error must not end the pass: other processes may wait for this one inside it."""

            def safely(captured: Any) -> None:
                if is_main_process() and not errors:
                    try:
                        with allow_nondeterminism():
                            receive(captured)
                    except Exception as error:
                        errors.append(error)

            return safely

        watching = watch_attention(self.model, collect(collector), collect(collector.add_output))
        with pause_garbage_collection(), preserve_state(self.model), watching as watcher:
            result = execute(lambda: self._forward(batch, collector, watcher))
        if errors:
            raise errors[0]
        return result

    def _forward(self, batch: Any, collector: AttentionCollector, watcher: AttentionWatcher) -> ForwardPass:
        output = self.forward(self.model, batch)
        watcher.flow.finish()
        return ForwardPass(collector, model_loss(output), is_output_finite(output, self.padding), watcher.coverage())

    def _finish_pending(self) -> None:
        """Store the pending measurement. A GPU trains on meanwhile, so this waits until the numbers are needed."""
        if self._pending is None:
            return
        (step, scalars, transfer), self._pending = self._pending, None
        try:
            new = transfer()
            known = {name: float(value) for name, value in scalars.items() if value is not None}
            is_finite = {"attention": not any(layer.any() for layer in new.values["n_nonfinite"])} if new.layers else {}
            is_finite |= {"output": bool(known["is_finite"])} if "is_finite" in known else {}
            for name in known.keys() & {"batch_loss", "train_loss"}:
                new.values[name], is_finite[name] = [np.array(known[name])], math.isfinite(known[name])
            new.values["nonfinite"] = [np.array([1.0 - is_finite.get(part, math.nan) for part in PARTS])]
            self._measurements.add(step, new)
        except Exception as error:
            self._warn(step, error)
            return
        self.listeners.notify(self._measurements)

    def _warn(self, step: int, error: Exception) -> None:
        message = f"the probe could not measure at step {step} ({type(error).__name__}: {error})"
        warnings.warn(message, stacklevel=4)

    def dataset(self) -> xr.Dataset:
        """Return all measurements, with the findings derived from them.

        Returns
        -------
        xarray.Dataset
            Dimensions step, layer and head (and sequence, decile, against). Beside each statistic stands the value of
            uniform attention, NAME_uniform. ``verdict``, ``scan_index``, ``t_snap`` and others are the findings.
        """
        return add_findings(self.measurements.dataset())

    def report(self, path: str | PathLike[str]) -> None:
        """Write an HTML report of all measurements so far: one file, which opens offline."""
        from scansnap.probe.report.page import report

        report(self.dataset(), path)

    def tensorboard(self, folder: str | PathLike[str]) -> None:
        """Write all measurements so far as TensorBoard scalars; this replaces those of an earlier call."""
        export(History(self.measurements), folder)

    @property
    def fired_alerts(self) -> list[FiredAlert]:
        """The warnings of alerts so far."""
        return list(self.listeners.fired)


def _token_mask(tokens: Tensor | None, wanted: Sequence[int]) -> Tensor | None:
    """Where (B, T) the tokens are among those wanted; None if none is."""
    if not wanted:
        return None
    if tokens is None:
        raise InputError("sink_tokens", "no token ids", "a batch with token ids", "pass tokens= with sink_tokens")
    ids = [check_integer("sink_tokens", token, least=0) for token in wanted]
    return torch.isin(tokens, torch.tensor(ids, device=tokens.device))


def schedule(every: int | str | Iterable[int]) -> Callable[[int], bool]:
    """A function that says whether a step is due."""
    if isinstance(every, str):
        kind, _, text = every.partition(":")
        per_decade = digits(text) or 0
        if kind != "log" or per_decade < 1:
            raise InputError("every", every, "an integer, a list of steps, or log:N with N measurements per decade")

        def index(step: int) -> int:
            return math.floor(per_decade * math.log10(step) + 1e-9)

        return lambda step: step < 2 or index(step) > index(step - 1)
    if isinstance(every, Iterable):
        steps = {check_integer("every", step) for step in every}
        return lambda step: step in steps
    n = check_integer("every", every, least=1)
    return lambda step: step % n == 0

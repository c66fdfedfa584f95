"""``scansnap text``: train, explain, sample and evaluate language models."""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from scansnap.checks import InputError, choice, whole
from scansnap.cli.console import err, out, progress_bar, say_json
from scansnap.cli.places import PICTURES, place
from scansnap.interrupt import Stopped

if TYPE_CHECKING:
    from scansnap.corpus.corpus import Corpus
    from scansnap.text.library import Trained
    from scansnap.text.model import LanguageModel

CPU_WORDS = 5000  # two full tables of this size are 200 MB, and a step takes a tenth of a second
SNAPSHOT_TOKENS = 3500  # of the validation text, looked at again and again during training


@dataclass(frozen=True)
class Wanted:
    """A model as asked for on the command line."""

    kind: str
    layers: int
    rank: int | None
    residual: str
    eta_y: float | None
    eta_z: float | None
    eta: float
    optimizer: str
    seed: int

    def check(self) -> None:
        """Refuse before any text is read what a model of no vocabulary could be."""
        self._settings(sys.maxsize, "cpu")

    def build(self, vocab_size: int, device: str) -> LanguageModel:
        """The untrained model."""
        settings = self._settings(vocab_size, device)
        if self.kind == "transformer":
            from scansnap.text.transformer.model import Transformer

            return Transformer(settings, device)
        from scansnap.text.yz.model import YZTransformer

        return YZTransformer(settings, device)

    def _settings(self, vocab_size: int, device: str) -> Any:
        if choice("--model", self.kind, ("yz", "transformer")) == "transformer":
            from scansnap.text.transformer.settings import TransformerSettings

            if self.rank is not None:
                raise InputError("--rank", self.rank, "left out for a transformer")
            return TransformerSettings(
                vocab_size=vocab_size, layers=self.layers, eta=self.eta, optimizer=self.optimizer, seed=self.seed,
                precision="bf16" if device == "cuda" else "float32",
            )  # fmt: skip
        from scansnap.text.yz.settings import YZSettings

        plain = self.layers == 1 and self.rank is None
        # on WikiText-2, one layer with residual: 1,000 steps on 2,000 words end at perplexity 68 with 100 and 205 with
        # 300; three passes with all 33,278 words at 549 with 50 and 399 with 300
        eta_y = self.eta_y if self.eta_y is not None else 100.0 if vocab_size <= 10_000 else 300.0
        eta_z = self.eta_z if self.eta_z is not None else eta_y / 10
        return YZSettings(vocab_size=vocab_size, layers=self.layers, rank=self.rank, residual=self.residual,
                          eta_y=eta_y, eta_z=eta_z, optimizer=self.optimizer, seed=self.seed,
                          init="zero" if plain else "uniform", precision="bf16x3")  # fmt: skip


def train(
    wanted: Wanted,
    *,
    data: str | None,
    target: Path,
    max_words: int | None,
    steps: int | None,
    epochs: int | None,
    batch: int,
    length: int,
    device: str,
    resume: bool,
    overwrite: bool,
    tensorboard: Path | None,
    as_json: bool,
) -> int:
    """Exit code 130 when stopped, 1 when the loss became infinite."""
    from scansnap.dynamics.device import pick_device
    from scansnap.text.evaluate import attention_statistics
    from scansnap.text.events import place_for_events
    from scansnap.text.library import SUFFIX
    from scansnap.text.train import train as fit

    where = pick_device(device).type
    place("--out", target, SUFFIX, overwrite=resume or overwrite, hint="--overwrite or --resume")
    if resume and not target.exists():
        raise InputError("--out", str(target), "a model to go on with (there is none; leave --resume out)")
    if tensorboard is not None:
        place_for_events(tensorboard)
    wanted.check()
    if steps is None and epochs is None:
        epochs = 1
    if steps is not None and epochs is not None:
        raise InputError("--epochs", epochs, "left out when --steps is given")
    for option, number in (("--steps", steps), ("--epochs", epochs)):
        if number is not None:
            whole(option, number)
    whole("--batch", batch, least=1)
    whole("--length", length, least=1)
    if max_words is None and where == "cpu":
        max_words = CPU_WORDS
    corpus = _corpus(data, max_words)
    model = wanted.build(corpus.vocab_size, where)
    said = corpus.valid[:SNAPSHOT_TOKENS]

    told: list[str] = []

    def look(now: LanguageModel, step: int) -> dict[str, Any]:
        if not told:  # nothing was refused
            told.append(repr(corpus))
            err.print(told[0], style="dim", markup=False)
        return {"entropy": attention_statistics(now, said, length=length)[0]["entropy"]}

    with progress_bar("training") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", Stopped)  # said below in terms of options
        done = fit(model, corpus.train, steps=steps, epochs=epochs, batch=batch, length=length, shuffle=wanted.seed,
                   valid=corpus.valid, measure=look, checkpoint=target, resume=resume, overwrite=overwrite,
                   vocabulary=corpus.vocabulary, progress=progress, tensorboard=tensorboard)  # fmt: skip
    if done.failed_step is not None:
        left = (
            f"The state after {done.saved_step} steps is in {target}."
            if done.saved_step is not None
            else f"What was in {target} before is still there."
            if target.exists()
            else "Nothing was written."
        )
        err.print(f"The loss became infinite at step {done.failed_step}: try smaller rates. {left}", markup=False)
        return 1
    if not done.complete:
        err.print(f"Stopped after {done.step} of {done.steps} steps. Nothing is lost: add --resume to go on.")
        return 130
    entropy = {step: float(found["entropy"]) for step, found in sorted(done.measured.items())}
    summary = {
        "model": str(target), "corpus": corpus.title, "vocab_size": corpus.vocab_size, "steps": done.step,
        "tokens_per_second": round(done.tokens / max(done.seconds, 1e-9)), "perplexity": done.valid[done.step],
        "entropy_start": next(iter(entropy.values())), "entropy": list(entropy.values())[-1],
    }  # fmt: skip
    if as_json:
        say_json(summary)
        return 0
    out.print(f"{done.step} steps on {corpus.title} in {done.seconds:.1f} s, "
              f"{summary['tokens_per_second']:,} tokens/s with measurements", markup=False)  # fmt: skip
    out.print(f"validation perplexity {summary['perplexity']:.1f}")
    out.print(f"attention entropy {summary['entropy_start']:.2f} → {summary['entropy']:.2f} nats")
    out.print(f"model {target}", markup=False)
    return 0


def explain(
    path: Path,
    query: str,
    context: str | None,
    top: int,
    figure: Path | None,
    overwrite: bool,
    device: str,
    as_json: bool,
) -> int:
    """A table on the terminal, and a figure if asked for."""
    from scansnap.text.explain import explain as ask

    if figure is not None:
        place("--figure", figure, *PICTURES, overwrite=overwrite)
    trained = _open(path, device)
    found = ask(trained.model, trained.vocabulary, query, context, top=top)
    if as_json:
        say_json(asdict(found))
    else:
        out.print(f"{trained.title}", style="dim")
        table = Table(box=None, pad_edge=False, header_style="bold")
        each = "in context" if context is not None else "per 1000"
        for name in (f"“{query}” attends to", "z", "attention", each, "votes for"):
            table.add_column(escape(name), justify="left" if name[0] in "“v" else "right", no_wrap=name != "votes for")
        for one in found.attended:
            votes = ", ".join(f"{word} {vote:+.1f}" for word, vote in one.votes)
            table.add_row(escape(one.word), f"{one.z:+.2f}", f"{one.attention:.3f}", f"{one.count:.3g}", escape(votes))
        out.print(table)
        if found.own:
            out.print(f"“{query}” itself votes for " + ", ".join(f"{word} {vote:+.1f}" for word, vote in found.own),
                      markup=False)  # fmt: skip
        guesses = ", ".join(f"{word} {100 * p:.1f}%" for word, p in found.predicted[:6])
        out.print(f"next: {guesses}", markup=False)
        out.print(f"attention entropy {found.entropy:.2f} nats; {found.uniform_entropy:.2f} before training")
        if not found.exact:
            out.print("[dim]Read through the tables its weights imply; residual, norms and positions are left out.[/]")
    if figure is not None:
        from scansnap.paper.plots import explanation
        from scansnap.paper.style import save_figure

        save_figure(explanation.draw(found), figure)
        if not as_json:
            out.print(f"figure {figure}", markup=False)
    return 0


def sample(path: Path, prompt: str, words: int, temperature: float, top_k: int | None, seed: int, device: str) -> int:
    """The prompt and what follows."""
    from scansnap.text.sample import sample_text

    trained = _open(path, device)
    with progress_bar("words") as progress:
        text = sample_text(trained.model, trained.vocabulary, prompt, words, temperature=temperature, top_k=top_k,
                           seed=seed, progress=progress)  # fmt: skip
    out.print(text, markup=False)
    return 0


def evaluate(path: Path, data: str | None, split: str, mass: float, device: str, as_json: bool) -> int:
    """How good, how sparse, and what sparsity costs."""
    from scansnap.corpus.sources import find_corpus
    from scansnap.text.evaluate import attention_statistics, contextual_sparsity

    choice("--split", split, ("valid", "test"))
    trained = _open(path, device)
    source = find_corpus(data)
    began = time.monotonic()
    with progress_bar("passes over the text") as progress:
        tokens = np.concatenate([trained.vocabulary.encode(block) for block in source.blocks(split)])
        if len(tokens) < 2:
            raise InputError("--data", source.where[split], "a text of at least two words")
        progress(1, 3)
        entropy = [row["entropy"] for row in attention_statistics(trained.model, tokens)]
        progress(2, 3)
        found = {"model": str(path), "corpus": source.title, "split": split, "entropy": entropy,
                 **contextual_sparsity(trained.model, tokens, mass=mass)}  # fmt: skip
        progress(3, 3)
    if as_json:
        say_json(found)
        return 0
    took = time.monotonic() - began
    out.print(f"{trained.title}; {source.title}, {split} ({len(tokens):,} tokens, {took:.1f} s)", markup=False)
    out.print(f"perplexity {found['perplexity']:.2f}")
    for layer, (h, share, keys) in enumerate(zip(entropy, found["share_needed"], found["keys_needed"], strict=True), 1):
        out.print(f"layer {layer}: attention entropy {h:.2f} nats; {100 * mass:g}% of it on {100 * share:.0f}% of the "
                  f"keys ({keys:.1f})")  # fmt: skip
    out.print(f"perplexity with those keys only {found['perplexity_kept']:.2f}")
    return 0


def _corpus(data: str | None, max_words: int | None) -> Corpus:
    from scansnap.corpus.corpus import load_corpus

    with progress_bar("reading the text") as progress:
        return load_corpus(data, max_words=max_words, progress=progress)


def _open(path: Path, device: str) -> Trained:
    from scansnap.dynamics.device import pick_device
    from scansnap.text.library import open_trained

    return open_trained(path, pick_device(device))

"""``scansnap text predict``: which words each query will attend to, predicted without training attention."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from scansnap.checks import InputError, check_integer
from scansnap.cli.console import err, new_table, out, print_json, progress_bar
from scansnap.cli.options import (
    RESUME_OR_REPLACE,
    Data,
    Device,
    Json,
    Overwrite,
    Resume,
    check_output,
    default_output,
    numbered_output,
    refuse_existing,
)
from scansnap.cli.text import MaxWords, token_settings, train
from scansnap.cli.text.train import model_settings, read_corpus, training_settings
from scansnap.interrupt import Interrupted
from scansnap.settings import SettingSpec
from scansnap.text.yz.settings import YZSettings

if TYPE_CHECKING:
    from scansnap.corpus.vocabulary import Vocabulary
    from scansnap.text.prediction import AttentionPrediction

OUTPUT = "out/prediction.safetensors"
QUERIES = 10  # number of the most frequent words, by default


def training_specs() -> dict[str, SettingSpec]:
    """Options of a training, except those that mean nothing to a prediction."""
    return {name: spec for name, spec in train.training_specs().items() if name not in ("accumulate", "validate_every")}


def predict(
    data: Data = None,
    target: Annotated[
        Path | None, numbered_output("Write Y and the predicted Z to this file: a name ending in .safetensors.", OUTPUT)
    ] = None,
    max_words: MaxWords = None,
    query: Annotated[
        list[str] | None,
        typer.Option(help="A query word; repeat for more. [default: the 10 most frequent]"),
    ] = None,
    at: Annotated[list[int] | None, typer.Option(help="Also predict this earlier step; repeat for more.")] = None,
    top: Annotated[int, typer.Option(help="Number of words to show.")] = 10,
    *,
    device: Device = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Predict which words each query will attend to.

    The prediction comes from a training run with uniform attention. Options and defaults are those of `text train`,
    whose Z is predicted: one layer, full rank, zero init. Read the file with `text explain`. Ctrl-C saves the state
    (exit code 130), and --resume continues.
    """
    from scansnap.corpus.sources import find_corpus
    from scansnap.dynamics.device import pick_device
    from scansnap.text.model_files import SUFFIX
    from scansnap.text.prediction import predict as train_uniform
    from scansnap.text.yz.model import YZTransformer

    device = pick_device(device).type
    check_integer("--top", top, least=1)
    if target is None:
        target = default_output(Path(OUTPUT), resume=resume, overwrite=overwrite)
    check_output("--out", target, SUFFIX)
    if resume and not target.exists():
        raise InputError.conflict("--out", f"{target} does not exist; leave out --resume", str(target))
    tokens = token_settings(options, max_words, device)
    training = {name: options.pop(name) for name in training_specs() if name in options}
    seed = _predictable_settings(options, sys.maxsize, device).seed  # checked before any text is read
    plan = training_settings(training, seed)
    for step in at or []:
        check_integer("--at", step, most=plan.steps)
    find_corpus(data)
    refuse_existing("--out", target, resume or overwrite, RESUME_OR_REPLACE)
    corpus = read_corpus(data, tokens)
    settings = _predictable_settings(options, corpus.vocab_size, device)
    words = corpus.vocabulary
    special = (words.unk, words.eos)
    frequent = [i for i in range(len(words)) if i not in special][:QUERIES]
    query_ids = [words.id(word) for word in query] if query else frequent
    err.print(repr(corpus), style="dim", markup=False)
    try:
        with progress_bar("training with uniform attention") as progress:
            untrained = YZTransformer(settings, device, uniform_attention=True)
            result = train_uniform(untrained, corpus.train, plan, queries=query_ids, vocabulary=words,
                                   snapshots=at or [], checkpoint=target, resume=resume, overwrite=overwrite,
                                   progress=progress)  # fmt: skip
    except Interrupted as interrupted:
        done = interrupted.partial
        err.print(f"Stopped after {done.step} of {done.steps} steps. Continue with the same command and --resume.")
        return 130
    done = result.training
    if done.failed_step is not None:
        err.print(f"The loss became infinite at step {done.failed_step}: try smaller rates.", markup=False)
        return 1
    speed = round(done.tokens_per_second)
    if as_json:
        print_json({"model": str(target), "corpus": corpus.title, "vocab_size": corpus.vocab_size, "steps": done.step,
                  "tokens_per_second": speed, "predicted": _predicted_words(result, words, top)})  # fmt: skip
        return 0
    out.print(f"{done.step} steps on {corpus.title} in {done.seconds:.1f} s, {speed:,} tokens/s", markup=False)
    table = new_table("query", "step", "predicted words, of those often before the query", right=("step",))
    for prediction in _predicted_words(result, words, top):
        names = " ".join(word for word, _ in prediction["words"]) or "(no word occurs often enough before the query)"
        table.add_row(escape(prediction["query"]), f"{prediction['step']:,}", escape(names))
    out.print(table)
    out.print(f"prediction {target}", markup=False)
    return 0


def _predictable_settings(options: dict[str, Any], vocab_size: int, device: str) -> YZSettings:
    """The settings of `text train`, if a prediction can be made of them."""
    from scansnap.text.yz.model import check_predictable

    settings = model_settings("yz", options, vocab_size, device)
    assert isinstance(settings, YZSettings)
    check_predictable(settings)
    return settings


def _predicted_words(result: AttentionPrediction, vocabulary: Vocabulary, top: int) -> list[dict[str, Any]]:
    """For each query and step the words with their predicted logits."""
    rows = []
    for row, query in enumerate(result.queries.tolist()):
        for step, z in sorted(result.z.items()):
            words = [(vocabulary.words[i], float(z[row, i])) for i in result.words(query, step, top=top).tolist()]
            rows.append({"query": vocabulary.words[query], "step": step, "words": words})
    return rows

"""``scansnap text train``: train a language model with every setting that is declared for it."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scansnap.checks import InputError, check_choice, check_float
from scansnap.cli.console import err, out, print_json, progress_bar
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
from scansnap.cli.text import MaxWords, token_settings
from scansnap.interrupt import Interrupted
from scansnap.settings import SettingSpec, settings_of
from scansnap.text.settings import TextSettings, TrainingSettings
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.settings import YZSettings

if TYPE_CHECKING:
    from scansnap.corpus.corpus import Corpus
    from scansnap.text.distributed import World
    from scansnap.text.model import LanguageModel

OUTPUT = "out/model.safetensors"
SNAPSHOT_TOKENS = 3500  # of the validation text, measured during training
KINDS: dict[str, type[TextSettings]] = {"yz": YZSettings, "transformer": TransformerSettings}
TITLES = {"yz": "YZ", "transformer": "Transformer"}
# defaults of the command that are not those of the settings, as :func:`model_settings` sets them
DEFAULTS = {
    "yz": {"residual": "normed", "eta_y": "100, or 300 for more than 10,000 words", "eta_z": "a tenth of eta_y",
           "init": "zero, or uniform with a rank or several layers", "precision": "bf16x3"},
    "transformer": {"precision": "float32, or bf16 on CUDA"},
}  # fmt: skip


def model_specs(*kinds: str) -> dict[str, SettingSpec]:
    """Options for the settings of these kinds of model; where they differ, the help describes each kind."""
    each = {kind: {name: replace(spec, default=DEFAULTS[kind].get(name, spec.default))
                   for name, spec in settings_of(KINDS[kind]).items() if name != "vocab_size"}
            for kind in kinds}  # fmt: skip
    options: dict[str, SettingSpec] = {}
    for kind, specs in each.items():
        for name, spec in specs.items():
            of_kind = replace(spec, help=f"{TITLES[kind]}: {spec.help}")
            if name not in options:
                options[name] = spec if all(spec == others.get(name) for others in each.values()) else of_kind
            elif options[name] != spec:
                help_text = f"{options[name].help} [{options[name].summary}] {of_kind.help}"
                options[name] = SettingSpec(
                    help_text, accepts=spec.expected, name=name, kind="text", default=spec.default
                )
    return options


def training_specs() -> dict[str, SettingSpec]:
    """Options for the length of a training and its windows; the model's seed shuffles unless another is given."""
    defaults = {"epochs": "1, without steps", "shuffle": "the seed of the model"}
    specs = settings_of(TrainingSettings)
    return {name: replace(spec, default=defaults.get(name, spec.default)) for name, spec in specs.items()}


def training_settings(options: dict[str, Any], seed: int) -> TrainingSettings:
    if "steps" in options and "epochs" in options:
        raise InputError.conflict("--epochs", "--steps is given, too; pass one of them", options["epochs"])
    return TrainingSettings(**({"shuffle": seed} | ({} if "steps" in options else {"epochs": 1}) | options))


def model_settings(kind: str, options: dict[str, Any], vocab_size: int, device: str) -> TextSettings:
    """The settings of this kind of model: those that were typed, and the defaults that follow from them."""
    place = KINDS[check_choice("--model", kind, KINDS)]
    known = settings_of(place)
    for name, value in options.items():
        if name not in known:
            title = "a transformer" if kind == "transformer" else "a YZ model"
            raise InputError("--" + name.replace("_", "-"), value, f"no value for {title}")
    own = {name: known[name].read(value) if isinstance(value, str) else value for name, value in options.items()}
    usual: dict[str, Any] = {}
    if kind == "transformer":
        usual["precision"] = "bf16" if device == "cuda" and own.get("dtype") != "float64" else "float32"
    else:
        plain = own.get("layers", 1) == 1 and own.get("rank") is None
        # on WikiText-2, one layer with residual: 1,000 steps on 2,000 words end at perplexity 68 with 100 and 205 with
        # 300; three passes with all 33,278 words at 549 with 50 and 399 with 300
        eta_y = known["eta_y"].check(own.get("eta_y", 100.0 if vocab_size <= 10_000 else 300.0))
        eta_z = [eta / 10 for eta in eta_y] if isinstance(eta_y, tuple) else eta_y / 10
        usual = {"residual": "normed", "eta_y": eta_y, "eta_z": eta_z, "init": "zero" if plain else "uniform",
                 "precision": "bf16x3"}  # fmt: skip
    return place(vocab_size, **(usual | own))


def _build(settings: TextSettings, device: str) -> LanguageModel:
    """The untrained model."""
    if isinstance(settings, TransformerSettings):
        from scansnap.text.transformer.model import Transformer

        return Transformer(settings, device)
    from scansnap.text.yz.model import YZTransformer

    assert isinstance(settings, YZSettings)
    return YZTransformer(settings, device)


def train(
    model: Annotated[str, typer.Option(help="The model: yz or transformer.")] = "yz",
    data: Data = None,
    target: Annotated[
        Path | None, numbered_output("Write the model to this file: a name ending in .safetensors.", OUTPUT)
    ] = None,
    max_words: MaxWords = None,
    *,
    device: Device = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
    tensorboard: Annotated[Path | None, typer.Option(help="Write TensorBoard event files into this folder.")] = None,
    timeout: Annotated[
        float, typer.Option(help="With several processes: seconds to wait for the others before all stop.")
    ] = 1800.0,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Train a language model on text.

    Ctrl-C saves the state, and --resume continues to the same numbers. Several processes, or GPUs, train a transformer
    together when started by `torchrun --nproc-per-node 2 -m scansnap text train ...`; the first one measures, prints
    and writes. The exit code is 130 when stopped, and 1 when the loss became infinite or a process was lost.
    """
    if "RANK" in os.environ:  # before torch is loaded: its pages on a lost connection would hide our message
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from scansnap.text.distributed import joined

    if target is None:
        target = default_output(Path(OUTPUT), resume=resume, overwrite=overwrite)
    with joined(check_float("--timeout", timeout, above=0)) as world:
        return _train(model, data, target, max_words, device, resume, overwrite, tensorboard, as_json, options, world)


def _train(
    model: str,
    data: str | None,
    target: Path,
    max_words: int | None,
    device: str,
    resume: bool,
    overwrite: bool,
    tensorboard: Path | None,
    as_json: bool,
    options: dict[str, Any],
    world: World | None,
) -> int:
    from scansnap.corpus.sources import find_corpus
    from scansnap.dynamics.device import pick_device
    from scansnap.text.distributed import check_divisible
    from scansnap.text.evaluation import attention_statistics
    from scansnap.text.model_files import SUFFIX
    from scansnap.text.tensorboard import check_event_folder
    from scansnap.text.training import train as fit

    where, first = pick_device(device).type, world is None or world.is_main
    if first:
        check_output("--out", target, SUFFIX)
        if resume and not target.exists():
            raise InputError.conflict("--out", f"{target} does not exist; leave out --resume", str(target))
        if tensorboard is not None:
            check_event_folder(tensorboard)
    tokens = token_settings(options, max_words, where)
    training = {name: options.pop(name) for name in training_specs() if name in options}
    seed = model_settings(model, options, sys.maxsize, where).seed  # checked before any text is read
    plan = training_settings(training, seed)
    check_divisible(model == "transformer", plan.batch, plan.accumulate, world)
    if first:
        find_corpus(data)
        refuse_existing("--out", target, resume or overwrite, RESUME_OR_REPLACE)
    corpus = read_corpus(data, tokens, shown=first)
    own = where if world is None else str(world.device(where))
    trained = _build(model_settings(model, options, corpus.vocab_size, where), own)
    validation_tokens = corpus.valid[:SNAPSHOT_TOKENS]

    is_printed = False

    def measure_entropy(now: LanguageModel, step: int) -> dict[str, Any]:
        nonlocal is_printed
        if not is_printed:  # now that everything was accepted
            err.print(repr(corpus), style="dim", markup=False)
            is_printed = True
        return {"entropy": attention_statistics(now, validation_tokens, length=plan.length)[0]["entropy"]}

    bar: Any = progress_bar("training") if first else nullcontext()
    try:
        with bar as progress:
            done = fit(trained, corpus.train, plan, valid=corpus.valid, measure=measure_entropy, checkpoint=target,
                       resume=resume, overwrite=overwrite, vocabulary=corpus.vocabulary, progress=progress,
                       tensorboard=tensorboard, world=world)  # fmt: skip
    except Interrupted as interrupted:
        done = interrupted.partial
    if not first:
        return 1 if done.failed_step is not None else 0 if done.is_complete else 130
    if done.failed_step is not None:
        state = f"The earlier {target} is unchanged." if target.exists() else "Nothing was written."
        if done.saved_step is not None:
            state = f"The state after {done.saved_step} steps is in {target}."
        err.print(f"The loss became infinite at step {done.failed_step}: try smaller rates. {state}", markup=False)
        return 1
    if not done.is_complete:
        err.print(f"Stopped after {done.step} of {done.steps} steps. Continue with the same command and --resume.")
        return 130
    entropy = {step: float(values["entropy"]) for step, values in sorted(done.measured.items())}
    summary: dict[str, Any] = {
        "model": str(target), "corpus": corpus.title, "vocab_size": corpus.vocab_size, "steps": done.step,
        "tokens_per_second": round(done.tokens_per_second),
        "tokens_per_second_of_updates": round(done.tokens_per_second_of_updates), "processes": done.processes,
        "perplexity": done.valid[done.step],
        "perplexity_per_word": corpus.per_word(done.valid[done.step]),
        "entropy_start": next(iter(entropy.values())), "entropy": list(entropy.values())[-1],
    }  # fmt: skip
    if as_json:
        print_json(summary)
        return 0
    out.print(f"{done.step} steps on {corpus.title} in {done.seconds:.1f} s: "
              f"{summary['tokens_per_second_of_updates']:,} tokens/s in updates, "
              f"{summary['tokens_per_second']:,} with the start, measurements and writing", markup=False)  # fmt: skip
    of_words = "" if corpus.vocabulary.unit == "words" else f", per word {summary['perplexity_per_word']:.1f}"
    out.print(f"validation perplexity {summary['perplexity']:.1f}{of_words}")
    out.print(f"attention entropy {summary['entropy_start']:.2f} → {summary['entropy']:.2f} nats")
    out.print(f"model {target}", markup=False)
    return 0


def read_corpus(data: str | None, tokens: dict[str, Any], *, shown: bool = True) -> Corpus:
    from scansnap.corpus.corpus import load_corpus

    bar: Any = progress_bar("reading the text") if shown else nullcontext()
    with bar as progress:
        return load_corpus(data, **tokens, progress=progress)

"""``scansnap text …``: train, predict, explain, sample from and evaluate language models, one file for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scansnap.checks import InputError
from scansnap.settings import SettingSpec

if TYPE_CHECKING:
    from scansnap.text.model_files import TrainedModel

Model = Annotated[Path, typer.Argument(help="A model that `scansnap text train` wrote: NAME.safetensors.")]
MaxWords = Annotated[int | None, typer.Option(help="Use only this many most frequent words. [default: 5000 on a CPU]")]

CPU_WORDS = 5000  # two full tables of this size are 200 MB, and a step takes a tenth of a second


def token_specs() -> dict[str, SettingSpec]:
    """Options for what tokens are."""
    tokenizer = SettingSpec(
        "What tokens are: words, subwords learned from the text (bpe), or those of a tokenizer.json.",
        accepts="words, bpe or a path", name="tokenizer", kind="text", default="words")  # fmt: skip
    size = SettingSpec(
        "Number of subwords of --tokenizer bpe.", least=258, name="vocab_size", kind="integer",
        default="8000, or 5000 on a CPU")  # fmt: skip
    return {spec.name: spec for spec in (tokenizer, size)}


def token_settings(options: dict[str, Any], max_words: int | None, device: str) -> dict[str, Any]:
    """Remove the settings of tokens from ``options`` and return them for `scansnap.corpus.corpus.load_corpus`."""
    chosen = {name: options.pop(name) for name in token_specs() if name in options}
    usual = {"words": "max_words", "bpe": "vocab_size"}.get(chosen.get("tokenizer", "words"))
    if device == "cpu" and usual is not None and (max_words if usual == "max_words" else chosen.get(usual)) is None:
        return {"max_words": max_words, **chosen, usual: CPU_WORDS}
    return {"max_words": max_words, **chosen}


def load_trained(path: Path, device: str) -> TrainedModel:
    """Load a model with its words on a device that is given by name."""
    from scansnap.dynamics.device import pick_device
    from scansnap.text.model_files import load_model

    try:
        return load_model(path, pick_device(device))
    except InputError as error:
        raise error.with_field("MODEL") if error.field == "checkpoint" else error from None

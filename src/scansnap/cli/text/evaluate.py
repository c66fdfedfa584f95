"""``scansnap text evaluate``: perplexity, sparsity of attention, and what sparsity costs."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from scansnap.checks import InputError, check_choice
from scansnap.cli.console import out, print_json, progress_bar
from scansnap.cli.options import Data, Device, Json
from scansnap.cli.text import Model, load_trained


def evaluate(
    model: Model,
    data: Data = None,
    split: Annotated[str, typer.Option(help="Split of the text: valid or test.")] = "valid",
    mass: Annotated[float, typer.Option(help="Share of attention that the keys must carry.")] = 0.95,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Measure perplexity and attention entropy of a model.

    It also measures how much perplexity rises when attention is restricted to the keys with most of its weight. To
    compare models with different tokens, use the perplexity per word or the bits per character, and the share of <unk>.
    """
    from scansnap.corpus.corpus import encode_blocks
    from scansnap.corpus.sources import find_corpus
    from scansnap.text.evaluation import evaluate as measure

    check_choice("--split", split, ("valid", "test"))
    trained = load_trained(model, device)
    source = find_corpus(data)
    began = time.monotonic()
    with progress_bar("passes over the text") as progress:
        tokens, size = encode_blocks(trained.vocabulary, source.blocks(split))
        if len(tokens) < 2:
            raise InputError("--data", source.where[split], "a text of at least two words")
        result = {"model": str(model), "corpus": source.title, "split": split,
                 **measure(trained.model, tokens, mass=mass, progress=progress)}  # fmt: skip
        result |= {"perplexity_per_word": size.per_word(result["perplexity"]), "unknown": size.unknown / size.words,
                  "bits_per_character": size.bits_per_character(result["perplexity"])}  # fmt: skip
    if as_json:
        print_json(result)
        return 0
    took = time.monotonic() - began
    out.print(f"{trained.title}; {source.title}, {split} ({len(tokens):,} tokens, {took:.1f} s)", markup=False)
    out.print(f"perplexity {result['perplexity']:.2f} per token, {result['perplexity_per_word']:.2f} per word; "
              f"{result['bits_per_character']:.3f} bits per character "
              f"({100 * result['unknown']:.1f}% of the words are <unk>)", markup=False)  # fmt: skip
    layers = zip(result["entropy"], result["share_needed"], result["keys_needed"], strict=True)
    for layer, (h, share, keys) in enumerate(layers, 1):
        out.print(f"layer {layer}: attention entropy {h:.2f} nats; {100 * mass:g}% of it on {100 * share:.0f}% of the "
                  f"keys ({keys:.1f})")  # fmt: skip
    out.print(f"perplexity with those keys only {result['perplexity_sparse']:.2f}")
    return 0

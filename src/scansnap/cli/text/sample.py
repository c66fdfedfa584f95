"""``scansnap text sample``: write text with a trained model."""

from __future__ import annotations

from typing import Annotated

import typer

from scansnap.cli.console import out, progress_bar
from scansnap.cli.options import Device
from scansnap.cli.text import Model, load_trained


def sample(
    model: Model,
    prompt: Annotated[str, typer.Option(help="The beginning of the text.")] = "",
    words: Annotated[int, typer.Option(help="Number of words to add (of subwords, if the model has these).")] = 60,
    temperature: Annotated[float, typer.Option(help="Temperature; 0 always takes the likeliest word.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw only among this many likeliest words.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed writes the same text.")] = 0,
    device: Device = "cpu",
) -> int:
    """Write text with a trained model."""
    from scansnap.text.sample import sample_text

    trained = load_trained(model, device)
    with progress_bar("words") as progress:
        text = sample_text(trained.model, trained.vocabulary, prompt, words, temperature=temperature, top_k=top_k,
                           seed=seed, progress=progress)  # fmt: skip
    out.print(text, markup=False)
    return 0

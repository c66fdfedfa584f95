"""``scansnap text …``: parses and dispatches to ``scansnap.cli.text``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Real text: train a YZ model or a transformer, read what it learned, sample from it.",
    epilog="Example: scansnap text train --out out/yz.safetensors --max-words 2000",
)

Data = Annotated[
    str | None,
    typer.Option(
        help="A folder with train.txt, valid.txt and test.txt, a .txt file, stdlib, wikitext-2 or wikitext-103. "
        "[default: SCANSNAP_DATA, else stdlib: the docstrings of Python's standard library]"
    ),
]
Model = Annotated[Path, typer.Argument(help="A model that `scansnap text train` wrote: NAME.safetensors.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


@app.command(epilog="Example: scansnap text train --model yz --data wikitext-2 --max-words 5000 --epochs 1")
def train(
    model: Annotated[str, typer.Option(help="yz or transformer.")] = "yz",
    data: Data = None,
    out: Annotated[Path, typer.Option(help="Where the model goes: a name ending in .safetensors.")] = Path(
        "out/model.safetensors"
    ),
    max_words: Annotated[
        int | None, typer.Option(help="Only the most frequent words. [default: 5000 on a CPU]")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Updates. [default: one pass over the text]")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the text, instead of --steps.")] = None,
    layers: Annotated[int, typer.Option(help="Layers.")] = 1,
    rank: Annotated[int | None, typer.Option(help="YZ: tables of this rank instead of full ones.")] = None,
    residual: Annotated[str, typer.Option(help="YZ: normed, plain, or none (the paper's model).")] = "normed",
    eta_y: Annotated[
        float | None, typer.Option(help="YZ: rate of Y. [default: 100; 300 for more than 10,000 words]")
    ] = None,
    eta_z: Annotated[float | None, typer.Option(help="YZ: rate of Z. [default: a tenth of that of Y]")] = None,
    eta: Annotated[float, typer.Option(help="Transformer: its learning rate.")] = 5.0,
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, nesterov, adam, adamw or sign.")] = "sgd",
    batch: Annotated[int, typer.Option(help="Windows in a batch.")] = 20,
    length: Annotated[int, typer.Option(help="Tokens in a window.")] = 35,
    seed: Annotated[int, typer.Option(help="Of the initial values, the dropout and the order of windows.")] = 0,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped training.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier model.")] = False,
    tensorboard: Annotated[Path | None, typer.Option(help="A folder for TensorBoard event files.")] = None,
    as_json: Json = False,
) -> None:
    """Train a language model on text; Ctrl-C keeps what there is, --resume goes on to the same numbers."""
    from scansnap.cli.text import Wanted
    from scansnap.cli.text import train as body

    wanted = Wanted(kind=model, layers=layers, rank=rank, residual=residual, eta_y=eta_y, eta_z=eta_z, eta=eta,
                    optimizer=optimizer, seed=seed)  # fmt: skip
    raise typer.Exit(
        body(wanted, data=data, target=out, max_words=max_words, steps=steps, epochs=epochs, batch=batch,
             length=length, device=device, resume=resume, overwrite=overwrite, tensorboard=tensorboard,
             as_json=as_json)
    )  # fmt: skip


@app.command(epilog='Example: scansnap text explain out/yz.safetensors --query river --context "the bank of the"')
def explain(
    model: Model,
    query: Annotated[str, typer.Option(help="The word that attends.")],
    context: Annotated[str | None, typer.Option(help="Words before it; without, a text drawn at random.")] = None,
    top: Annotated[int, typer.Option(help="How many words to show.")] = 10,
    figure: Annotated[Path | None, typer.Option(help="Draw it into this PNG, PDF or SVG.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier figure.")] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Show which context words a query attends to and which next words each of them votes for."""
    from scansnap.cli.text import explain as body

    raise typer.Exit(body(model, query, context, top, figure, overwrite, device, as_json))


@app.command(epilog='Example: scansnap text sample out/yz.safetensors --prompt "the river" --words 50')
def sample(
    model: Model,
    prompt: Annotated[str, typer.Option(help="How the text begins.")] = "",
    words: Annotated[int, typer.Option(help="How many words to add.")] = 60,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest word.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw among the k likeliest words only.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed writes the same text.")] = 0,
    device: Device = "cpu",
) -> None:
    """Write text with a trained model."""
    from scansnap.cli.text import sample as body

    raise typer.Exit(body(model, prompt, words, temperature, top_k, seed, device))


@app.command(epilog="Example: scansnap text evaluate out/yz.safetensors --data wikitext-2 --mass 0.95")
def evaluate(
    model: Model,
    data: Data = None,
    split: Annotated[str, typer.Option(help="valid or test.")] = "valid",
    mass: Annotated[float, typer.Option(help="Share of attention that the kept keys carry.")] = 0.95,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Perplexity, attention entropy, and what attention to few keys costs."""
    from scansnap.cli.text import evaluate as body

    raise typer.Exit(body(model, data, split, mass, device, as_json))

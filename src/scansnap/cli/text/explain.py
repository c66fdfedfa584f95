"""``scansnap text explain``: what a query attends to, and what the attended words predict."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from scansnap.cli.console import out, print_json
from scansnap.cli.options import PICTURES, Device, Json, Overwrite, check_output, refuse_existing
from scansnap.cli.text import Model, opened


def explain(
    model: Model,
    query: Annotated[str, typer.Option(help="The query: the word whose attention is shown.")],
    context: Annotated[
        str | None, typer.Option(help="The words before it. [default: words drawn by their frequency]")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of words to show.")] = 10,
    figure: Annotated[Path | None, typer.Option(help="Draw it into this PNG, PDF or SVG.")] = None,
    overwrite: Overwrite = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> int:
    """Show which context words a query attends to and which next words each of them makes more likely."""
    from scansnap.text.explanation import explain as ask

    if figure is not None:
        check_output("--figure", figure, *PICTURES)
    trained = opened(model, device)
    answer = ask(trained.model, trained.vocabulary, query, context, top=top)
    if figure is not None:
        refuse_existing("--figure", figure, overwrite)
    if as_json:
        print_json(asdict(answer))
    else:
        out.print(f"{trained.title}", style="dim")
        table = Table(box=None, pad_edge=False, header_style="bold")
        each = "in context" if context is not None else "per 1000"
        for name in (f"“{query}” attends to", "z", "attention", each, "votes for"):
            table.add_column(escape(name), justify="left" if name[0] in "“v" else "right", no_wrap=name != "votes for")
        for token in answer.attended:
            votes = ", ".join(f"{word} {vote:+.1f}" for word, vote in token.votes)
            numbers = f"{token.z:+.2f}", f"{token.attention:.3f}", f"{token.count:.3g}"
            table.add_row(escape(token.word), *numbers, escape(votes))
        out.print(table)
        if answer.own:
            out.print(f"“{query}” itself votes for " + ", ".join(f"{word} {vote:+.1f}" for word, vote in answer.own),
                      markup=False)  # fmt: skip
        guesses = ", ".join(f"{word} {100 * p:.1f}%" for word, p in answer.predicted[:6])
        out.print(f"next: {guesses}", markup=False)
        out.print(f"attention entropy {answer.entropy:.2f} nats; {answer.uniform_entropy:.2f} before training")
        if not answer.exact:
            out.print("[dim]From the tables that its weights imply, without residual, norms and positions.[/]")
    if figure is not None:
        from scansnap.plots import explanation
        from scansnap.plots.style import save_figure

        save_figure(explanation.draw(answer), figure)
        if not as_json:
            out.print(f"figure {figure}", markup=False)
    return 0

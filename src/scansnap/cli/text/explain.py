"""``scansnap text explain``: what a query attends to, and what the attended words predict."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from scansnap.cli.console import new_table, out, print_json
from scansnap.cli.options import PICTURES, Device, Json, Overwrite, check_output, refuse_existing
from scansnap.cli.text import Model, load_trained


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
    """Show what a query attends to and which next words follow.

    Each attended word is listed with the next words that it makes more likely.
    """
    from scansnap.text.explanation import explain as explain_query

    if figure is not None:
        check_output("--figure", figure, *PICTURES)
    trained = load_trained(model, device)
    explanation = explain_query(trained.model, trained.vocabulary, query, context, top=top)
    if figure is not None:
        refuse_existing("--figure", figure, overwrite)
    if as_json:
        print_json(asdict(explanation))
    else:
        out.print(f"{trained.title}", style="dim")
        first, numbers = escape(f"“{query}” attends to"), ["z", "attention", "in context" if context else "per 1000"]
        table = new_table(first, *numbers, "votes for", right=numbers, no_wrap=(first, *numbers))
        for token in explanation.attended:
            votes = ", ".join(f"{word} {vote:+.1f}" for word, vote in token.votes)
            cells = f"{token.z:+.2f}", f"{token.attention:.3f}", f"{token.count:.3g}"
            table.add_row(escape(token.word), *cells, escape(votes))
        out.print(table)
        if explanation.own:
            own = ", ".join(f"{word} {vote:+.1f}" for word, vote in explanation.own)
            out.print(f"“{query}” itself votes for {own}", markup=False)
        guesses = ", ".join(f"{word} {100 * p:.1f}%" for word, p in explanation.predicted[:6])
        out.print(f"next: {guesses}", markup=False)
        out.print(
            f"attention entropy {explanation.entropy:.2f} nats; {explanation.uniform_entropy:.2f} before training"
        )
        if not explanation.exact:
            out.print("[dim]From the tables that its weights imply, without residual, norms and positions.[/]")
    if figure is not None:
        from scansnap.plots.explanation import draw
        from scansnap.plots.style import save_figure

        save_figure(draw(explanation), figure)
        if not as_json:
            out.print(f"figure {figure}", markup=False)
    return 0

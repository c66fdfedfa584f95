"""Figure 1: the setting, drawn from real objects: sequence classes, and one sequence sampled from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from scansnap.classes import SequenceClasses
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.plots.style import COMMON, DISTINCT, styled
from scansnap.progress import Progress
from scansnap.sampling.counts import SamplingTable, sample_classes, sample_tokens

TITLE = "The setting"
CAPTION = (
    "(a) A sequence sampled from one of the classes: context tokens, a query, and the next token to predict. "
    "(b) The classes: each has its own distribution over context tokens; several share a query. Tokens of one class "
    "only are distinct (blue), the others common (orange)."
)

N_QUERIES, NEXT_PER_QUERY, COMMON_TOKENS, DISTINCT_TOKENS, CONTEXT, SEED = 2, 2, 3, 4, 9, 0


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The classes' distributions and the tokens of one sequence."""
    classes = SequenceClasses.synthetic(n_queries=N_QUERIES, next_per_query=NEXT_PER_QUERY, common=COMMON_TOKENS,
                                        distinct=DISTINCT_TOKENS, distinct_weights=[0.5, 1.0, 1.5, 2.0])  # fmt: skip
    n, tokens = _sequence(classes)
    rows = [
        {"panel": "class", "seq_class": k, "query": classes.query[k], "next_token": classes.next_token[k],
         "position": 0, "token": token, "kind": _kind(classes, token), "p": classes.p_context[k, token]}
        for k in range(classes.n_classes) for token in classes.support(k)[0]
    ]  # fmt: skip
    rows += [
        {"panel": "sequence", "seq_class": n, "query": classes.query[n], "next_token": classes.next_token[n],
         "position": i + 1, "token": token, "kind": _kind(classes, token), "p": classes.p_context[n, token]}
        for i, token in enumerate(tokens)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    settings = {"n_queries": N_QUERIES, "next_per_query": NEXT_PER_QUERY, "common": COMMON_TOKENS,
                "distinct": DISTINCT_TOKENS, "context": CONTEXT, "seed": SEED}  # fmt: skip
    return Computed(table, settings, findings(table))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Check the definitions of Section 3.2 on the drawn objects; this can only reveal errors in our code."""
    drawn = table[table.panel == "class"]
    places = drawn.groupby("token")["seq_class"].nunique()
    kind = drawn.groupby("token").kind.first()
    right = int(((kind == "distinct") == (places == 1)).sum())
    owners = drawn.groupby("next_token")["query"].nunique()
    return (
        Finding("Distinct tokens occur in one class, common tokens in several", "Section 3.2", right, len(kind),
                "tokens drawn", kind="by definition"),
        Finding("The next token determines the query", "Section 3.2", int((owners == 1).sum()), len(owners),
                "next tokens", kind="by definition"),
    )  # fmt: skip


def _sequence(classes: SequenceClasses) -> tuple[int, list[int]]:
    supports = [classes.support(k) for k in range(classes.n_classes)]
    table = SamplingTable(classes.p_class, np.stack([p for _, p in supports]))  # all classes have equally many tokens
    seeds, steps = torch.tensor([SEED]), torch.tensor([0])
    drawn = sample_classes(table, seeds, steps, 1)  # (1, 1, 1)
    slots = sample_tokens(table, drawn, seeds, steps, CONTEXT - 1)[0, 0, 0]
    n = int(drawn[0, 0, 0])
    return n, [int(supports[n][0][slot]) for slot in slots]


def _kind(classes: SequenceClasses, token: int) -> str:
    return "common" if token in classes.common else "distinct"


def draw(computed: Computed) -> Figure:
    """(a) the model over the sequence, (b) the classes."""
    with styled(8.2, 3.7) as figure:
        left, right = _subfigures(figure)
        _model(left.subplots(), computed.table[computed.table.panel == "sequence"])
        _classes(right, computed.table[computed.table.panel == "class"])
    return figure


def _subfigures(figure: Figure) -> Any:
    return figure.subfigures(1, 2, width_ratios=(1.05, 1))


def _colour(kind: str) -> str:
    return DISTINCT if kind == "distinct" else COMMON


def _model(ax: Any, sequence: pd.DataFrame) -> None:
    length = len(sequence)
    ax.set(xlim=(-0.7, length + 1.9), ylim=(-1.0, 5.4))
    ax.axis("off")
    ax.set_title("(a) one sequence through the model", loc="left")
    centre = length / 2
    layers = (("self-attention   $b \\propto e^{z}$", 1.25), ("normalisation   $f = c/\\|c\\|_2$", 2.5),
              ("decoding and softmax   $\\alpha = $ softmax$(Y^\\top f)$", 3.75))  # fmt: skip
    for label, y in layers:
        ax.add_patch(FancyBboxPatch((-0.4, y), length + 0.8, 0.7, boxstyle="round,pad=0.05", facecolor="0.94",
                                    edgecolor="0.5", linewidth=0.8))  # fmt: skip
        ax.text(centre, y + 0.35, label, ha="center", va="center", fontsize=8.5)
    arrow = {"arrowstyle": "-|>", "color": "0.35", "linewidth": 0.9}
    for below, above in ((1.95, 2.5), (3.2, 3.75)):
        ax.annotate("", (centre, above - 0.02), (centre, below + 0.02), arrowprops=arrow)
    for x, (token, kind) in enumerate(zip(sequence.token, sequence.kind, strict=True)):
        _token(ax, x, 0, token, _colour(kind))
        ax.annotate("", (x, 1.22), (x, 0.36), arrowprops={**arrow, "linewidth": 0.6, "color": _colour(kind)})
    _token(ax, length, 0, sequence["query"].iloc[0], "0.3")
    ax.annotate("", (length, 1.22), (length, 0.36), arrowprops=arrow)
    _token(ax, length + 1.4, 4.1, sequence.next_token.iloc[0], "black")
    ax.annotate("", (length + 1.05, 4.1), (length + 0.47, 4.1), arrowprops=arrow)
    ax.text((length - 1) / 2, -0.75, "context tokens", ha="center", fontsize=8)
    ax.text(length, -0.75, "query", ha="center", fontsize=8)
    ax.text(length + 1.4, 3.35, "next", ha="center", fontsize=8)


def _token(ax: Any, x: float, y: float, token: int, colour: str) -> None:
    ax.text(x, y, f"{token}", ha="center", va="center", color="white", fontsize=7.5, fontweight="bold",
            bbox={"boxstyle": "circle,pad=0.28", "facecolor": colour, "edgecolor": "none"})  # fmt: skip


def _classes(figure: Any, table: pd.DataFrame) -> None:
    classes = list(table.groupby("seq_class"))
    panels = figure.subplots(len(classes), 1, sharex=True, sharey=True)
    tokens = sorted(table.token.unique())
    for i, (ax, (_, rows)) in enumerate(zip(panels, classes, strict=True)):
        ax.bar(rows.token, rows.p, color=[_colour(kind) for kind in rows.kind], width=0.8)
        ax.set(yticks=[], ylabel=f"$P(l|n_{i + 1})$", xticks=tokens, xlim=(tokens[0] - 0.6, tokens[-1] + 0.6))
        ax.tick_params(labelsize=7, length=2)
        ax.text(1.02, 0.4, f"query {rows['query'].iloc[0]}  →  next {rows.next_token.iloc[0]}", fontsize=8,
                transform=ax.transAxes, va="center")  # fmt: skip
    panels[0].set_title("(b) sequence classes", loc="left")
    panels[-1].set_xlabel("context token $l$")

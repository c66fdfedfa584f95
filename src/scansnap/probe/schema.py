"""What a probe's file holds: every variable once, with its dimensions and what it means."""

from __future__ import annotations

from typing import NamedTuple

DECILES = 10
AGAINST = ("idf", "pmi", "cooccurrence")  # what attention is compared with by rank

Head = ("layer", "head")


class Variable(NamedTuple):
    """One quantity of a measurement; ``step`` comes before its dimensions."""

    dims: tuple[str, ...]
    meaning: str


# Means over queries, then over sequences; each stands beside what uniform attention gives, NAME_uniform.
STATISTICS = {
    "entropy": "entropy of a query's attention, nats",
    "entropy_rel": "entropy over that of uniform attention, ln of the number of visible keys",
    "support": "effective number of keys, e to the entropy",
    "top1": "the largest weight",
    "share95": "share of the visible keys that together have 95 % of the attention",
    "sink": "attention to the first key",
    "self": "attention to the query's own position",
    "previous": "attention to the position before",
    "same_token": "attention to earlier positions with the query's token, over queries that have one",
    "induction": "attention to positions after an earlier occurrence of the query's token, over queries that have one",
    "copy": "attention to positions with the token that comes next, over queries that have one",
    "same_token_all": "the same as same_token over all queries",
    "induction_all": "the same as induction over all queries",
    "copy_all": "the same as copy over all queries",
}

OTHERS = {
    "n_queries": Variable(Head, "queries with a choice of keys, over all sequences"),
    "sink_share": Variable(Head, "share of sequences whose first key gets more than 0.3 in the mean over its queries"),
    "mass_by_decile": Variable((*Head, "decile"), "attention by distinctness decile of the key's token"),
    "uniform_by_decile": Variable((*Head, "decile"), "the same for uniform attention"),
    "distinctness": Variable(("sequence", *Head), "mean distinctness (0 to 1) of the tokens attended to"),
    "distinctness_uniform": Variable(("sequence", *Head), "the same for uniform attention"),
    "scan_chance": Variable(Head, "standard deviation of the scan index if tokens had their distinctness at random"),
    "rank_corr": Variable((*Head, "against"), "rank correlation of a query's attention with a measure of its keys"),
    "moved": Variable(Head, "total variation since the last measurement"),
    "moved_fold": Variable(Head, "total variation since a measurement 1 to 1½ e-folds of steps earlier"),
    "moved_from_start": Variable(Head, "total variation since the first measurement"),
    "loss": Variable((), "loss of the batch, where the model gives one or step() was told it"),
}

VARIABLES = {
    **{name: Variable(Head, meaning) for name, meaning in STATISTICS.items()},
    **{f"{name}_uniform": Variable(Head, f"{name} of uniform attention") for name in STATISTICS},
    **OTHERS,
}

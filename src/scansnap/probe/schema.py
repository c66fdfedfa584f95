"""The variables of a probe's Dataset: each is declared once, with its dimensions and meaning.

To add a variable, declare it here and compute it in `scansnap.probe.measurement` (``sums_to_variables`` for means
over queries, ``AttentionCollector`` for anything else). The file, the Dataset and the docs take it from here.
"""

from __future__ import annotations

from typing import NamedTuple

DECILES = 10
PARTS = ("attention", "output", "batch_loss", "train_loss")  # what may be NaN or infinite
AGAINST = ("idf", "pmi", "cooccurrence")  # measures of the keys that attention is rank-correlated with

PER_HEAD = ("layer", "head")


class VariableSpec(NamedTuple):
    """One quantity of a measurement."""

    dims: tuple[str, ...]  # after ``step``
    meaning: str


# Means over queries, then over sequences. NAME_uniform is the value that uniform attention gives.
STATISTICS = {
    "entropy": "entropy of a query's attention, nats",
    "entropy_rel": "entropy over that of uniform attention, ln of the number of visible keys",
    "support": "effective number of keys, e to the entropy",
    "top1": "the largest weight",
    "share95": "share of the visible keys that together have 95 % of the attention",
    "sink": "attention to the first key, or to it and the keys with one of sink_tokens",
    "self": "attention to the query's own position",
    "previous": "attention to the position before",
    "same_token": "attention to earlier positions with the query's token, over queries that have one",
    "induction": "attention to positions after an earlier occurrence of the query's token, over queries that have one",
    "copy": "attention to positions with the token that comes next, over queries that have one",
    "same_token_all": "the same as same_token over all queries",
    "induction_all": "the same as induction over all queries",
    "copy_all": "the same as copy over all queries",
}

# What softmax normalises away, and what heads write. NaN where it cannot be captured: queries and keys need a product
# q kᵀ before the softmax, outputs a linear map after it, shares an addition to a tensor that was there before.
MAGNITUDES = {
    "max_logit": "largest logit (scaled, capped, with position bias) over all queries and visible keys of the batch",
    "logit_std": "standard deviation of a query's logits over its visible keys, mean over measured queries",
    "q_norm": "Euclidean norm of a query, as it enters q kᵀ, mean over measured queries",
    "k_norm": "Euclidean norm of a key, as it enters q kᵀ, mean over keys",
    "output_norm": "Euclidean norm of what a head adds to the residual stream, mean over measured queries",
    "output_share": "that norm over the norm of the residual stream it is added to, mean over measured queries",
}

OTHERS = {
    "n_queries": VariableSpec(PER_HEAD, "queries with more than one visible key, over all sequences"),
    "sink_share": VariableSpec(PER_HEAD, "share of sequences whose first key gets more than 0.3, mean over queries"),
    "mass_by_decile": VariableSpec((*PER_HEAD, "decile"), "attention by distinctness decile of the key's token"),
    "uniform_by_decile": VariableSpec((*PER_HEAD, "decile"), "the same for uniform attention"),
    "distinctness": VariableSpec(("sequence", *PER_HEAD), "mean distinctness (0 to 1) of the tokens attended to"),
    "distinctness_uniform": VariableSpec(("sequence", *PER_HEAD), "the same for uniform attention"),
    "scan_chance": VariableSpec(PER_HEAD, "standard deviation of the scan index under permuted distinctness"),
    "rank_corr": VariableSpec((*PER_HEAD, "against"), "rank correlation of a query's attention with a key measure"),
    "moved": VariableSpec(PER_HEAD, "total variation since the last measurement"),
    "moved_fold": VariableSpec(PER_HEAD, "total variation since a measurement 1 to 1½ e-folds of steps earlier"),
    "moved_from_start": VariableSpec(PER_HEAD, "total variation since the first measurement"),
    "n_nonfinite": VariableSpec(PER_HEAD, "queries with NaN or infinite attention, over all sequences"),
    "batch_loss": VariableSpec((), "the model's own loss on the probe's batch"),
    "train_loss": VariableSpec((), "training loss, as passed to step()"),
    "nonfinite": VariableSpec(("part",), "1: NaN or infinite, 0: finite, NaN: not measured"),
}

VARIABLES = {
    **{name: VariableSpec(PER_HEAD, meaning) for name, meaning in STATISTICS.items()},
    **{f"{name}_uniform": VariableSpec(PER_HEAD, f"{name} of uniform attention") for name in STATISTICS},
    **{name: VariableSpec(PER_HEAD, meaning) for name, meaning in MAGNITUDES.items()},
    **OTHERS,
}

"""What Datasets contain: dimensions, label, unit and meaning of every variable and coordinate, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import xarray as xr  # takes a moment, and the command line's help needs only the names


class Variable(NamedTuple):
    """A quantity at one moment of one run."""

    dims: tuple[str, ...]  # after run and step, or after t
    long_name: str
    units: str = ""
    description: str = ""


_TOKENS, _LOGITS = ("seq_class", "token"), ("query", "token")
VARIABLES = {
    "attention": Variable(
        _TOKENS, "attention", "", "token-level attention of the class, c_n ∝ P(l|n) e^z (mean over heads)"
    ),
    "loss": Variable((), "loss", "nats", "−log α_n of the classes themselves (T → ∞), weighted by p_n"),
    "entropy": Variable(
        ("seq_class",), "entropy of attention", "nats", "over the class's distinct tokens, renormalised"
    ),
    "z": Variable(_LOGITS, "attention logit", "", "of the query for the token"),
    "y": Variable(("token", "output"), "vote", "", "of the context token for the output token"),
    "batch_loss": Variable((), "batch loss", "nats", "mean loss of the mini-batch the next update uses"),
    "z_rate": Variable(_LOGITS, "dz/dt"),
    "f": Variable(_TOKENS, "normalised attention", "", "norm(c_n), or its residual form"),
    "g": Variable(
        _TOKENS, "back-propagated gradient", "", "Y(e_n − α_n); NaN at tokens that do not enter f_n"
    ),
    "gap": Variable(
        ("seq_class",), "logit gap", "nats",
        "logit of the right output less that of one that is never right; NaN if there is none",
    ),
}  # fmt: skip
SIMULATED = ("attention", "loss", "entropy", "z", "y", "batch_loss")
FLOWING = ("attention", "loss", "entropy", "z", "z_rate", "y", "f", "g", "gap")
USUAL = ("attention", "loss", "entropy", "z")  # recorded by default

RESPONSE = {
    "z": Variable(_LOGITS, "attention logit", "", "to first order"),
    "drive": Variable(_LOGITS, "drive", "", "what frozen attention feels, integrated over time"),
    "memory": Variable(_LOGITS, "memory", "", "what the decoder's memory of earlier attention adds"),
    "z_error": Variable(_LOGITS, "error of the attention logit", "", "estimate of what second-order terms add"),
    "attention": VARIABLES["attention"],
    "f": VARIABLES["f"],
    "gap": VARIABLES["gap"],
    "growth": Variable(("seq_class",), "growth exponent", "", "B_n along the path of z"),
    "error": Variable(("query",), "relative error", "", "largest entry of z_error over that of z"),
}
DECODER = {
    "a": Variable(("seq_class", "output"), "coefficient of the decoder"),
    "logits": Variable(("seq_class", "output"), "logit", "nats"),
    "gap": VARIABLES["gap"],
    "loss": VARIABLES["loss"],
    "g": Variable(("seq_class", "along"), "back-propagated gradient", "", "coefficients of g_n along f_n'"),
}

COORDINATES = {
    "run": ("run", ""),
    "step": ("step", "updates"),
    "t": ("time", ""),
    "seq_class": ("sequence class", ""),
    "token": ("token", ""),
    "query": ("query token", ""),
    "output": ("output token", ""),
    "head": ("head", ""),
    "along": ("class", ""),
    "event": ("event", ""),
    "eta_y": ("decoder rate η_Y", ""),
    "eta_z": ("attention rate η_Z", ""),
    "ratio": ("η_Y/η_Z", ""),
    "seed": ("seed", ""),
    "momentum": ("momentum μ", ""),
    "weight_decay": ("weight decay λ", ""),
    "weight_decay_y": ("weight decay of Y", ""),
    "weight_decay_z": ("weight decay of Z", ""),
    "status": ("status: ok or non-finite", ""),
    "failed_step": ("first update that was non-finite", "updates"),
    "class_query": ("query token of the class", ""),
    "next_token": ("next token of the class", ""),
    "p_class": ("probability of the class", ""),
    "class_set": ("class set", ""),
}


def add_labels(data: xr.Dataset, variables: Mapping[str, Variable] = VARIABLES) -> xr.Dataset:
    """Add ``long_name``, ``units`` and ``description`` to variables and coordinates, in place; present ones stay."""
    for label, variable in data.variables.items():
        name = str(label)
        known = variables.get(name) if label in data.data_vars else None
        long_name, units = (known.long_name, known.units) if known else COORDINATES.get(name, (name, ""))
        variable.attrs.setdefault("long_name", long_name)
        variable.attrs.setdefault("units", units)
        if known and known.description:
            variable.attrs.setdefault("description", known.description)
    return data

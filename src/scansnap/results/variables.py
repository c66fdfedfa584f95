"""What can be recorded of a run, simulated or flowing: dimensions and meaning, in one table."""

from __future__ import annotations

from typing import NamedTuple


class Variable(NamedTuple):
    """A quantity at one moment of one run."""

    dims: tuple[str, ...]
    meaning: str


VARIABLES = {
    "attention": Variable(
        ("seq_class", "token"), "token-level attention of the class, c_n ∝ P(l|n) e^z (mean over heads)"
    ),
    "loss": Variable((), "−log α_n of the classes themselves (T → ∞), weighted by p_n"),
    "entropy": Variable(("seq_class",), "entropy of attention over the class's distinct tokens, renormalised (nats)"),
    "z": Variable(("query", "token"), "attention logit of the query for the token"),
    "y": Variable(("token", "output"), "vote of the context token for the output token"),
    "batch_loss": Variable((), "mean loss of the mini-batch the next update uses"),
    "z_rate": Variable(("query", "token"), "dz/dt"),
    "f": Variable(("seq_class", "token"), "norm(c_n), or its residual form"),
    "g": Variable(
        ("seq_class", "token"), "Y(e_n − α_n), the back-propagated gradient; NaN at tokens that do not enter f_n"
    ),
    "gap": Variable(
        ("seq_class",), "logit of the right output less that of one that is never right; NaN if there is none"
    ),
}
SIMULATED = ("attention", "loss", "entropy", "z", "y", "batch_loss")
FLOWING = ("attention", "loss", "entropy", "z", "z_rate", "y", "f", "g", "gap")
USUAL = ("attention", "loss", "entropy", "z")  # recorded unless told otherwise

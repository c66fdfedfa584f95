"""Exact flows that several claims are tested on; every assumption is met on the first four."""

from __future__ import annotations

from functools import cache

from scansnap import SequenceClasses
from scansnap.claims.evidence import Evidence, from_flow
from scansnap.theory import t_snap

CLASSES = {
    "textbook": SequenceClasses.textbook(),
    "two queries": SequenceClasses.synthetic(2, 1, common=1, distinct=5, common_weight=0.8, unused=2000),
    "three classes": SequenceClasses.synthetic(1, 3, common=1, distinct=3, common_weight=0.5, unused=6000),
    "three common": SequenceClasses.synthetic(1, 2, common=3, distinct=5, common_weight=0.4, unused=2000),
    "syn-small": SequenceClasses.syn_small(),
    "syn-medium": SequenceClasses.syn_medium(3),
    "zipf": SequenceClasses.zipf(),
}


def evolve(classes: SequenceClasses, eta_z: float = 0.02, spans: float = 10) -> Evidence:
    """At η_Y = 0.9, for so many t₀; without the table Y."""
    end = spans * float(t_snap(eta_y=0.9, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    return from_flow(classes, eta_y=0.9, eta_z=eta_z, t_end=end, n_times=40, rtol=1e-8, with_y=False)


@cache
def flow(name: str, eta_z: float = 0.02) -> Evidence:
    """The flow of one of CLASSES, made once."""
    return evolve(CLASSES[name], eta_z)

"""Sequence classes as a sampler: the token sequences that ``simulate(sampling="tokens")`` trains on, for any engine."""

from __future__ import annotations

from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from torch import Tensor

from scansnap.classes.sequence_classes import SequenceClasses
from scansnap.sampling.mixture import MixtureSampler
from scansnap.sampling.sampler import Sequences


class ClassSampler:
    """Sequences of T = ``context`` tokens of the classes, context in the order drawn, the query last.

    ``next_token`` (K,) replaces the classes' own next tokens and, unlike theirs, may repeat: queries can share what
    follows them. What needs one class per next token (ψ a function of it) must read the classes instead.
    """

    def __init__(self, classes: SequenceClasses, context: int, next_token: ArrayLike | None = None) -> None:
        self.classes, self.vocab_size = classes, classes.vocab_size
        rows = (classes._probs, classes._tokens, classes._indptr)  # sparse: vocabularies may be large
        self._mixture = MixtureSampler(
            csr_array(rows, shape=(classes.n_classes, classes.vocab_size)),
            classes.query,
            context=context,
            next_token=classes.next_token if next_token is None else next_token,
            p_class=classes.p_class,
        )

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        return self._mixture(seeds, steps, batch_size)

    def describe(self) -> str:
        """Everything that decides the data: its numbers as a digest, and T."""
        return self._mixture.describe()

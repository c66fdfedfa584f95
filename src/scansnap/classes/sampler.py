"""Sequence classes as a sampler: the token sequences that ``simulate(sampling="tokens")`` trains on, for any engine."""

from __future__ import annotations

from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from scansnap.classes.sequence_classes import SequenceClasses
from scansnap.sampling.mixture import MixtureSampler


class ClassSampler(MixtureSampler):
    """Token sequences of sequence classes: the context in the order drawn, then the query.

    Parameters
    ----------
    classes
        The classes.
    context
        Sequence length T in tokens, the query included.
    next_token
        Next token of each class, shape (K,), instead of the classes' own. Several classes may share one.

    Examples
    --------
    >>> import torch
    >>> sampler = ClassSampler(SequenceClasses.syn_small(), context=16)
    >>> sampler(torch.tensor([0]), torch.arange(2), batch_size=4).tokens.shape
    torch.Size([1, 2, 4, 16])
    """

    def __init__(self, classes: SequenceClasses, context: int, next_token: ArrayLike | None = None) -> None:
        self.classes = classes
        rows = (classes._probs, classes._tokens, classes._indptr)  # sparse: vocabularies may be large
        table = csr_array(rows, shape=(classes.n_classes, classes.vocab_size))
        following = classes.next_token if next_token is None else next_token
        super().__init__(table, classes.query, context=context, next_token=following, p_class=classes.p_class)

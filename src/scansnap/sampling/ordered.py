"""Windows of an ordered stream of token ids, for example a corpus split: every position is a query."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_integer
from scansnap.checks.arrays import token_ids
from scansnap.sampling.philox import Purpose, uniforms
from scansnap.sampling.sampler import Sequences, digest, even


class OrderedTokens:
    """Windows from random positions of a stream of tokens. Every position is a query, its target the next token.

    Parameters
    ----------
    stream
        Token ids in the order of the text, shape (N,).
    context
        Window length T in tokens.
    vocab_size
        Number of tokens M.

    Examples
    --------
    >>> import torch
    >>> sampler = OrderedTokens(np.arange(100) % 7, context=8, vocab_size=7)
    >>> batch = sampler(torch.tensor([0]), torch.arange(2), batch_size=4)
    >>> bool((batch.target == (batch.tokens + 1) % 7).all())
    True
    """

    def __init__(self, stream: np.ndarray | Tensor, context: int, vocab_size: int) -> None:
        self.context = check_integer("context", context, least=2)
        self.vocab_size = check_integer("vocab_size", vocab_size, least=1, most=2**31)
        ids = stream.cpu().numpy() if isinstance(stream, Tensor) else np.asarray(stream)
        if ids.ndim != 1 or len(ids) <= self.context:
            raise InputError("the stream", f"of shape {ids.shape}", f"one row of more than {self.context} token ids")
        self.stream = torch.from_numpy(token_ids("the stream", ids, self.vocab_size).astype(np.int32))

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        sample = torch.arange(batch_size, device=seeds.device)
        place = (seeds[:, None, None], Purpose.WINDOW_START, steps[:, None], torch.zeros_like(sample), sample)
        u, _ = uniforms(*place)  # (G, N, B)
        start = (u * (len(self.stream) - self.context)).long()
        self.stream = self.stream.to(seeds.device)  # moved once, at the first call
        window = self.stream[start[..., None] + torch.arange(self.context + 1, device=seeds.device)].long()
        tokens = window[..., :-1]
        return Sequences(tokens, window[..., 1:], even(tokens))

    def describe(self) -> str:
        """Return a digest of the numbers that determine the data, and T."""
        ids = self.stream.cpu().numpy()
        return f"windows of {self.context} of {len(ids)} tokens {digest(ids)}, vocabulary {self.vocab_size}"

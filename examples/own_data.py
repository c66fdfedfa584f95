"""Data of one's own as a sampler: a Markov chain over the vocabulary, where every position is a query.

Run it: python examples/own_data.py
"""

import numpy as np
import torch
from torch import Tensor

import scansnap as ss
from scansnap.sampling.philox import Purpose, uniforms
from scansnap.sampling.sampler import Sequences, digest, draw, even


class MarkovChain:
    """Token l is followed by j with probability p[l, j]; the first token of a sequence is drawn evenly."""

    def __init__(self, p: np.ndarray, context: int) -> None:
        self.p, self.context, self.vocab_size = p, context, len(p)

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        at = seeds.device
        sequence, position = torch.arange(batch_size, device=at)[:, None], torch.arange(self.context + 1, device=at)
        u, _ = uniforms(seeds[:, None, None, None], Purpose.TOKEN, steps[:, None, None], sequence, position)
        edges = torch.as_tensor(self.p.cumsum(1)[:, :-1], device=at)  # (M, M − 1) where the next token changes
        chain = [(u[..., 0] * self.vocab_size).long()]
        for t in range(1, self.context + 1):
            chain.append((u[..., t, None] >= edges[chain[-1]]).sum(-1))
        tokens = torch.stack(chain, dim=-1)  # (G, N, B, T + 1)
        return Sequences(tokens[..., :-1], tokens[..., 1:], even(tokens))

    def describe(self) -> str:
        return f"Markov chain {digest(self.p)}, T = {self.context}"


if __name__ == "__main__":
    data = MarkovChain(np.array([[0.1, 0.9, 0.0], [0.0, 0.1, 0.9], [0.9, 0.0, 0.1]]), context=12)
    seeds, steps = torch.tensor([0, 1]), torch.tensor([0])
    sequences = draw(data, seeds, steps, batch_size=2)  # draw checks what the sampler returns
    print(data.describe())
    for seed, stream in zip(seeds.tolist(), sequences.tokens[:, 0].tolist(), strict=True):
        for tokens in stream:
            print(f"seed {seed}: {tokens}")
    again = draw(data, seeds[1:], steps, batch_size=2)
    print("seed 1 alone gives the same data:", torch.equal(again.tokens, sequences.tokens[1:]))

    # A table of logits learns the chain: its loss falls to the entropy of what follows a token, and not below.
    bigrams = torch.nn.Embedding(3, 3)
    run = ss.simulate(data, eta_y=2.0, eta_z=2.0, module=bigrams, steps=300, batch_size=64, record="all", device="cpu")
    loss = run.batch_loss.values[0]
    entropy = -np.sum(data.p[data.p > 0] * np.log(data.p[data.p > 0])) / 3
    print(f"loss {loss[0]:.3f} → {loss[-100:].mean():.3f}; entropy of the chain {entropy:.3f}")

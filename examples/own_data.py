"""Your own data as a sampler: tokens walk round a ring and sometimes repeat; every position is a query.

Run it: python examples/own_data.py
"""

import numpy as np
import torch

import scansnap as ss
from scansnap.sampling.philox import Purpose, uniforms
from scansnap.sampling.sampler import draw, even


class NoisyRing:
    """Three tokens; each is followed by the next with probability 0.9, else by itself."""

    vocab_size = 3

    def __call__(self, seeds, steps, batch_size):  # (G,), (N,): the numbers depend on seed, step and place alone
        sequence, position = (torch.arange(n, device=seeds.device) for n in (batch_size, 13))
        u, _ = uniforms(seeds[:, None, None, None], Purpose.TOKEN, steps[:, None, None], sequence[:, None], position)
        start, moves = (3 * u[..., :1]).long(), (u[..., 1:] < 0.9).long()
        tokens = torch.cat([start, moves], dim=-1).cumsum(-1) % 3  # (G, N, B, T + 1)
        return ss.Sequences(tokens[..., :-1], tokens[..., 1:], even(tokens))

    def describe(self):
        return "a ring of 3, left with probability 0.9, T = 12"


if __name__ == "__main__":
    both = draw(NoisyRing(), torch.tensor([0, 1]), torch.tensor([0]), batch_size=2)  # draw checks what it returns
    alone = draw(NoisyRing(), torch.tensor([1]), torch.tensor([0]), batch_size=2)
    print("seed 1:", alone.tokens[0, 0, 0].tolist())
    print("seed 1 alone gives the same data:", torch.equal(alone.tokens[0], both.tokens[1]))
    # a table of logits learns it: the loss falls to the entropy of what follows a token, and not below
    run = ss.simulate(NoisyRing(), eta_y=2.0, eta_z=2.0, module=torch.nn.Embedding(3, 3), steps=300, batch_size=64,
                      record="all", device="cpu")  # fmt: skip
    loss, entropy = run.batch_loss.values[0], -0.9 * np.log(0.9) - 0.1 * np.log(0.1)
    print(f"loss {loss[0]:.3f} → {loss[-100:].mean():.3f}; entropy of the chain {entropy:.3f}")

"""Your own module on the same data, rates, optimisers and seeds: here the YZ model itself, by autograd.

Run it: python examples/own_module.py
"""

import torch

import scansnap as ss


class YZ(torch.nn.Module):
    """Token ids (B, T), the query last → logits (B, M)."""

    def __init__(self, m):
        super().__init__()
        self.y, self.z = torch.nn.Parameter(torch.zeros(m, m)), torch.nn.Parameter(torch.zeros(m, m))

    def forward(self, tokens):
        context, query = tokens[:, :-1], tokens[:, -1]
        b = torch.softmax(self.z[query].gather(1, context), dim=-1)  # attention of positions
        c = torch.zeros(len(b), len(self.z), dtype=b.dtype).scatter_add(1, context, b)  # and of tokens
        return torch.nn.functional.normalize(c, dim=-1) @ self.y


if __name__ == "__main__":
    classes, runs = ss.SequenceClasses.syn_small(), ss.grid(eta_y=0.5, eta_z=0.5, seed=[0, 1], momentum=0.9)
    common = {"steps": 30, "context": 32, "batch_size": 16, "record": [0, 30], "dtype": "float64", "device": "cpu"}
    hand = ss.simulate(classes, runs, sampling="tokens", variables=["z", "batch_loss"], **common)
    module = ss.simulate(classes, runs, module=YZ(classes.vocab_size), attention=["z"],
                         variables=["z", "batch_loss"], **common)  # fmt: skip
    apart = abs(module.z.values[:, :, classes.queries] - hand.z.values).max()
    print(f"loss {float(module.batch_loss[0, 0]):.3f} → {float(module.batch_loss[0, -1]):.3f}")
    print(f"largest difference of z from the hand-written engine: {apart:.1e}")

"""A probe in a plain training loop: a small transformer learns to copy, and its heads are watched as they learn it.

Run it: python examples/probe_loop.py; it writes probe.zarr and the page probe.html.
"""

import torch
from torch import nn
from torch.nn import functional as F

import scansnap as ss

M, T = 12, 15  # words, length; an odd length is rarely taken for a number of words


def sequences(n, seed):
    """Random words, again and again, each sequence with its own period."""
    generator = torch.Generator().manual_seed(seed)
    words, period = (torch.randint(*args, generator=generator) for args in ((M, (n, T)), (3, 7, (n, 1))))
    return words.gather(1, torch.arange(T) % period)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.out = nn.Embedding(M, 32), nn.Embedding(T, 32), nn.Linear(32, M)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(T)
        return self.out(self.layers(self.words(tokens) + self.places.weight, mask=mask, is_causal=True))


if __name__ == "__main__":
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW((model := Transformer()).parameters(), lr=3e-3)
    probe = ss.Probe(model, sequences(8, -1), sequences(200, -2), every="log:10", out="probe.zarr", overwrite=True)
    for step in range(121):
        tokens = sequences(32, seed=step)
        loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        probe.step(step, loss.item())  # after `step` updates
        loss.backward()
        optimizer.step()
        model.zero_grad()
    probe.report("probe.html")
    start, end = probe.dataset().induction.mean(("layer", "head")).values[[0, -1]]
    print(f"attention to what once followed the word: {start:.3f} → {end:.3f}; {probe.coverage.sentence()}")

"""How much do two seeds of one setting differ? A small transformer learns to copy with three seeds, and once with
a four times larger learning rate; `ss.probe.diff` compares their heads.

Run it: python examples/probe_seeds.py [STEPS]; it prints the share of significant differences of each comparison.
"""

import sys
from itertools import combinations

import torch
from probe_loop import Transformer, sequences
from torch.nn import functional as F

import scansnap as ss


def measured(seed, lr, steps):
    """The probe's measurements of one training."""
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW((model := Transformer()).parameters(), lr=lr)
    probe = ss.Probe(model, sequences(32, -1), sequences(200, -2), every="log:10")
    probe.step(0)
    for step in range(1, steps + 1):
        tokens = sequences(32, seed=1000 * seed + step)
        loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        optimizer.step()
        probe.step(step, loss.item(), last=step == steps)
    return probe.dataset()


def share(a, b, match):
    """Of heads and quantities that rise or fall from a to b."""
    return float(ss.probe.diff(a, b, match=match).verdict.isin(["rises", "falls"]).mean())


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    runs = [measured(seed, 1e-3, steps) for seed in range(3)]
    faster = measured(0, 4e-3, steps)
    for match in ("index", "similarity"):
        between_seeds = [share(a, b, match) for a, b in combinations(runs, 2)]
        between_rates = [share(run, faster, match) for run in runs]
        seeds, rates = (f"{min(values):.0%} to {max(values):.0%}" for values in (between_seeds, between_rates))
        print(f"heads matched by {match}: {seeds} of the comparisons differ between seeds, {rates} between rates")

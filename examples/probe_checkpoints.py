"""A folder of checkpoints, long after the training: the same as `scansnap probe run --batch ids.npy --loader …`.

Run it: python examples/probe_checkpoints.py; it makes checkpoints in run/ and measures them into probe.zarr.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from scansnap.probe.checkpoints import measure_folder
from scansnap.probe.findings import summary


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, tokens):
        x, mask = self.embed(tokens), nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.out(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])


def load(path):
    """The function that --loader names: loads the model of a checkpoint. Folders of transformers need none."""
    model = Model()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    model, run = Model(), Path("run")
    run.mkdir(exist_ok=True)
    for step in (0, 10, 100, 1000):  # as a training saves them
        torch.save(model.state_dict(), run / f"step_{step}.pt")
        with torch.no_grad():
            model.attention.in_proj_weight.mul_(1.5 if step < 100 else 1.0)
    np.save("ids.npy", np.random.default_rng(0).integers(20, size=(4, 15)))
    done = measure_folder(run, Path("ids.npy"), loader="probe_checkpoints:load", out=Path("probe.zarr"))
    print("\n".join([*done.messages, summary(done.data)]))

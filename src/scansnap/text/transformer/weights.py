"""The weights of a transformer: names, shapes and initial values.

Those of all layers are one vector, so that one kernel casts, measures or updates them all. Initial values are drawn
on the CPU, the same for every device: embeddings and decoder U(−init, init), layers as torch's own encoder layer
draws them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scansnap.text.transformer.decoder_loss import decoder_weight
from scansnap.text.transformer.settings import TransformerSettings

ALIGNED = 8  # entries: 16 bytes of bfloat16


class LayerWeights:
    """Names and shapes of the weights in the vector, and views of it."""

    def __init__(self, settings: TransformerSettings) -> None:
        s, d, f = settings, settings.width, settings.feed_forward
        self.bounds: dict[str, float] = {}  # half the width of the uniform distribution; 0: zeros; −1: ones
        self.shapes: dict[str, tuple[int, ...]] = {}

        def add(name: str, shape: tuple[int, ...], bound: float) -> None:
            self.shapes[name], self.bounds[name] = shape, bound

        def norm(name: str) -> None:
            add(name + "_gain", (d,), -1)
            add(name + "_shift", (d,), 0)

        if s.positions == "learned":
            add("positions", (s.max_length, d), s.init)
        for i in range(s.layers):
            at = f"layer{i}."
            add(at + "w_qkv", (3 * d, d), math.sqrt(6 / (d + 3 * d)))  # Xavier
            if s.bias:
                add(at + "b_qkv", (3 * d,), 0)
            if s.mixing:
                add(at + "w_o", (d, d), 1 / math.sqrt(d))
                if s.bias:
                    add(at + "b_o", (d,), 0)
            if s.norm != "none":
                norm(at + "norm1")
            if f:
                add(at + "w_1", (f, d), 1 / math.sqrt(d))
                add(at + "w_2", (d, f), 1 / math.sqrt(f))
                if s.bias:
                    add(at + "b_1", (f,), 1 / math.sqrt(d))
                    add(at + "b_2", (d,), 1 / math.sqrt(f))
                if s.norm != "none":
                    norm(at + "norm2")
        if s.norm == "pre":
            norm("norm")
        self.sizes = [-(-math.prod(shape) // ALIGNED) * ALIGNED for shape in self.shapes.values()]

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parts of the vector by name, from one split, whose gradient is one concatenation."""
        split_into_blocks = flat.split(self.sizes)
        return {
            name: (piece if len(piece) == math.prod(shape) else piece[: math.prod(shape)]).view(shape)
            for (name, shape), piece in zip(self.shapes.items(), split_into_blocks, strict=True)
        }


def initial_weights(settings: TransformerSettings, layout: LayerWeights) -> dict[str, Tensor]:
    """embedding (M, d), with one more row for the mask of a masked objective; layers; decoder (M, d + ROOM), or only
    its bias if it is tied to the embedding."""
    s = settings
    generator = torch.Generator().manual_seed(s.seed)

    def uniform(*shape: int, bound: float) -> Tensor:
        return torch.empty(shape, dtype=s.torch_dtype).uniform_(-bound, bound, generator=generator)

    weights = {"embedding": uniform(s.vocab_size + (s.objective == "masked"), s.width, bound=s.init)}
    flat = torch.zeros(sum(layout.sizes), dtype=s.torch_dtype)
    for name, view in layout.views(flat).items():
        bound = layout.bounds[name]
        if bound > 0:
            view.copy_(uniform(*view.shape, bound=bound))
        elif bound < 0:
            view.fill_(1)
    weights["layers"] = flat
    if not s.tied:
        weights["decoder"] = decoder_weight(uniform(s.vocab_size, s.width, bound=s.init), None)
    elif s.bias:
        weights["decoder_bias"] = torch.zeros(s.vocab_size, dtype=s.torch_dtype)
    return weights

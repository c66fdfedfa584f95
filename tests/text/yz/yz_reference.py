"""The YZ language model the long way: one-hot tokens, token-level vectors, full tables, autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings


def tables(parameters: dict[str, Tensor], name: str) -> Tensor:
    """Y or Z of a layer as one (M, M) matrix."""
    return parameters[name] if name in parameters else parameters[f"{name}.left"] @ parameters[f"{name}.right"].mT


def norm(v: Tensor, kind: str) -> Tensor:
    return v / v.square().sum().sqrt() if kind == "l2" else v


def activated(h: Tensor, s: YZSettings) -> Tensor:
    """σ(h)."""
    return {"softmax": torch.softmax(h, 0), "relu": h.relu(), "none": h}[s.activation]


def logits(parameters: dict[str, Tensor], inputs: Tensor, s: YZSettings) -> Tensor:
    """(B, T, M), position by position and key by key."""
    out = []
    for window in inputs:
        u = list(torch.eye(s.vocab_size, dtype=torch.float64)[window])
        for layer in range(s.layers):
            y, z = (tables(parameters, f"layer{layer}.{name}") for name in "yz")
            following, h = [], []
            for t, state in enumerate(u):
                keys = u[: t + 1] if s.query_in_keys or t == 0 else u[:t]
                b = torch.softmax(torch.stack([state @ z @ key for key in keys]), 0)
                c = sum(weight * key for weight, key in zip(b, keys, strict=True))
                assert isinstance(c, Tensor)
                f = {
                    "none": lambda c=c: norm(c, s.norm),
                    "plain": lambda c=c, state=state: norm(c + state, s.norm),
                    "normed": lambda c=c, state=state: norm(norm(c, s.norm) + state, s.norm),
                }[s.residual]()
                h.append(f @ y)
                a = activated(h[-1], s)
                following.append(norm(a if s.residual == "none" else a + f, s.norm))
            u = following
        out.append(torch.stack(h))
    return torch.stack(out)


def gradients(model: YZTransformer, inputs: Tensor, targets: Tensor) -> tuple[float, dict[str, Tensor]]:
    """The mean loss and its gradient with respect to every table or factor."""
    names = {
        name: tensor for name, tensor in model.tensors().items() if name.split(".")[-1] in ("y", "z", "left", "right")
    }
    parameters = {name: tensor.detach().clone().requires_grad_() for name, tensor in names.items()}
    flat = logits(parameters, inputs, model.settings).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(flat, targets.flatten())
    result = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    expected = [torch.zeros_like(p) if g is None else g for g, p in zip(result, parameters.values(), strict=True)]
    return float(loss.detach()), dict(zip(parameters, expected, strict=True))


def touched(name: str, inputs: Tensor, model: YZTransformer) -> Tensor:
    """Which entries of a table a batch touches, a mask (M, 1) or (M, M)."""
    s, m = model.settings, model.vocab_size
    pairs = torch.zeros(m, m, dtype=torch.bool)
    if name == "layer0.z" or name.startswith("layer0.z."):
        for window in inputs.tolist():
            for t in range(1, len(window)):
                pairs[window[t], window[: t + 1] if s.query_in_keys else window[:t]] = True
    else:
        pairs[inputs.unique() if name.startswith("layer0") else slice(None)] = True
    if name.endswith(".left"):
        return pairs.any(1)[:, None]
    return pairs.any(0)[:, None] if name.endswith(".right") else pairs


def batch(m: int, windows: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Windows with many repeated tokens, and some that do not occur."""
    tokens = torch.randint(0, max(2, m - 2), (windows, length + 1), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


def model(**options: Any) -> YZTransformer:
    """In float64, from a start far from zero."""
    arguments = {"vocab_size": 9, "dtype": "float64", "init": "normal(0.8)", "eta_y": 1.0, "eta_z": 1.0, **options}
    return YZTransformer(YZSettings(**arguments))

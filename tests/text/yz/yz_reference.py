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


def chosen(h: Tensor, s: YZSettings) -> Tensor:
    """Tokens whose entries of σ(h) go on to the next layer."""
    return torch.arange(s.vocab_size) if s.guesses is None else h.detach().topk(s.guesses).indices


def activated(h: Tensor, s: YZSettings) -> Tensor:
    """σ on the tokens that go on, 0 elsewhere."""
    at = chosen(h, s)
    a = {"softmax": torch.softmax(h[at], 0), "relu": h[at].relu(), "none": h[at]}[s.activation]
    return torch.zeros_like(h).index_put((at,), a)


def logits(
    parameters: dict[str, Tensor], inputs: Tensor, s: YZSettings, bases: list[list[set[int]]] | None = None
) -> Tensor:
    """(B, T, M), position by position and key by key; ``bases`` gets for each window the tokens of each layer."""
    out = []
    for window in inputs:
        u = list(torch.eye(s.vocab_size, dtype=torch.float64)[window])
        basis = [set(window.tolist())]
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
            guessed = {token for one in h for token in chosen(one, s).tolist()}
            basis.append(guessed if s.residual == "none" else guessed | basis[-1])
        out.append(torch.stack(h))
        if bases is not None:
            bases.append(basis)
    return torch.stack(out)


def gradients(model: YZTransformer, inputs: Tensor, targets: Tensor) -> tuple[float, dict[str, Tensor]]:
    """The mean loss and its gradient with respect to every table or factor."""
    names = {
        name: tensor for name, tensor in model.tensors().items() if name.split(".")[-1] in ("y", "z", "left", "right")
    }
    parameters = {name: tensor.detach().clone().requires_grad_() for name, tensor in names.items()}
    flat = logits(parameters, inputs, model.settings).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(flat, targets.flatten())
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    wanted = [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters.values(), strict=True)]
    return float(loss.detach()), dict(zip(parameters, wanted, strict=True))


def touched(name: str, inputs: Tensor, model: YZTransformer) -> Tensor:
    """Which entries of a table a batch touches, a mask (M, 1) or (M, M)."""
    s, layer, m = model.settings, int(name[5]), model.vocab_size
    if name == "layer0.z" or name.startswith("layer0.z."):
        pairs = torch.zeros(m, m, dtype=torch.bool)
        for window in inputs.tolist():
            for t in range(1, len(window)):
                pairs[window[t], window[: t + 1] if s.query_in_keys else window[:t]] = True
    else:
        bases: list[list[set[int]]] = []
        logits(model.tensors(), inputs, s, bases)
        pairs, all_of_them = torch.zeros(m, m, dtype=torch.bool), set(range(m))
        for basis in bases:
            full = [basis[0], *(basis[1:] if s.guesses is not None else [all_of_them] * s.layers)]
            rows, columns = full[layer], full[layer + (".y" in name)]
            if ".y" in name and layer == s.layers - 1:
                columns = all_of_them
            pairs[sorted(rows)] |= torch.zeros(m, dtype=torch.bool).index_fill(0, torch.tensor(sorted(columns)), True)
    if name.endswith(".left"):
        return pairs.any(1)[:, None]
    return pairs.any(0)[:, None] if name.endswith(".right") else pairs


def batch(m: int, windows: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Windows with many repeated tokens, and some that do not occur."""
    tokens = torch.randint(0, max(2, m - 2), (windows, length + 1), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


def model(**options: Any) -> YZTransformer:
    """In float64, from a start far from zero."""
    given = {"vocab_size": 9, "dtype": "float64", "init": "normal(0.8)", "eta_y": 1.0, "eta_z": 1.0, **options}
    return YZTransformer(YZSettings(**given))

"""The model of every cell, top to bottom: tokens → attention → values → next token. Flags select its components.

All runs at once: every parameter has a leading run dimension, so the gradients of all runs are one backward pass of the
summed loss. With no flags it is the YZ model of `scansnap.dynamics.yz`.

    R runs · H heads · B sequences · Q queries · S keys · M tokens · d width
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.dial.attention import attend_by_kernel, gather_positions, project, times, uses_kernel, values_come_first
from scansnap.dial.attention import scores as attention_logits
from scansnap.dial.attention import weights as attended
from scansnap.dial.components import Flags
from scansnap.dial.data import AttentionBatch
from scansnap.dynamics import norms
from scansnap.dynamics.state import initial
from scansnap.kernels.cpu import step
from scansnap.sampling.philox import Purpose

Parameters = dict[str, Tensor]
SMALL = 0.01  # std of the initial Y and Z, by which seeds differ
_EPS = 1e-5


class Output(NamedTuple):
    """The result of a forward pass: logits, and attention of every layer."""

    logits: Tensor  # (R, B, Q, M)
    attention: list[Tensor]  # (R, H, B, Q, S) each
    scores: list[Tensor]  # (R, H, B, Q, S) attention logits, without the counts


def shapes(flags: Flags, vocab_size: int, context: int) -> dict[str, tuple[tuple[int, ...], float | str]]:
    """Every parameter with its shape, and the std or the kind of its initial value."""
    d, h = flags.width or vocab_size, flags.heads
    inner = d // h
    result: dict[str, tuple[tuple[int, ...], float | str]] = {}
    result["embed"] = ((vocab_size, d), "eye" if flags.width is None else 1 / math.sqrt(d))
    if flags.positions == "absolute":
        result["place"] = ((context, d), 0.3 / math.sqrt(d))
    for i in range(flags.layers):
        at = f".{i}" if i else ""
        if flags.separate:
            result |= {f"{name}{at}": ((h, d, inner), 1 / math.sqrt(d)) for name in ("w_q", "w_k", "w_v")}
            result[f"w_o{at}"] = ((h, inner, d), 1 / math.sqrt(d))
        else:
            result[f"y{at}"], result[f"z{at}"] = ((d, d), SMALL), ((h, d, d), SMALL)
        if flags.norm == "rms":
            result[f"gain{at}"] = ((d,), "ones")
        if flags.mlp != "none":
            result |= {f"w_1{at}": ((d, 4 * d), 1 / math.sqrt(d)), f"w_2{at}": ((4 * d, d), 0.5 / math.sqrt(d))}
    return result


def table_of(name: str) -> str:
    """Which of the two rates a parameter has: ``z`` for parameters of attention logits, else ``y``."""
    return "z" if name.split(".")[0] in ("z", "w_q", "w_k") else "y"


def trained(flags: Flags, name: str) -> bool:
    """Whether a parameter is trained: embeddings are, with W_Q, W_K, W_V, W_O, but not with Y and Z."""
    return flags.separate or name != "embed"


def start(flags: Flags, vocab_size: int, context: int, seeds: Tensor, dtype: torch.dtype) -> Parameters:
    """Initial parameters (R, …): they depend on the seed only, and Y and Z are those of ``simulate``."""
    unique, stream = torch.unique(seeds, return_inverse=True)
    parameters = {}
    for number, (name, (shape, scale)) in enumerate(shapes(flags, vocab_size, context).items()):
        if scale == "eye":
            value = torch.eye(shape[0], dtype=dtype, device=seeds.device).expand(len(unique), -1, -1)
        elif scale == "ones":
            value = torch.ones(len(unique), *shape, dtype=dtype, device=seeds.device)
        else:
            purpose = Purpose.INIT_Z if table_of(name) == "z" else Purpose.INIT_Y
            first = 0 if name in ("y", "z") else 1000 * (number + 1)
            heads, rows, columns = (1, *shape)[-3:]
            values = initial(("normal", float(scale)), unique.cpu().numpy(), purpose, first + np.arange(heads),
                            np.arange(rows), np.arange(columns), seeds.device)  # fmt: skip
            value = values.reshape(len(unique), *shape).to(dtype)
        parameters[name] = value[stream].clone()
    return parameters


def forward(
    p: Parameters,
    flags: Flags,
    batch: AttentionBatch,
    attention: list[Tensor] | None = None,
    *,
    at_end: bool = False,
    only_logits: bool = False,
) -> Output:
    """Logits of the next token; ``attention`` replaces the attention of each layer.

    ``at_end``: the last layer computes only the last position. ``only_logits``: leave out attention and its logits, so
    that the compiled kernel can be used.
    """
    x = _embedded(p, flags, batch.keys)  # (R, B, S, d)
    every = flags.sequences and batch.queries.shape == batch.keys.shape  # all positions are queries
    x_q = x if every else _embedded(p, flags, batch.queries, last=True)  # (R, B, Q, d)
    weights, scores = [], []
    for i in range(flags.layers):
        at, bias, positions = f".{i}" if i else "", batch.bias[:, None], None
        if i == flags.layers - 1 and flags.sequences:
            if at_end:
                x_q, bias = x_q[:, :, -1:], bias[..., -1:, :]
            elif batch.positions is not None:
                positions = batch.positions  # (R or 1, B, N)
                x_q, bias = gather_positions(x_q, positions), gather_positions(bias[:, 0], positions)[:, None]
        h_k = _pre(flags, x)
        h_q = h_k if x_q is x else _pre(flags, x_q)
        if only_logits and uses_kernel(flags, h_q):
            attended_values = attend_by_kernel(
                flags, project(p, flags, h_q, h_k, at, interleaved=False), bias, positions
            )
        else:
            q, k, v = step.heads(project(p, flags, h_q, h_k, at))
            scores.append(attention_logits(flags, q, k, positions))  # (R, H, B, Q, S)
            weights.append(attended(flags, scores[-1], bias) if attention is None else attention[i])
            attended_values = weights[-1] @ v
        x_q = _values(p, flags, attended_values, x_q, at, values_come_first(flags, h_q, h_k))  # (R, B, Q, d)
        if flags.mlp != "none":
            x_q = _mlp(flags, x_q, p[f"w_1{at}"], p[f"w_2{at}"])
        x = x_q
    if flags.prenorm != "none" and flags.residual:
        x_q = _normed(flags.prenorm, x_q)
    logits = x_q if flags.width is None and not flags.separate else times(x_q, p["embed"].mT)
    return Output(logits, weights, scores)


def first_scores(p: Parameters, flags: Flags, batch: AttentionBatch) -> Tensor:
    """Attention logits of the first layer only, (R, H, B, Q, S)."""
    x = _pre(flags, _embedded(p, flags, batch.keys))
    every = flags.sequences and batch.queries.shape == batch.keys.shape
    h_q = x if every else _pre(flags, _embedded(p, flags, batch.queries, last=True))
    return attention_logits(flags, *step.heads(project(p, flags, h_q, x, ""))[:2])


def loss(p: Parameters, flags: Flags, batch: AttentionBatch) -> Tensor:
    """Mean cross-entropy of every run, (R,), as ln(1 + Σ_{j≠n} e^{l_j − l_n}) of the next token n.

    Its gradient has 1 − α_n as the sum of the other α_j and not as a difference, which in float32 is 0 or rounding from
    10⁻⁷ on. Rules whose steps do not shrink with the gradient (sign, Muon) go on far beyond that, and would go astray.
    """
    logits = forward(p, flags, batch, at_end=not flags.every_position, only_logits=True).logits  # (R, B, Q or 1, M)
    queries = slice(-logits.shape[2], None)
    if step.takes(logits):
        return step.cross_entropy(logits, batch.target[..., queries], batch.weight[..., queries])
    target = batch.target[..., queries].expand(len(logits), -1, -1)[..., None]
    others = logits.scatter(-1, target, -torch.inf).logsumexp(-1)
    nats = F.softplus(others - logits.gather(-1, target)[..., 0])
    return (batch.weight[..., queries] * nats).sum((1, 2))


def _embedded(p: Parameters, flags: Flags, tokens: Tensor, last: bool = False) -> Tensor:
    """(R, B, S, d) from ids (R or 1, B, S); the last positions where there are fewer tokens than positions."""
    embed = p["embed"]  # (R, M, d)
    if not flags.sequences and not last:  # every token is a key, in their order
        return embed[:, None]
    if flags.width is None and not flags.separate:
        every = torch.arange(embed.shape[1], device=tokens.device)
        x = (tokens[..., None] == every).to(embed.dtype).expand(len(embed), -1, -1, -1)
    else:
        flat = tokens.expand(len(embed), -1, -1).flatten(1)[..., None].expand(-1, -1, embed.shape[-1])
        x = embed.gather(1, flat).unflatten(1, tokens.shape[1:])
    return x + p["place"][:, None, -tokens.shape[-1] :] if "place" in p else x


def _values(p: Parameters, flags: Flags, c: Tensor, x_q: Tensor, at: str, has_w_v: bool) -> Tensor:
    """The attended value, normed, times Y or W_V W_O; the residual as in the paper or as in a transformer."""
    if flags.separate:
        v = c if has_w_v else times(_read_norm(p, flags, c, at), p[f"w_v{at}"])  # (R, H, B, Q, d/H)
        by_head = v.permute(0, 2, 3, 1, 4).flatten(-2)  # (R, B, Q, d): heads side by side
        out = times(by_head, p[f"w_o{at}"].flatten(1, 2))
        return x_q + out if flags.residual else out
    c = c.mean(1) if flags.heads > 1 else c[:, 0]
    if flags.residual and flags.prenorm != "none":  # its norms need a stream that does not start at 0
        return x_q + times(_read_norm(p, flags, c, at), p[f"y{at}"])
    f = _read_norm(p, flags, c + x_q if flags.residual else c, at)
    out = times(f, p[f"y{at}"])
    return f + out if f"y.{int(at[1:] or 0) + 1}" in p else out  # the layer above attends to f + fY


def _mlp(flags: Flags, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    if step.takes_mlp(rows := x.flatten(1, 2), first):
        return step.mlp(rows, first, second, norm=flags.prenorm, act=flags.mlp, past=flags.residual).view_as(x)
    added = times(_act(flags.mlp, times(_pre(flags, x), first)), second)
    return x + added if flags.residual else added


def _read_norm(p: Parameters, flags: Flags, c: Tensor, at: str) -> Tensor:
    if flags.norm == "rms":
        gain = p[f"gain{at}"]
        return _normed("rmsnorm", c) * gain.reshape(len(gain), *[1] * (c.ndim - 2), -1)
    return norms.apply(flags.norm, c)


def _pre(flags: Flags, x: Tensor) -> Tensor:
    """A norm without a gain, which at the rates of Y would change attention logits by its square."""
    return x if flags.prenorm == "none" else _normed(flags.prenorm, x)


def _normed(kind: str, x: Tensor) -> Tensor:
    if step.takes(x) and x.shape[-1] % step.VECTOR == 0:
        return step.normed(kind, x)
    return F.layer_norm(x, x.shape[-1:]) if kind == "layernorm" else x * (x.square().mean(-1, True) + _EPS).rsqrt()


def _act(kind: str, x: Tensor) -> Tensor:
    if kind == "gelu" and step.takes(x):
        return step.gelu(x)
    return x if kind == "linear" else F.relu(x) if kind == "relu" else F.gelu(x)

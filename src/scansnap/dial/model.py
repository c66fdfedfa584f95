"""The model of every rung, top to bottom: tokens → attention → values → next token. Flags say what is in it.

All runs at once: every parameter has a leading run dimension, so the gradients of all runs are one backward pass of the
summed loss. With no flags it is the YZ model of :mod:`scansnap.dynamics.yz`.

    R runs · H heads · B sequences · Q queries · S keys · M tokens · d width
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.dial.data import Batch
from scansnap.dial.rungs import ATTENTIONS, Flags
from scansnap.dynamics import norms
from scansnap.dynamics.state import initial
from scansnap.sampling.philox import Purpose

Parameters = dict[str, Tensor]
SMALL = 0.01  # std of the initial Y and Z: seeds differ, and nothing is known yet
ROPE_BASE = 10_000.0
ALIBI = 1 / 16  # slope of a single head; of several: 2^(−8h/H)
_EPS = 1e-5


class Output(NamedTuple):
    """What a forward pass gives: of the layers, attention and its logits."""

    logits: Tensor  # (R, B, Q, M)
    attention: list[Tensor]  # (R, H, B, Q, S) each
    scores: list[Tensor]  # (R, H, B, Q, S) attention logits, without the counts


def shapes(flags: Flags, vocab_size: int, context: int) -> dict[str, tuple[tuple[int, ...], float | str]]:
    """Every parameter with its shape and the std of its start, or what it starts as."""
    d, h = flags.width or vocab_size, flags.heads
    inner, found = d // h, {}  # type: int, dict[str, tuple[tuple[int, ...], float | str]]
    found["embed"] = ((vocab_size, d), "eye" if flags.width is None else 1 / math.sqrt(d))
    if flags.positions == "absolute":
        found["place"] = ((context, d), 0.3 / math.sqrt(d))
    for i in range(flags.layers):
        at = f".{i}" if i else ""
        if flags.separate:
            found |= {f"{name}{at}": ((h, d, inner), 1 / math.sqrt(d)) for name in ("w_q", "w_k", "w_v")}
            found[f"w_o{at}"] = ((h, inner, d), 1 / math.sqrt(d))
        else:
            found[f"y{at}"], found[f"z{at}"] = ((d, d), SMALL), ((h, d, d), SMALL)
        if flags.norm == "rms":
            found[f"gain{at}"] = ((d,), "ones")
        if flags.mlp != "none":
            found |= {f"w_1{at}": ((d, 4 * d), 1 / math.sqrt(d)), f"w_2{at}": ((4 * d, d), 0.5 / math.sqrt(d))}
    return found


def table_of(name: str) -> str:
    """Which of the two rates a parameter is trained with: ``z`` for what makes attention logits, else ``y``."""
    return "z" if name.split(".")[0] in ("z", "w_q", "w_k") else "y"


def trained(flags: Flags, name: str) -> bool:
    """Embeddings are trained with W_Q, W_K, W_V, W_O, and stay as they are with Y and Z."""
    return flags.separate or name != "embed"


def start(flags: Flags, vocab_size: int, context: int, seeds: Tensor, dtype: torch.dtype) -> Parameters:
    """Initial parameters (R, …): the seed alone decides them, and Y and Z are those of ``simulate``."""
    unique, stream = torch.unique(seeds, return_inverse=True)
    found = {}
    for number, (name, (shape, scale)) in enumerate(shapes(flags, vocab_size, context).items()):
        if scale == "eye":
            value = torch.eye(shape[0], dtype=dtype, device=seeds.device).expand(len(unique), -1, -1)
        elif scale == "ones":
            value = torch.ones(len(unique), *shape, dtype=dtype, device=seeds.device)
        else:
            purpose = Purpose.INIT_Z if table_of(name) == "z" else Purpose.INIT_Y
            first = 0 if name in ("y", "z") else 1000 * (number + 1)
            heads, rows, columns = (1, *shape)[-3:]
            drawn = initial(("normal", float(scale)), unique.cpu().numpy(), purpose, first + np.arange(heads),
                            np.arange(rows), np.arange(columns), seeds.device)  # fmt: skip
            value = drawn.reshape(len(unique), *shape).to(dtype)
        found[name] = value[stream].clone()
    return found


def forward(
    p: Parameters, flags: Flags, batch: Batch, attention: list[Tensor] | None = None, *, at_end: bool = False
) -> Output:
    """Logits of the next token; ``attention`` takes the place of what each layer would attend to.

    ``at_end``: the last layer asks only at the last position, which is all that is read.
    """
    x = _embedded(p, flags, batch.keys)  # (R, B, S, d)
    every = flags.sequences and batch.queries.shape == batch.keys.shape  # all positions ask
    x_q = x if every else _embedded(p, flags, batch.queries, last=True)  # (R, B, Q, d)
    weights, scores = [], []
    for i in range(flags.layers):
        at, bias = f".{i}" if i else "", batch.bias[:, None]
        if at_end and i == flags.layers - 1 and flags.sequences:
            x_q, bias = x_q[:, :, -1:], bias[..., -1:, :]
        keys = _pre(flags, x)
        ask = keys if x_q is x else _pre(flags, x_q)
        q, k, v = _projected(p, flags, ask, keys, at)
        score = _scores(flags, q, k)  # (R, H, B, Q, S)
        weight = ATTENTIONS[flags.attention](score, bias) if attention is None else attention[i]
        weights.append(weight)
        scores.append(score)
        x_q = _values(p, flags, weight @ v, x_q, at, _early(flags, ask, keys))  # (R, B, Q, d)
        if flags.mlp != "none":
            inside = _act(flags.mlp, _times(_pre(flags, x_q), p[f"w_1{at}"]))
            added = _times(inside, p[f"w_2{at}"])
            x_q = x_q + added if flags.residual else added
        x = x_q
    if flags.prenorm != "none" and flags.residual:
        x_q = _normed(flags.prenorm, x_q)
    logits = x_q if flags.width is None and not flags.separate else _times(x_q, p["embed"].mT)
    return Output(logits, weights, scores)


def first_scores(p: Parameters, flags: Flags, batch: Batch) -> Tensor:
    """Attention logits of the first layer, (R, H, B, Q, S), and nothing above."""
    x = _pre(flags, _embedded(p, flags, batch.keys))
    every = flags.sequences and batch.queries.shape == batch.keys.shape
    ask = x if every else _pre(flags, _embedded(p, flags, batch.queries, last=True))
    return _scores(flags, *_projected(p, flags, ask, x, "")[:2])


def loss(p: Parameters, flags: Flags, batch: Batch) -> Tensor:
    """Mean cross-entropy of every run, (R,), as ln(1 + Σ_{j≠n} e^{l_j − l_n}) of the next token n.

    Its gradient has 1 − α_n as the sum of the other α_j and not as a difference, which in float32 is 0 or rounding from
    10⁻⁷ on. Rules whose steps do not shrink with the gradient (sign, Muon) go on far beyond that, and would go astray.
    """
    logits = forward(p, flags, batch, at_end=not flags.every_position).logits  # (R, B, Q or 1, M)
    asked = slice(-logits.shape[2], None)
    target = batch.target[..., asked].expand(len(logits), -1, -1)[..., None]
    others = logits.scatter(-1, target, -torch.inf).logsumexp(-1)
    lost = F.softplus(others - logits.gather(-1, target)[..., 0])
    return (batch.weight[..., asked] * lost).sum((1, 2))


def _embedded(p: Parameters, flags: Flags, tokens: Tensor, last: bool = False) -> Tensor:
    """(R, B, S, d) from ids (R or 1, B, S); the last positions where there are fewer tokens than positions."""
    embed = p["embed"]  # (R, M, d)
    if not flags.sequences and not last:  # the keys are all tokens, in their order
        return embed[:, None]
    if flags.width is None and not flags.separate:
        every = torch.arange(embed.shape[1], device=tokens.device)
        x = (tokens[..., None] == every).to(embed.dtype).expand(len(embed), -1, -1, -1)
    else:
        flat = tokens.expand(len(embed), -1, -1).flatten(1)[..., None].expand(-1, -1, embed.shape[-1])
        x = embed.gather(1, flat).unflatten(1, tokens.shape[1:])
    return x + p["place"][:, None, -tokens.shape[-1] :] if "place" in p else x


def _projected(p: Parameters, flags: Flags, ask: Tensor, keys: Tensor, at: str) -> tuple[Tensor, Tensor, Tensor]:
    """What asks (R, H, B, Q, ·), what answers (R, H, B, S, ·) and what is read: values where no norm comes before.

    Factors and RoPE's order of entries are put on the small matrices, not on what they make of every position.
    """
    if not flags.separate:
        return _times(ask[:, None], p[f"z{at}"]), keys[:, None], keys[:, None]
    w_q, w_k = p[f"w_q{at}"], p[f"w_k{at}"]
    w_q = w_q / math.sqrt(w_q.shape[-1])
    if _beside(flags, w_q.shape[-1]):
        w_q, w_k = (w.unflatten(-1, (2, -1)).mT.flatten(-2) for w in (w_q, w_k))
    w_v = [p[f"w_v{at}"]] if _early(flags, ask, keys) else []
    if ask is keys:
        q, k, *v = _by_head(keys, [w_q, w_k, *w_v])
    else:
        (q,), (k, *v) = _by_head(ask, [w_q]), _by_head(keys, [w_k, *w_v])
    return q, k, v[0] if v else keys[:, None]


def _beside(flags: Flags, inner: int) -> bool:
    """Whether entries that RoPE turns together stand beside each other: then a turn is one complex product."""
    return flags.separate and flags.positions == "rope" and inner % 2 == 0


def _early(flags: Flags, ask: Tensor, keys: Tensor) -> bool:
    """Whether W_V is applied before attention: no norm stands between, and it pays, as many ask and W_V is narrow."""
    return flags.norm == "none" and 2 * ask.shape[2] > keys.shape[2]


def _by_head(x: Tensor, matrices: list[Tensor]) -> list[Tensor]:
    """x (R, B, S, d) times matrices (R, H, d, i), as (R, H, B, S, i) each: one product of all."""
    wide = torch.cat([matrix.transpose(1, 2).flatten(2) for matrix in matrices], dim=2)  # (R, d, n·H·i)
    out = (x.flatten(1, 2) @ wide).unflatten(1, x.shape[1:3]).unflatten(3, (len(matrices), matrices[0].shape[1], -1))
    return [one.permute(0, 3, 1, 2, 4) for one in out.unbind(3)]


def _scores(flags: Flags, q: Tensor, k: Tensor) -> Tensor:
    """Attention logits (R, H, B, Q, S): x_q Z x_kᵀ, or q kᵀ/√d; RoPE turns both, ALiBi takes off distance."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    if flags.positions == "rope":
        beside = _beside(flags, q.shape[-1])
        q, k = _turned(q, n_k - n_q, beside), _turned(k, 0, beside)
    score = q @ k.mT
    if flags.positions == "alibi":
        place = torch.arange(n_k, device=score.device)
        distance = (place[n_k - n_q :, None] - place).abs().to(score.dtype)
        h = torch.arange(1, flags.heads + 1, device=score.device)
        slope = ALIBI if flags.heads == 1 else 2.0 ** (-8.0 * h[:, None, None, None] / flags.heads)
        score = score - slope * distance
    return score


def _values(p: Parameters, flags: Flags, c: Tensor, x_q: Tensor, at: str, done: bool) -> Tensor:
    """What attention read, normed, through Y or W_V W_O; the residual as in the paper or as in a transformer."""
    if flags.separate:
        v = c if done else _times(_read_norm(p, flags, c, at), p[f"w_v{at}"])  # (R, H, B, Q, d/H)
        beside = v.permute(0, 2, 3, 1, 4).flatten(-2)  # (R, B, Q, d): heads side by side
        out = _times(beside, p[f"w_o{at}"].flatten(1, 2))
        return x_q + out if flags.residual else out
    c = c.mean(1) if flags.heads > 1 else c[:, 0]
    if flags.residual and flags.prenorm != "none":  # its norms need a stream that does not start at 0
        return x_q + _times(_read_norm(p, flags, c, at), p[f"y{at}"])
    f = _read_norm(p, flags, c + x_q if flags.residual else c, at)
    out = _times(f, p[f"y{at}"])
    return f + out if f"y.{int(at[1:] or 0) + 1}" in p else out  # a layer above reads on what this one read


def _read_norm(p: Parameters, flags: Flags, c: Tensor, at: str) -> Tensor:
    if flags.norm == "rms":
        gain = p[f"gain{at}"]
        return _normed("rmsnorm", c) * gain.reshape(len(gain), *[1] * (c.ndim - 2), -1)
    return norms.apply(flags.norm, c)


def _pre(flags: Flags, x: Tensor) -> Tensor:
    """Without a gain: at the rates that Y needs it would change attention logits by its square."""
    return x if flags.prenorm == "none" else _normed(flags.prenorm, x)


def _normed(kind: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) if kind == "layernorm" else x * (x.square().mean(-1, True) + _EPS).rsqrt()


def _times(x: Tensor, matrix: Tensor) -> Tensor:
    """x (R, [1 or H,] B, Q, i) times its run's matrix (R, [H,] i, j): B and Q as one, so that no matrix is copied."""
    return (x.flatten(-3, -2) @ matrix).unflatten(-2, x.shape[-3:-1])


def _turned(x: Tensor, first: int, beside: bool) -> Tensor:
    """RoPE: pairs of entries turned by an angle that grows with the position; an odd last entry stays."""
    half = x.shape[-1] // 2
    place = torch.arange(first, first + x.shape[-2], device=x.device, dtype=x.dtype)
    angle = place[:, None] * ROPE_BASE ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    if beside:
        turn = torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)
    cos, sin = angle.cos(), angle.sin()
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1)


def _act(kind: str, x: Tensor) -> Tensor:
    return x if kind == "linear" else F.relu(x) if kind == "relu" else F.gelu(x)

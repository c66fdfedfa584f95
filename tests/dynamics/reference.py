"""The model of Section 3 written the long way, to test the short one against.

Explicit one-hot token matrices, softmax attention over positions, full M×M tables and torch's autograd and
optimisers. Nothing is shared with the engine but the settings object that names the options.
"""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from scansnap.classes import SequenceClasses
from scansnap.dynamics.settings import ModelConfig


@st.composite
def sequence_classes(draw: st.DrawFn, most_tokens: int = 8, most_classes: int = 4) -> SequenceClasses:
    """Small classes of every shape: shared queries, queries and next tokens inside contexts, uneven p_n."""
    m = draw(st.integers(3, most_tokens))
    k = draw(st.integers(1, min(most_classes, m)))
    token = st.integers(0, m - 1)
    supports = [sorted(draw(st.sets(token, min_size=1, max_size=m))) for _ in range(k)]
    p_context = torch.zeros(k, m, dtype=torch.float64)
    for n, tokens in enumerate(supports):
        weights = [draw(st.integers(1, 9)) for _ in tokens]
        p_context[n, tokens] = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    p_class = torch.tensor([draw(st.integers(1, 9)) for _ in range(k)], dtype=torch.float64)
    return SequenceClasses(
        p_context=p_context.numpy(),
        query=[draw(token) for _ in range(k)],
        next_token=draw(st.permutations(range(m)))[:k],
        p_class=(p_class / p_class.sum()).numpy(),
    )


def one_hot(ids: Tensor, m: int) -> Tensor:
    return torch.eye(m, dtype=torch.float64)[ids]


def position_bias(model: ModelConfig, length: int) -> Tensor:
    """Added to the attention logit of each context position, oldest first."""
    given = model.position_bias
    bias = []
    for distance in range(length, 0, -1):
        if given is None:
            bias.append(0.0)
        elif isinstance(given, tuple):
            bias.append(given[distance - 1] if distance <= len(given) else given[-1])
        else:
            bias.append(-given * distance)
    return torch.tensor(bias, dtype=torch.float64)


def normalised(v: Tensor, norm: str) -> Tensor:
    if norm == "l2":
        return torch.nn.functional.normalize(v, dim=-1, eps=0)
    if norm == "layernorm":
        return torch.nn.functional.layer_norm(v, v.shape[-1:], eps=0)
    return v


def loss(
    y: Tensor,  # (M, M) or what the optimiser moves
    z: Tensor,  # (H, M, M)
    context: Tensor,  # (B, T - 1) token ids, oldest first
    query: Tensor,  # (B,)
    next_token: Tensor,  # (B,)
    weight: Tensor,  # (B,)
    classes: SequenceClasses,
    model: ModelConfig,
) -> Tensor:
    """Weighted sum over the sequences of −log α_n."""
    m = y.shape[0]
    keys, e_m = one_hot(context, m), one_hot(query, m)  # (B, T - 1, M), (B, M)
    bias = position_bias(model, context.shape[1])
    if model.query_in_keys:
        keys = torch.cat([keys, e_m[:, None]], dim=1)
        bias = torch.cat([bias, torch.zeros(1, dtype=torch.float64)])
    logits = torch.einsum("bm,hml,btl->hbt", e_m, z, keys) + bias
    c = torch.einsum("hbt,btl->hbl", torch.softmax(logits, dim=-1), keys).mean(0)  # (B, M)
    if model.residual == "normed":
        f = normalised(normalised(c, model.norm) + e_m, model.norm)
    elif model.residual == "plain":
        f = normalised(c + e_m, model.norm)
    else:
        f = normalised(c, model.norm)
    scores = f @ y  # (B, M): Yᵀ f of each sequence
    if model.outputs == "next":
        others = torch.ones(m, dtype=torch.bool)
        others[torch.from_numpy(classes.next_token.copy())] = False
        scores = scores.masked_fill(others, -torch.inf)
    right = torch.log_softmax(scores, dim=-1).gather(1, next_token[:, None])[:, 0]
    return -(weight * right).sum()


def directions(
    y: Tensor, z: Tensor, context: Tensor, cls: Tensor, weight: Tensor, classes: SequenceClasses, model: ModelConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, and minus its gradients with respect to all of Y (M, M) and Z (H, M, M), by autograd."""
    y, z = y.clone().requires_grad_(), z.clone().requires_grad_()
    query, next_token = (torch.from_numpy(ids.copy())[cls] for ids in (classes.query, classes.next_token))
    value = loss(y, z, context, query, next_token, weight, classes, model)
    dy, dz = torch.autograd.grad(value, (y, z))
    return value.detach(), -dy, -dz

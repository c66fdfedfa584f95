"""The plain way to run these experiments: one run at a time, one-hot sequences, autograd, torch.optim.

Written as a reader of the paper would write it first. It is the baseline of the benchmark and shares no code with
the engine.
"""

from __future__ import annotations

import torch

from scansnap.classes import SequenceClasses


def train(
    classes: SequenceClasses,
    *,
    eta_y: float,
    eta_z: float,
    seed: int,
    steps: int,
    batch_size: int = 128,
    context: int = 128,
    momentum: float = 0.9,
    device: str = "cpu",
) -> torch.Tensor:
    """Train from uniform initial values; returns the attention of the classes, (K, M)."""
    generator = torch.Generator(device).manual_seed(seed)
    m = classes.vocab_size
    p_context = torch.tensor(classes.p_context, dtype=torch.float32, device=device)
    p_class = torch.tensor(classes.p_class, device=device)
    query = torch.tensor(classes.query, device=device)
    next_token = torch.tensor(classes.next_token, device=device)

    def table() -> torch.Tensor:
        values = (torch.rand(m, m, generator=generator, device=device) * 2 - 1) / m**0.5
        return values.requires_grad_()

    y, z = table(), table()
    optimizer = torch.optim.SGD([{"params": [y], "lr": eta_y}, {"params": [z], "lr": eta_z}], momentum=momentum)
    for _ in range(steps):
        n = torch.multinomial(p_class, batch_size, replacement=True, generator=generator)
        tokens = torch.multinomial(p_context[n], context - 1, replacement=True, generator=generator)
        x = torch.nn.functional.one_hot(tokens, m).float()  # (B, T - 1, M)
        attention = torch.softmax((x @ z[query[n]][:, :, None])[..., 0], dim=-1)  # (B, T - 1)
        c = (attention[:, None] @ x)[:, 0]  # (B, M)
        f = c / torch.linalg.vector_norm(c, dim=-1, keepdim=True)
        loss = torch.nn.functional.cross_entropy(f @ y, next_token[n])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        weight = p_context * torch.exp(z[query])
        return weight / weight.sum(-1, keepdim=True)

"""Looking at a model without a trace: what the look changes is put back, whatever happens inside it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Inside, the model evaluates without gradients; afterwards modes, buffers, attributes and chance are as before.

    ``training`` is set directly, since a model's own ``eval`` may do more; attributes are put back because some modules
    replace them in a forward pass (a rotary embedding that grows).
    """
    kept = [(module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()]
    contents = {id(t): (t, t.detach().clone()) for _, _, buffers in kept for t in buffers.values() if t is not None}
    chance = _random_state()
    try:
        for module, *_ in kept:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, attributes, buffers in kept:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for tensor, before in contents.values():
                tensor.copy_(before)
        _restore(chance)


def _random_state() -> tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda  # noqa: NPY002 whatever the user draws from


def _restore(state: tuple[Any, ...]) -> None:
    own, legacy, cpu, cuda = state
    random.setstate(own)
    np.random.set_state(legacy)  # noqa: NPY002
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)

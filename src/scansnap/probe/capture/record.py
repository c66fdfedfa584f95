"""Attention that no probe can see, told by the model itself."""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.checks import InputError
from scansnap.probe.capture.sources import of_softmax
from scansnap.probe.capture.watching import at_work

_ALLOWED = "probabilities (B, H, T, S), (H, T, S) or (T, S), each from 0 to 1 and at most 1 over the keys"


def record(p: Tensor, name: str) -> None:
    """Tell the probe what this module attends to; does nothing outside a measurement.

    For attention that is made in no way a probe knows: a sigmoid, an exp written by hand, a kernel, scripted code.

    p     probabilities (B, H, T, S) of the keys for every query; without B, or B and H, of one sequence and one head
    name  of the attention inside its module; the probe calls it PATH.NAME
    """
    watcher = at_work()
    if watcher is None:
        return
    if not isinstance(name, str) or not name:
        raise InputError("the name of a recorded attention", name, "a word")
    field = f"attention recorded as {name!r}"
    if not isinstance(p, Tensor) or not p.is_floating_point():
        raise InputError(field, type(p).__name__ if not isinstance(p, Tensor) else str(p.dtype), _ALLOWED)
    if not 2 <= p.ndim <= 4 or min(p.shape) == 0:
        raise InputError(field, f"of shape {tuple(p.shape)}", _ALLOWED)
    with torch.no_grad(), torch._C.DisableTorchFunction():
        p = p.detach()[(None,) * (4 - p.ndim)]
        least, most, total = (
            float(t.nan_to_num(0.0)) for t in (p.amin(), p.amax(), p.sum(-1, dtype=torch.float32).amax())
        )
    if least < 0 or most > 1.001 or total > 1.01:  # of numbers with three digits
        raise InputError(field, f"from {least:.3g} to {most:.3g}, up to {total:.4g} over the keys", _ALLOWED)
    watcher.hand(of_softmax(p, None, None, False), name)

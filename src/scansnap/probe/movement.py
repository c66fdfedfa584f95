"""How far attention has moved: total variation between what the same queries attend to at two times."""

from __future__ import annotations

from torch import Tensor


def distance(now: Tensor, then: Tensor | None) -> Tensor:
    """Mean over sequences and queries of ½ Σ_k |p_k − p′_k|, from rows (B, H, q, S) to (H,); NaN without a then."""
    if then is None or then.shape != now.shape:
        return now.new_full((now.shape[1],), float("nan"))
    return (now - then.to(now.device)).abs().sum(-1).mean((0, 2)) / 2

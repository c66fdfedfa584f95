"""What is said of all measurements of a probe: whose attention, on what, and what made the numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from torch import nn

from scansnap.probe.batch import fingerprint
from scansnap.results.trajectory import PROBED, versions


def described(model: nn.Module, batch: Any, every: int | str | Iterable[int], queries: int | None) -> dict[str, Any]:
    """Attributes of the Dataset; ``corpus`` and ``coverage`` come where they are known."""
    transformers = sys.modules.get("transformers")
    made_by = versions() | ({"transformers": str(transformers.__version__)} if transformers is not None else {})
    return {
        "format": PROBED,
        "batch": fingerprint(batch),
        "queries": "all" if queries is None else queries,
        "every": every if isinstance(every, int | str) else json.dumps(sorted(every)),
        "model": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "versions": json.dumps(made_by),
    }

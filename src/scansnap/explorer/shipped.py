"""The verdicts that the page ships, and the set-ups in which statements apply; without torch, so that NumPy alone can
build the page. `scansnap.explorer.verdicts` computes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scansnap.explorer.presets import PRESETS

# Set-ups in which a statement applies that does not apply to the run on screen. Most meet all their assumptions in the
# preset "textbook"; others need a set-up of their own; those about the flow, or about times out of reach, a command.
TEXTBOOK: dict[str, Any] = next(preset["setup"] for preset in PRESETS if preset["name"] == "textbook")
_SEVERAL_COMMON = {"preset": "synthetic", "n_queries": 1, "next_per_query": 2, "common": 3, "distinct": 5,
                   "common_weight": 0.4, "distinct_weights": [0.5] * 5, "unused": 2000}  # fmt: skip

CHANGES: dict[str, dict[str, Any]] = {
    "corollary-2": {"classes": _SEVERAL_COMMON},  # several common tokens, alike in both classes
    "drive": {"eta_z": 0.002},  # so slow an attention that the decoder has nothing to remember
    "finite-drift": {"context": 512, "batch_size": 128},  # sampled sequences, long enough for 1/T
    "finite-fates": {"context": 512, "batch_size": 128},
}
COMMANDS: dict[str, str] = {  # empty: only ss.verify(data=…)
    "response-error": "scansnap verify --preset textbook",
    "exact-law": "scansnap verify --preset textbook",
    "late-l2": "",
    "late-none": "scansnap verify --preset textbook --t-end 1e10",
    "late-fixed": "scansnap verify --preset textbook --t-end 1e10",
}

FILE = Path(__file__).parent / "verdicts.json"


def load() -> dict[str, Any]:
    """The file: the version that computed it, and the entries by name."""
    read: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return read

"""Where a statement applies: for each that says nothing of the run on screen, a set-up of which it does speak.

Most of the paper's statements meet all their assumptions in the preset "textbook", which was made for that. The few
that ask for something else have a set-up of their own. Some are about the flow alone, or about times that no run on the
page reaches: for those there is a command instead.
"""

from __future__ import annotations

from typing import Any

from scansnap.explorer.presets import PRESETS

TEXTBOOK: dict[str, Any] = next(preset["setup"] for preset in PRESETS if preset["name"] == "textbook")
_SEVERAL_COMMON = {"preset": "synthetic", "n_queries": 1, "next_per_query": 2, "common": 3, "distinct": 5,
                   "common_weight": 0.4, "distinct_weights": [0.5] * 5, "unused": 2000}  # fmt: skip

CHANGES: dict[str, dict[str, Any]] = {
    "corollary-2": {"classes": _SEVERAL_COMMON},  # several common tokens, alike in both classes
    "drive": {"eta_z": 0.002},  # so slow an attention that the decoder has nothing to remember
    "finite-drift": {"context": 512, "batch_size": 128},  # sampled sequences, long enough for 1/T
    "finite-fates": {"context": 512, "batch_size": 128},
}
COMMANDS: dict[str, str] = {  # where no run on the page will do: of the flow; empty: by ss.verify(data=…)
    "response-error": "scansnap verify --preset textbook",
    "exact-law": "scansnap verify --preset textbook",
    "late-l2": "",
    "late-none": "scansnap verify --preset textbook --t-end 1e10",
    "late-fixed": "scansnap verify --preset textbook --t-end 1e10",
}


def where(claim: str) -> dict[str, Any]:
    """A set-up in which a claim applies."""
    return {**TEXTBOOK, **CHANGES.get(claim, {})}

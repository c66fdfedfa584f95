"""How few keys carry the attention of a model and what leaving the others out costs: its record, rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from scansnap.paper.shared.run_cache import Record
from scansnap.paper.shared.text_runs import BATCH, LENGTH, TextSetting
from scansnap.text.evaluation import attention_statistics, perplexity
from scansnap.text.model import LanguageModel

MASSES = (0.5, 0.8, 0.9, 0.95, 0.99)


def key_sparsity(
    model: LanguageModel, setting: TextSetting, masses: Sequence[float] = MASSES, *, failed: bool = False
) -> dict[str, Any]:
    """On the validation text, for each mass of attention.

    masses (m,), share_needed and keys_needed (m, layers), perplexity (all keys), perplexity_kept (m,); NaN where the
    training failed
    """
    if failed:
        by_layer = np.full((len(masses), model.layers), np.nan)
        return {"masses": masses, "perplexity": np.nan, "perplexity_kept": np.full(len(masses), np.nan),
                "share_needed": by_layer, "keys_needed": by_layer}  # fmt: skip
    tokens = setting.valid
    options: dict[str, Any] = {"length": LENGTH, "batch": BATCH}
    needed = [attention_statistics(model, tokens, mass=mass, **options) for mass in masses]
    return {"masses": masses, "perplexity": perplexity(model, tokens, **options),
            "perplexity_kept": [perplexity(model, tokens, keep=mass, **options) for mass in masses],
            **{name: [[row[name] for row in rows] for rows in needed] for name in ("share_needed", "keys_needed")},
            }  # fmt: skip


def sparsity_rows(record: Record, name: str, seed: int) -> pd.DataFrame:
    """One row for each mass and layer (from 1): share_needed, keys_needed, perplexity (all keys), perplexity_kept."""
    share_needed, keys_needed = record["share_needed"], record["keys_needed"]
    return pd.DataFrame([{"model": name, "seed": seed, "mass": mass, "layer": layer + 1,
                          "share_needed": share_needed[i, layer], "keys_needed": keys_needed[i, layer],
                          "perplexity": float(record["perplexity"]), "perplexity_kept": record["perplexity_kept"][i]}
                         for i, mass in enumerate(record["masses"].tolist())
                         for layer in range(share_needed.shape[1])])  # fmt: skip

"""A text of a few hundred words for the figures on text."""

import numpy as np

from scansnap.paper.figure import Effort
from scansnap.paper.studies import layers, sparsity
from scansnap.paper.studies.words import runs as word_runs

TINY = {"max_words": 40, "steps": 6, "seeds": 2, "valid_tokens": 400}


def write_text(folder):
    """Pairs "cue word" with a topic word somewhere before them, in a stream of filler."""
    rng = np.random.default_rng(0)
    filler = [f"common{i}" for i in range(12)]
    for name, lines in (("train", 400), ("valid", 60), ("test", 20)):
        text = []
        for _ in range(lines):
            topic = rng.integers(6)
            words = [*rng.choice(filler, 7), f"topic{topic}", *rng.choice(filler, 4), "cue", f"next{topic}"]
            text.append(" ".join(words))
        (folder / f"{name}.txt").write_text("\n".join(text) + "\n")
    return folder


def tiny_effort(folder, patch):
    """Tiny runs on a tiny text."""
    patch.setenv("SCANSNAP_CACHE", str(folder / "cache"))
    key = (False, True)  # on a CPU, quick
    patch.setitem(layers.SIZES, key, TINY)
    patch.setattr(layers, "WIDTH", {"cpu": 8})
    patch.setattr(layers, "QUICK_LAYERS", (1, 2))
    patch.setitem(word_runs.SIZES, key, {**TINY, "steps": 30})
    patch.setitem(word_runs.TRANSFORMER_STEPS, key, 3)
    patch.setitem(sparsity.DEEP_STEPS, key, 3)
    (folder / "text").mkdir()
    return Effort(quick=True, device="cpu", data=write_text(folder / "text"))

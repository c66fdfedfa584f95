"""Set-ups worth starting from, each with a few words on what to look for."""

from __future__ import annotations

from typing import Any

PRESETS: tuple[dict[str, Any], ...] = (
    {
        "name": "words",
        "title": "Six classes in words",
        "question": "Which context words does a 1-layer transformer learn to look at?",
        "commentary": "Contexts made up by hand: three last words, two next words each. At first attention goes by how "
        "often a word occurs, and “the” is ahead or level in all classes but one. In the end every class looks most at "
        "the most frequent word that no other class has.",
        "setup": {"classes": {"preset": "words"}, "eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9, "steps": 1000},
    },
    {
        "name": "figure-4",
        "title": "Scan and snap (Figure 4)",
        "commentary": "Two classes, ten common tokens and ten distinct ones each. Attention leaves the common tokens "
        "within a few dozen steps, gathers on the most frequent distinct ones, and then hardly moves any more.",
        "setup": {"classes": {"preset": "syn-small"}, "eta_y": 1.0, "eta_z": 1.0, "momentum": 0.9, "steps": 1000},
    },
    {
        "name": "fast-decoder",
        "title": "A faster decoder (Figure 4, right)",
        "commentary": "The same with a decoder ten times as fast. It explains the data before attention has moved far, "
        "so the snap comes early and attention stays broad.",
        "setup": {"classes": {"preset": "syn-small"}, "eta_y": 10.0, "eta_z": 1.0, "momentum": 0.9, "steps": 1000},
    },
    {
        "name": "adam",
        "title": "Adam (Figure 5)",
        "commentary": "Adam divides each update by its usual size. Rare tokens move as fast as frequent ones, so the "
        "winners are not the tokens that SGD picks.",
        "setup": {"classes": {"preset": "syn-small"}, "eta_y": 0.1, "eta_z": 0.1, "momentum": 0.0,
                  "optimizer": "adam", "steps": 500},
    },
    {
        "name": "medium-3",
        "title": "Three queries (Syn-Medium)",
        "commentary": "Three queries with two next tokens each. Every query scans on its own; its two classes share a "
        "row of logits and share the common tokens with everybody.",
        "setup": {"classes": {"preset": "syn-medium", "n_queries": 3}, "eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9,
                  "init": "uniform", "steps": 2000},
    },
    {
        "name": "medium-10",
        "title": "Ten queries (Syn-Medium)",
        "commentary": "Twenty classes at once, from random initial values as in Figure 6.",
        "setup": {"classes": {"preset": "syn-medium", "n_queries": 10}, "eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9,
                  "init": "uniform", "steps": 5000},
    },
    {
        "name": "textbook",
        "title": "What the theorems assume",
        "commentary": "One common token, one query, a large vocabulary, long sequences, small rates, a decoder much "
        "faster than attention. Here the closed forms may be held against the run; watch the claims.",
        "setup": {"classes": {"preset": "textbook"}, "eta_y": 0.9, "eta_z": 0.02, "momentum": 0.0, "context": "inf",
                  "batch_size": None, "steps": 3000},
    },
    {
        "name": "zipf",
        "title": "Word-like frequencies (Zipf)",
        "commentary": "Five classes whose words follow Zipf's law, half of the probability on words common to all. "
        "One frequent distinct word per class takes nearly everything.",
        "setup": {"classes": {"preset": "zipf", "vocab": 300, "classes": 5}, "eta_y": 2.0, "eta_z": 1.0,
                  "momentum": 0.9, "steps": 3000},
    },
)  # fmt: skip

DEFAULT: dict[str, Any] = PRESETS[0]["setup"]

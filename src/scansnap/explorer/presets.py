"""Set-ups worth starting from, each with a question and a few words on what to look for.

The tests check every statement and number of these words on the run itself.
"""

from __future__ import annotations

from typing import Any

PRESETS: tuple[dict[str, Any], ...] = (
    {
        "name": "words",
        "title": "Six classes in words",
        "question": "Which context words does a 1-layer transformer learn to look at?",
        "commentary": "Contexts made up by hand: three last words, two next words each. At first attention goes by how "
        "often a word occurs, and “the” is ahead or level in five classes of six. In the end each class looks most at "
        "the most frequent word that no other class has; all words that several classes share together fall from 64% "
        "of the attention to 32%.",
        "setup": {"classes": {"preset": "words"}, "eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9, "steps": 1000},
    },
    {
        "name": "figure-4",
        "title": "Scan and snap (Figure 4)",
        "question": "Where does attention go, and when does it stop?",
        "commentary": "Two classes, ten common tokens and ten distinct ones each. Within fifty steps the common tokens "
        "fall from 65% of the attention to 39%, and the most frequent distinct token of each class rises from 6% "
        "to 18% and 19%. Then attention hardly moves: no bar by more than one percentage point in the next 950 steps.",
        "setup": {"classes": {"preset": "syn-small"}, "eta_y": 1.0, "eta_z": 1.0, "momentum": 0.9, "steps": 1000},
    },
    {
        "name": "fast-decoder",
        "title": "A faster decoder (Figure 4, right)",
        "question": "What does a faster decoder do to attention?",
        "commentary": "The same with a decoder ten times as fast. After five steps the loss is below 0.001, and the "
        "common tokens still have 62% of the attention, after 65% at the start. So the snap comes early and attention "
        "stays broad: in the end they keep 56%, where the slower decoder leaves them 38%.",
        "setup": {"classes": {"preset": "syn-small"}, "eta_y": 10.0, "eta_z": 1.0, "momentum": 0.9, "steps": 1000},
    },
    {
        "name": "adam",
        "title": "Adam (Figure 5)",
        "question": "Does Adam look at the same tokens as SGD?",
        "commentary": "Adam divides each update by its usual size, so a rare token's logit moves as fast as a frequent "
        "one's. Common tokens fall here as well, from 65% to 35%; but among the distinct ones the rarest gains most, "
        "and the most frequent one does not lead.",
        "setup": {"classes": {"preset": "syn-small"}, "eta_y": 0.1, "eta_z": 0.1, "momentum": 0.0,
                  "optimizer": "adam", "steps": 500},
    },
    {
        "name": "medium-3",
        "title": "Three queries (Syn-Medium)",
        "question": "Who wins when the start is random?",
        "commentary": "Three queries with two next tokens each; the two classes of a query share a row of logits, and "
        "all share the common tokens. Those fall from 65% of the attention to 27% within fifty steps. From random "
        "initial values the most frequent distinct token leads in four classes of six in the end.",
        "setup": {"classes": {"preset": "syn-medium", "n_queries": 3}, "eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9,
                  "init": "uniform", "steps": 2000},
    },
    {
        "name": "medium-10",
        "title": "Ten queries (Syn-Medium)",
        "question": "And with twenty classes at once?",
        "commentary": "Ten queries, from random initial values as in Figure 6. The scan starts later: after ten steps "
        "the common tokens still have 64% of the attention, after 65% at the start; after fifty they have 30%.",
        "setup": {"classes": {"preset": "syn-medium", "n_queries": 10}, "eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9,
                  "init": "uniform", "steps": 2000},
    },
    {
        "name": "textbook",
        "title": "What the theorems assume",
        "question": "What does it look like where the theorems apply?",
        "commentary": "One common token, one query, a large vocabulary, long sequences, small rates, a decoder much "
        "faster than attention: every assumption is met, and the paper's formulas can be compared with the run. "
        "Attention barely moves: no logit by more than 0.01. Watch the claims.",
        "setup": {"classes": {"preset": "textbook"}, "eta_y": 0.9, "eta_z": 0.02, "momentum": 0.0, "context": "inf",
                  "batch_size": None, "steps": 3000},
    },
    {
        "name": "zipf",
        "title": "Word-like frequencies (Zipf)",
        "question": "And if frequencies are as uneven as those of words?",
        "commentary": "Five classes whose words follow Zipf's law, half of the probability on words that all share, "
        "each class in another order. The most frequent distinct word of each class rises from 11% of the attention "
        "to between 17% and 25% and stays in front; the shared words keep about half.",
        "setup": {"classes": {"preset": "zipf", "vocab": 300, "classes": 5}, "eta_y": 2.0, "eta_z": 1.0,
                  "momentum": 0.9, "steps": 3000},
    },
)  # fmt: skip

DEFAULT: dict[str, Any] = PRESETS[0]["setup"]

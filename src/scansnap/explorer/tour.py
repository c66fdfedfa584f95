"""Six scenes that follow the paper; each a set-up, what to see in it, and a question to try.

The tests check every sentence about what happens on the run itself.
"""

from __future__ import annotations

from typing import Any

_SMALL: dict[str, Any] = {"classes": {"preset": "syn-small"}, "eta_y": 1.0, "eta_z": 1.0, "momentum": 0.9,
                          "steps": 1000}  # fmt: skip

SCENES: tuple[dict[str, Any], ...] = (
    {
        "name": "uniform",
        "title": "1 · A uniform start",
        "commentary": "Two classes of sequences, each with its own query and its own next token. Ten common tokens "
        "occur in both; ten distinct tokens occur in one class only. All logits z begin at 0, so attention simply "
        "follows how often a token occurs: the common tokens hold almost two thirds of it, although they say nothing "
        "about what comes next.",
        "setup": {**_SMALL, "eta_z": 0.0},
        "seconds": 8,
        "watch": ["attention", "loss"],
        "overlay": None,
        "until": 100,
        "question": "Attention is frozen here (η_Z = 0), and still the loss falls. How does the model tell the classes "
        "apart?",
        "answer": "Through the decoder Y alone: the distinct tokens that get some attention already vote for their "
        "next token. Attention is not needed to fit; the question is where it goes when it is free to move.",
        "try": {"eta_z": 1.0},
        "at": None,
    },
    {
        "name": "suppression",
        "title": "2 · Common tokens fall",
        "commentary": "Now attention may move. The gradient on each row of z sums to exactly zero, and the distinct "
        "tokens push up; so the common tokens must fall in sum. Step through the first updates: their share drops from "
        "almost two thirds to under a half within twenty steps.",
        "setup": _SMALL,
        "seconds": 10,
        "watch": ["attention", "z"],
        "overlay": None,
        "until": 20,
        "question": "What happens if the common tokens are five times as frequent?",
        "answer": "Their sum still falls, from 90% of the attention to 67%, but not every one of them: three in class "
        "0 and two in class 1 rise, and end as the tallest bars of all. Only the sum is bound to fall.",
        "try": {"classes": {"preset": "synthetic", "n_queries": 2, "next_per_query": 1, "common_weight": 5.0}},
        "at": None,
    },
    {
        "name": "winners",
        "title": "3 · Winners emerge",
        "commentary": "Among the distinct tokens the rich get richer: a token's logit rises with the square of its "
        "attention, so a small lead grows. The most frequent distinct token of each class stays in front all the time, "
        "and the entropy over the distinct tokens falls.",
        "setup": {**_SMALL, "steps": 100},
        "seconds": 8,
        "watch": ["attention", "heatmap", "entropy"],
        "overlay": None,
        "until": 100,
        "question": "Make all distinct tokens equally frequent. Who wins?",
        "answer": "In the T → ∞ limit nobody: equal tokens stay equal. In a finite run the luck of the first batches "
        "gives one a small lead, another one with another seed, and the entropy hardly falls.",
        "try": {"classes": {"preset": "synthetic", "n_queries": 2, "next_per_query": 1,
                            "distinct_weights": [0.5] * 10}},
        "at": None,
    },
    {
        "name": "snap",
        "title": "4 · The snap",
        "commentary": "As the decoder becomes sure, the gradient that moves attention fades like 1/t. The entropy has "
        "done its way after some fifty steps: in the nine hundred steps after the first hundred it moves less than a "
        "tenth as far. Look at the heat map on a logarithmic axis: attention is almost frozen, not quite.",
        "setup": _SMALL,
        "seconds": 10,
        "watch": ["growth", "entropy", "heatmap"],
        "overlay": None,
        "until": 1000,
        "question": "Raise η_Z to 3 in the middle of the run, at step 500. Does attention come back to life?",
        "answer": "Hardly: it moves about three times as fast, but that is three times almost nothing. No logit moves "
        "by a tenth in the five hundred steps that follow.",
        "try": {"eta_z": 3.0},
        "at": 500,
    },
    {
        "name": "ratio",
        "title": "5 · A faster decoder: less sparse",
        "commentary": "The same with η_Y ten times as large, over the run before. The decoder explains the data "
        "sooner, the snap comes sooner, and attention is caught while it is still broad: at the end its entropy "
        "over the distinct tokens is higher.",
        "setup": {**_SMALL, "eta_y": 10.0},
        "seconds": 10,
        "watch": ["attention", "entropy", "growth"],
        "overlay": _SMALL,
        "until": 1000,
        "question": "What matters: η_Y, η_Z, or their ratio? Multiply both by the same number and see.",
        "answer": "Mostly the ratio. B_n at the snap depends on the rates only through η_Y/η_Z; multiplying both makes "
        "the same film play faster, until steps become too large for the continuous-time picture.",
        "try": {"eta_y": 1.0, "eta_z": 0.1},
        "at": None,
    },
    {
        "name": "adam",
        "title": "6 · Adam levels what SGD sharpens",
        "commentary": "Adam divides every update by its usual size, so the logit of a rare token moves as fast as that "
        "of a frequent one. The common tokens fall as under SGD, from 65% of the attention to 35%. The distinct tokens "
        "differ: under SGD their logits end in the order of their frequency, under Adam in the opposite order. The "
        "rare ones catch up, and in the end nine of the ten distinct tokens have 6% to 7% of the attention each.",
        "setup": {**_SMALL, "eta_y": 0.1, "eta_z": 0.1, "momentum": 0.0, "optimizer": "adam", "steps": 500},
        "seconds": 10,
        "watch": ["attention", "z", "entropy"],
        "overlay": {**_SMALL, "steps": 500},
        "until": 500,
        "question": "Go back to SGD. Does attention on the distinct tokens spread out or narrow?",
        "answer": "It narrows: the most frequent distinct token ends with 18% of the attention, and the entropy over "
        "the distinct tokens falls from 2.15 to 1.94 nats. Under Adam it rises to 2.29, almost the 2.30 of ten tokens "
        "with equal attention.",
        "try": {"optimizer": "sgd", "eta_y": 1.0, "eta_z": 1.0, "momentum": 0.9},
        "at": None,
    },
)  # fmt: skip

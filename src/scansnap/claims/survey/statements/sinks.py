"""Attention sinks: queries with nothing to look for attend to the first token. What decay, sigmoid and SGD do to it.

Sources: sinks form in every language model with softmax attention, weight decay encourages them, and sigmoid attention
has none (Gu et al.); sinks and drained values reinforce each other, and SGD in place of Adam mitigates both (Guo et
al.). Setting: the layer of dormant.py with active and dormant queries, T = 64, 400 steps of AdamW (rate 0.1), or of SGD
(rate 1, four times as long but with --quick, for the same loss), mini-batches of 64.

A sink is more than 0.3 of the attention of dormant queries on the first token, the threshold of the first source (as we
read it); at the start it is 1/63. For sigmoid attention it is the weight itself, which need not sum to 1. Decay 0.02 on
all tables (rate × decay × steps = 0.8: what is not used shrinks to less than half) promotes sinks if it adds 0.01 or
more to the attention on the first token, paired by seed. Sinks drain values if ‖Y‖ of the first token is smaller by a
tenth or more than where its logits are kept as they began; and drained values strengthen sinks if keeping the value as
small as it began adds 0.01 or more.
"""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.dormant import train
from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed

GU = Source(
    "Gu, Pang, Du, Liu, Zhang, Du, Wang and Lin 2024",
    "When Attention Sink Emerges in Language Models: An Empirical View",
    "2410.10781", "abstract",
)  # fmt: skip
GUO = Source(
    "Guo, Pai, Bai, Jiao, Jordan and Mei 2024",
    "Active-Dormant Attention Heads: Mechanistically Demystifying Extreme-Token Phenomena in LLMs",
    "2410.13835", "abstract",
)  # fmt: skip
SINK, LAMBDA = 0.3, 0.02
_SETTING = "one layer, BOS, T = 64, active and dormant queries, {}"

FORMS = surveyed("sink", "a sink forms on the first token", source=GU, setting=_SETTING.format("softmax, AdamW"))
SIGMOID = surveyed(
    "sink-sigmoid", "sigmoid attention has no sink", source=GU, setting=_SETTING.format("sigmoid, AdamW")
)
DECAY = surveyed(
    "sink-decay", "weight decay promotes the sink", source=GU, setting=_SETTING.format("AdamW, decay 0.02 against 0")
)
SGD = surveyed("sink-sgd", "with SGD in place of Adam there is no sink", source=GUO, setting=_SETTING.format("SGD"))
DRAINS = surveyed(
    "sink-drains", "a sink drains the value of its token", source=GUO, setting=_SETTING.format("softmax, AdamW")
)
DRAINED = surveyed(
    "sink-drained", "a drained value strengthens the sink", source=GUO, setting=_SETTING.format("softmax, AdamW")
)
STATEMENTS = (FORMS, SIGMOID, DECAY, SGD, DRAINS, DRAINED)

# What is measured, what a statement predicts, the bound to which it is met, and what is said where it is not.
_JUDGED = {
    FORMS.name: ("weight of the first token", 1.0, SINK, "there is none"),
    SIGMOID.name: ("weight of the first token", 0.0, SINK, "there is one"),
    DECAY.name: ("attention on the first token with decay less that without", 0.1, 0.01, "decay weakens it"),
    SGD.name: ("weight of the first token", 0.0, SINK, "there is one"),
    DRAINS.name: (
        "ln of the first token's ‖Y‖ with the sink over that with its logits held",
        -1.0,
        np.log(0.9),
        "it is no smaller",
    ),
    DRAINED.name: (
        "attention on the first token with its value held less that without",
        0.1,
        0.01,
        "it is no stronger",
    ),
}


def judge(statement: Surveyed, values: FloatArray, note: str = "") -> Finding:
    quantity, predicted, bound, where = _JUDGED[statement.name]
    what = f"{quantity} ({note})" if note else quantity
    return statement.found(values, predicted=predicted, bound=bound, quantity=what, where=where)


def check(sizes: Sizes) -> list[Finding]:
    none, seeds = ((0.0, 0.0),), sizes.seeds
    softmax = train((*none, (LAMBDA, LAMBDA), (LAMBDA, 0.0), (0.0, LAMBDA)), seeds)
    sigmoid = train(none, seeds, sigmoid=True)
    sgd = train(none, seeds, sgd=True, rate=1.0, steps=400 if sizes.quick else 1600)
    no_sink, no_value = train(none, seeds, hold="logit"), train(none, seeds, hold="value")
    weight = softmax.weight
    on_y, on_z = (weight[2:] - weight[0]).mean(1)
    return [
        judge(FORMS, weight[0], f"training loss {softmax.loss[0].mean():.2f}"),
        judge(SIGMOID, sigmoid.weight[0], f"training loss {sigmoid.loss.mean():.2f}"),
        judge(DECAY, weight[1] - weight[0], f"on the votes alone {on_y:+.2f}, on Z alone {on_z:+.2f}"),
        judge(SGD, sgd.weight[0], f"training loss {sgd.loss.mean():.2f}"),
        judge(DRAINS, np.log(softmax.value[0] / no_sink.value[0])),
        judge(DRAINED, no_value.weight[0] - weight[0]),
    ]

"""What the page's engine draws is what Python draws, number by number."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from page_engine import answer, answers, needs_node, spelled_out

from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.sampling.counts import STIRLING_TABLE
from scansnap.sampling.philox import Purpose, uniforms

pytestmark = needs_node
SEEDS = st.one_of(st.integers(0, 5), st.integers(0, 2**53 - 1))
WORDS = st.integers(0, 2**32 - 1)


def as_question(made: Settings) -> dict[str, Any]:
    told = made.to_dict()
    return {
        name: told[name]
        for name in ("steps", "batch_size", "context", "sampling", "model", "optimizer_y", "optimizer_z")
    }


@pytest.mark.hypothesis
def test_uniforms() -> None:
    places: list[tuple[int, ...]] = []

    @given(st.tuples(SEEDS, st.sampled_from([1, 2, 3, 4, 5]), WORDS, WORDS, WORDS))
    def collect(place: tuple[int, ...]) -> None:
        places.append(place)

    collect()
    seed, purpose, *place = (torch.tensor(part) for part in zip(*places, strict=True))
    each = [uniforms(s, Purpose(int(p)), *at) for s, p, *at in zip(seed, purpose, *place, strict=True)]
    assert answer(ask="uniforms", places=places) == [[float(u), float(v)] for u, v in each]


def test_the_table_of_stirling() -> None:
    assert answer(ask="stirling") == STIRLING_TABLE.tolist()


def test_permutations_of_the_zipf_preset() -> None:
    cases = [(seed, n) for seed in (0, 1, 2**32 - 1, 2**40 + 3, 2**53 - 1) for n in (2, 7, 300)]
    found = answers([{"ask": "permutation", "seed": seed, "n": n} for seed, n in cases])
    for (seed, n), own in zip(cases, found, strict=True):
        random = np.random.default_rng(seed)
        assert own == [random.permutation(n).tolist(), random.permutation(n).tolist()]


PRESETS = [
    ("synthetic", {}), ("synthetic", {"n_queries": 3, "next_per_query": 2, "common_per_query": 2, "unused": 5}),
    ("synthetic", {"n_queries": 2, "next_per_query": 1, "distinct": 1}),
    ("synthetic", {"common": 1, "distinct": 5, "common_weight": 0.8, "unused": 2000}),
    ("synthetic", {"common": 37, "distinct": 150, "distinct_weights": [0.1 + 0.01 * i for i in range(150)]}),
    ("zipf", {"vocab": 300, "classes": 5}), ("zipf", {"overlap": 0, "seed": 3}),
    ("zipf", {"overlap": 1, "exponent": 0}),
    ("zipf", {"vocab": 2000, "classes": 3, "exponent": 1.7, "overlap": 0.25, "seed": 2**40 + 3}),
]  # fmt: skip


def test_classes_of_the_presets() -> None:
    found = answers([{"ask": "classes", "classes": {"preset": name, "settings": options}} for name, options in PRESETS])
    for (name, options), own in zip(PRESETS, found, strict=True):
        classes = SequenceClasses.preset(name, **options)
        rows = [classes.support(n) for n in range(classes.n_classes)]
        assert own["tokens"] == [tokens.tolist() for tokens, _ in rows]
        assert (own["query"], own["next"], own["M"]) == (
            classes.query.tolist(),
            classes.next_token.tolist(),
            classes.vocab_size,
        )
        for one, (_, probs) in zip(own["probs"], rows, strict=True):
            np.testing.assert_allclose(one, probs, rtol=0 if name == "synthetic" else 1e-15)


CLASSES = [SequenceClasses.syn_small(), SequenceClasses.syn_medium(3), SequenceClasses.bundled_words(),
           SequenceClasses.textbook(), SequenceClasses.zipf(vocab=300, classes=5)]  # fmt: skip


@pytest.mark.hypothesis
def test_mini_batches() -> None:
    asked: list[tuple[SequenceClasses, Settings, int, list[int]]] = []

    @settings(max_examples=25)
    @given(st.sampled_from(CLASSES), st.sampled_from(["counts", "tokens"]),
           st.sampled_from([2, 3, 128, 300, 4096, 10**6]), st.booleans(), SEEDS,
           st.lists(st.integers(0, 2**32 - 2), min_size=1, max_size=3))  # fmt: skip
    def collect(
        classes: SequenceClasses, sampling: str, context: int, query: bool, seed: int, steps: list[int]
    ) -> None:
        context = min(context, 300) if sampling == "tokens" else context
        made = Settings(
            batch_size=50, context=context, sampling=sampling, model=ModelConfig(query_in_keys=query), dtype="float64"
        )
        asked.append((classes, made, seed, steps))

    collect()
    made = Settings(batch_size=20, context=40, model=ModelConfig(position_bias=0.3), dtype="float64")
    asked.append((CLASSES[0], made, 7, [0, 5]))
    asked.append((CLASSES[0], dataclasses.replace(made, model=ModelConfig(position_bias=(0.5, -0.2, 0.1))), 7, [3]))
    found = answers([{"ask": "batches", "classes": spelled_out(classes), "settings": as_question(made), "seed": seed,
                      "steps": steps} for classes, made, seed, steps in asked])  # fmt: skip
    for (classes, made, seed, steps), own in zip(asked, found, strict=True):
        layout = make_layout(classes, made.model, decays=False)
        batches = Batches(layout, made, np.array([seed]), torch.device("cpu"))
        for step, batch in zip(steps, own, strict=True):
            taken = batches.take(step, step + 1)
            assert batch["cls"] == taken.cls[0, 0].tolist()
            counts = taken.counts[0, 0].numpy()
            if made.model.position_bias is None:
                assert batch["counts"] == counts.tolist()
            else:  # e^bias may differ in the last bit
                np.testing.assert_allclose(batch["counts"], counts, rtol=1e-14)


def test_token_sequences() -> None:
    made = Settings(batch_size=16, context=60, sampling="tokens")
    classes = SequenceClasses.syn_medium(3)
    batches = Batches(make_layout(classes, made.model, decays=False), made, np.array([11]), torch.device("cpu"))
    question = {"ask": "tokens", "classes": spelled_out(classes), "settings": as_question(made), "step": 4}
    own, other = answers([question | {"seed": 11}, question | {"seed": 12}])
    assert own == batches.tokens(4)[1][0].tolist()
    assert own != other


def test_a_wrong_seed_or_step_draws_something_else() -> None:
    made = Settings(batch_size=50)
    question = {"ask": "batches", "classes": spelled_out(CLASSES[0]), "settings": as_question(made)}
    right, seed, step = answers([question | {"seed": s, "steps": [t]} for s, t in ((3, 9), (4, 9), (3, 10))])
    assert right[0]["cls"] != seed[0]["cls"]
    assert right[0]["cls"] != step[0]["cls"]

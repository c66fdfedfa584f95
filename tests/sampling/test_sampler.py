"""Samplers: data are a function of seed and step alone, have the frequencies they should, and bad ones are refused."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse, stats
from torch import Tensor

from refusals import bad_values, refused
from scansnap.classes import SequenceClasses
from scansnap.classes.sampler import ClassSampler
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.yz import ModelConfig
from scansnap.sampling.mixture import MixtureSampler
from scansnap.sampling.ordered import OrderedTokens
from scansnap.sampling.sampler import Sampler, Sequences, digest, draw, even

LEAST_P = 1e-4  # seeds are fixed: a statistical test that passes always passes
P_CONTEXT = [[0.5, 0.3, 0.2, 0, 0, 0], [0.5, 0, 0, 0.25, 0.25, 0]]
P_NEXT = [[0.1, 0.9, 0, 0, 0, 0], [0, 0.4, 0.6, 0, 0, 0]]


def mixture(**given: Any) -> MixtureSampler:
    return MixtureSampler(**{"p_context": P_CONTEXT, "query": [5, 5], "context": 4, "p_next": P_NEXT} | given)


SAMPLERS: dict[str, Sampler] = {
    "classes": ClassSampler(SequenceClasses.syn_medium(2), context=9),
    "shared next token": ClassSampler(SequenceClasses.syn_medium(2), context=9, next_token=[3, 4, 3, 4]),
    "drawn next token": mixture(),
    "soft labels": mixture(soft=True),
    "ordered": OrderedTokens(np.arange(100) % 7, context=5, vocab_size=7),
}


def ints(*values: int) -> Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize("name", SAMPLERS)
def test_data_depend_on_seed_and_step_alone(name: str) -> None:
    """Drawn together, one by one, in another order, beside other seeds: the same numbers."""
    sampler = SAMPLERS[name]
    assert isinstance(sampler, Sampler)
    seeds, steps = ints(3, 0, 2**40), ints(0, 7, 1)
    together = draw(sampler, seeds, steps, 6)
    for g, seed in enumerate(seeds):
        for n, step in enumerate(steps):
            alone = draw(sampler, seed[None], step[None], 6)
            for here, there in zip(alone, together, strict=True):
                assert torch.equal(here[0, 0], there[g, n])
    shorter = draw(sampler, seeds, steps, 2)  # the first sequences of a larger batch
    assert torch.equal(shorter.tokens, together.tokens[:, :, :2])
    assert torch.equal(shorter.target, together.target[:, :, :2])
    assert not torch.equal(together.tokens[0], together.tokens[1]), "two seeds draw the same"
    assert not torch.equal(together.tokens[:, 0], together.tokens[:, 1]), "two steps draw the same"


@pytest.mark.parametrize(
    "model", [ModelConfig(), ModelConfig(residual="normed"), ModelConfig(norm="layernorm", query_in_keys=True)]
)
def test_class_sampler_draws_what_simulate_draws(model: ModelConfig) -> None:
    """Token for token, whatever slots the model's layout keeps."""
    classes = SequenceClasses.syn_medium(3)
    settings = Settings(steps=10, batch_size=16, context=12, sampling="tokens", model=model)
    batches = Batches(make_layout(classes, model, decays=False), settings, np.array([0, 5]), torch.device("cpu"))
    drawn = ClassSampler(classes, context=12)(ints(0, 5), ints(4), 16)
    cls, tokens = batches.tokens(4)
    assert torch.equal(drawn.tokens[:, 0, :, :-1], tokens)
    assert torch.equal(drawn.tokens[:, 0, :, -1], torch.tensor(classes.query)[cls])
    assert torch.equal(drawn.target[:, 0], torch.tensor(classes.next_token)[cls])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_same_data_on_both_devices(name: str) -> None:
    seeds, steps = ints(3, 0, 2**40), ints(0, 7, 1)
    here, there = draw(SAMPLERS[name], seeds, steps, 6), draw(SAMPLERS[name], seeds.cuda(), steps.cuda(), 6)
    for item, other in zip(here, there, strict=True):
        assert torch.equal(item, other.cpu())


def test_mixture_has_its_frequencies() -> None:
    """Classes, contexts and next tokens against their tables (χ², fixed seeds)."""
    p_class = [0.3, 0.7]
    many = mixture(query=[4, 5], p_class=p_class)(ints(1), torch.arange(200), 50)
    tokens, target = many.tokens.reshape(-1, 4).numpy(), many.target.reshape(-1).numpy()
    cls = tokens[:, -1] - 4
    assert stats.chisquare(np.bincount(cls), np.array(p_class) * len(cls)).pvalue > LEAST_P
    for n in range(2):
        context, after = tokens[cls == n, :-1].ravel(), target[cls == n]
        for draws, p in ((context, np.array(P_CONTEXT[n])), (after, np.array(P_NEXT[n]))):
            counts = np.bincount(draws, minlength=6)
            assert not counts[p == 0].any()
            assert stats.chisquare(counts[p > 0], p[p > 0] * len(draws)).pvalue > LEAST_P


def test_next_token_is_drawn_apart_from_the_context() -> None:
    """Two tables of the same numbers would agree if both read the same uniforms."""
    same = MixtureSampler(np.full((1, 4), 0.25), [0], context=2, p_next=np.full((1, 4), 0.25))
    drawn = same(ints(0), torch.arange(100), 40)
    agree = (drawn.tokens[..., 0] == drawn.target).sum().item()
    assert stats.binomtest(agree, 4000, 0.25).pvalue > LEAST_P


def test_soft_labels_are_the_rows_of_the_table() -> None:
    soft = mixture(query=[4, 5], soft=True)(ints(1), ints(0), 30)
    assert soft.soft
    assert not soft.every_position
    np.testing.assert_array_equal(soft.target[0, 0].numpy(), np.array(P_NEXT)[soft.tokens[0, 0, :, -1].numpy() - 4])


def test_tables_may_be_sparse() -> None:
    sparse_tables = mixture(p_context=sparse.csr_array(np.array(P_CONTEXT)), p_next=sparse.csr_array(np.array(P_NEXT)))
    assert sparse_tables.describe() == mixture().describe()


def test_ordered_windows() -> None:
    """Every start equally likely, the target of each position the token after it."""
    stream = np.array([3, 1, 4, 0, 5, 2, 6, 7])
    drawn = OrderedTokens(torch.tensor(stream), context=3, vocab_size=8)(ints(2), torch.arange(100), 50)
    assert drawn.every_position
    assert not drawn.soft
    windows = torch.cat([drawn.tokens, drawn.target[..., -1:]], dim=-1).reshape(-1, 4).numpy()
    assert torch.equal(drawn.tokens[..., 1:], drawn.target[..., :-1])
    start = np.argsort(stream)[windows[:, 0]]
    np.testing.assert_array_equal(windows, stream[start[:, None] + np.arange(4)])
    assert stats.chisquare(np.bincount(start, minlength=5)).pvalue > LEAST_P  # 8 − 3 starts


def test_descriptions_tell_data_apart() -> None:
    """A run is continued only on the same data, so whatever decides the data must show."""
    classes = SequenceClasses.syn_medium(2)
    descriptions = [sampler.describe() for sampler in SAMPLERS.values()]
    descriptions += [
        ClassSampler(classes, context=8).describe(),
        ClassSampler(SequenceClasses.syn_medium(1), context=9).describe(),
        mixture(p_class=[0.3, 0.7]).describe(),
        mixture(query=[4, 5]).describe(),
        mixture(p_next=None, next_token=[1, 1]).describe(),
        OrderedTokens(np.arange(100) % 6, context=5, vocab_size=7).describe(),
        OrderedTokens(np.arange(100) % 7, context=6, vocab_size=7).describe(),
    ]
    assert len(set(descriptions)) == len(descriptions)
    assert ClassSampler(classes, context=9).describe() == descriptions[0]
    assert digest(np.arange(4)) != digest(np.arange(4).reshape(2, 2)) != digest(np.arange(4.0).reshape(2, 2))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        *bad_values(
            context=[1, math.inf], query=[[5, 6], [5]], p_class=[[1.0]], p_next=[[[1.0]]], p_context=[np.zeros((0, 6))],
        ),
        ({"next_token": [1, 2]}, "next_token and p_next"), ({"p_next": None}, "next_token and p_next"),
        ({"p_next": [[1] + [0] * 5, [0.5] + [0] * 5]}, "the sum of P(next|1)"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused(given: dict[str, Any], field: str) -> None:
    with refused(field):
        mixture(**given)


def test_bad_streams_are_refused() -> None:
    with refused("the stream", "of shape (5,)"):
        OrderedTokens(np.arange(5), context=5, vocab_size=5)
    with refused("the stream", 5):
        OrderedTokens(np.arange(6), context=3, vocab_size=5)


class Given:
    """A sampler that returns what it is given."""

    vocab_size = 4

    def __init__(self, sequences: Any) -> None:
        self.sequences = sequences

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        return self.sequences

    def describe(self) -> str:
        return "given"


TOKENS = torch.tensor([0, 1, 3]).expand(1, 2, 5, 3)
LAST = TOKENS[..., 0]
WEIGHT = even(TOKENS)


@pytest.mark.parametrize(
    ("sequences", "field"),
    [
        ((TOKENS, LAST, WEIGHT), ("what the sampler returns", "tuple")),
        (Sequences(TOKENS[0], LAST, WEIGHT), "tokens of the sampler"),
        (Sequences(TOKENS[..., :1], LAST, WEIGHT), "tokens of the sampler"),
        (Sequences(TOKENS + 1, LAST, WEIGHT), ("tokens of the sampler", 4)),
        (Sequences(TOKENS.double(), LAST, WEIGHT), ("tokens of the sampler", "torch.float64")),
        (Sequences(TOKENS, LAST - 1, WEIGHT), ("the target of the sampler", -1)),
        (Sequences(TOKENS, TOKENS - 2, WEIGHT), ("the target of the sampler", -2)),
        (Sequences(TOKENS, LAST.double(), WEIGHT), "the target of the sampler"),
        (Sequences(TOKENS, LAST[0], WEIGHT), "the target of the sampler"),
        (Sequences(TOKENS, torch.full((1, 2, 5, 4), 0.2), WEIGHT), "the sum of the soft target of the sampler"),
        (Sequences(TOKENS, torch.zeros(1, 2, 5, 4), WEIGHT), ("the sum of the soft target of the sampler", 0.0)),
        (Sequences(TOKENS, LAST, WEIGHT[0]), "the weight of the sampler"),
        (Sequences(TOKENS, LAST, WEIGHT * 2), "the sum of the weight of the sampler"),
        (Sequences(TOKENS, LAST, WEIGHT * math.nan), "the weight of the sampler"),
    ],
)
def test_bad_data_are_refused(sequences: Any, field: str) -> None:
    with refused(field):
        draw(Given(sequences), ints(0), ints(0, 1), 5)


def test_every_kind_of_target_is_taken() -> None:
    for target in (LAST, TOKENS, TOKENS.clamp_max(-1), torch.full((1, 2, 5, 4), 0.25), torch.zeros(1, 2, 5, 3, 4)):
        drawn = draw(Given(Sequences(TOKENS, target, WEIGHT)), ints(0), ints(0, 1), 5)
        assert drawn.every_position == (tuple(target.shape[3:]) in {(3,), (3, 4)})
        assert drawn.soft == target.is_floating_point()


def test_the_example_of_own_data() -> None:
    """Its ring is left as often as it says, and begun anywhere."""
    names = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_data.py"), run_name="example")
    tokens, target, _ = draw(names["NoisyRing"](), torch.arange(4), torch.arange(50), 50)
    moved = (target - tokens) % 3
    assert set(moved.unique().tolist()) == {0, 1}
    n = moved.numel()
    assert abs(float(moved.double().mean()) - 0.9) < 4 * (0.9 * 0.1 / n) ** 0.5
    first = torch.bincount(tokens[..., 0].flatten()) / tokens[..., 0].numel()
    assert (first - 1 / 3).abs().max() < 4 * (2 / 9 / tokens[..., 0].numel()) ** 0.5

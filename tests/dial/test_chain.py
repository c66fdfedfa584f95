"""Chains of classes: every position has P(·|n), and what comes after a token is for the context to say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scansnap.dial.chain import ChainSampler
from scansnap.dial.components import Flags
from scansnap.dial.data import Task
from scansnap.sampling.mixture import MixtureSampler

CPU, T = torch.device("cpu"), 24
EVERY = Flags(finite=True, every_position=True)


def sampler(data: str) -> ChainSampler:
    found = Task(EVERY, data, CPU, torch.float64, T).sampler
    assert isinstance(found, ChainSampler)
    return found


@pytest.mark.parametrize("data", ["syn-medium", "zipf", "textbook"])
def test_the_chain_keeps_the_distribution_of_its_class_and_forgets_where_it_began(data: str) -> None:
    chain = sampler(data)
    p, joint = chain.table.p_slot, chain.joint
    np.testing.assert_allclose(joint.sum(2), p, atol=1e-12)  # a token goes on as often as it is there
    np.testing.assert_allclose(joint.sum(1), p, atol=1e-12)  # and is come to as often
    for n in range(len(p)):
        far = np.linalg.matrix_power(joint[n] / p[n][:, None], 100)
        np.testing.assert_allclose(far, np.tile(p[n], (len(far), 1)), atol=1e-6)


@pytest.mark.parametrize("data", ["syn-medium", "textbook"])
def test_every_position_has_the_distribution_of_the_class(data: str) -> None:
    """Frequencies of sampled sequences at each position, within five standard deviations of P(l|n)."""
    chain, classes = sampler(data), Task(EVERY, data, CPU, torch.float64, T).classes
    drawn = chain(torch.arange(8), torch.arange(100), 32)
    tokens, target = (t.reshape(-1, *t.shape[3:]).numpy() for t in (drawn.tokens, drawn.target))
    for n in range(classes.n_classes):
        own = tokens[target == classes.next_token[n]]
        assert (own[:, -1] == classes.query[n]).all()
        expected = classes.p_context[n]
        noise = np.sqrt(expected * (1 - expected) / len(own))
        for place in range(T - 1):
            share = np.bincount(own[:, place], minlength=classes.vocab_size) / len(own)
            assert (np.abs(share - expected) <= 5 * noise).all(), place


def test_what_follows_a_token_is_what_the_joint_distribution_says() -> None:
    chain, classes = sampler("syn-medium"), Task(EVERY, "syn-medium", CPU, torch.float64, T).classes
    drawn = chain(torch.arange(8), torch.arange(100), 32)
    tokens, target = (t.reshape(-1, *t.shape[3:]).numpy() for t in (drawn.tokens, drawn.target))
    own = tokens[target == classes.next_token[2], :-1]
    seen = np.zeros((classes.vocab_size, classes.vocab_size))
    np.add.at(seen, (own[:, :-1], own[:, 1:]), 1)
    slots = chain.slots[2]
    expected = chain.joint[2]
    np.testing.assert_array_equal(seen[np.ix_(slots, slots)] > 0, expected > 0)
    np.testing.assert_allclose(seen[np.ix_(slots, slots)] / seen.sum(), expected, atol=0.003)


def entropies(of: MixtureSampler, joint: np.ndarray) -> tuple[float, float]:
    """Of the token after a common one, in nats: where the class is known, and where it is not."""
    m, common = of.vocab_size, np.unique(of.slots[0])
    common = common[[all(token in row for row in of.slots) for token in common]]
    pairs = np.zeros((len(joint), len(common), m))
    for n, slots in enumerate(of.slots):
        where = np.searchsorted(slots, common)
        pairs[n][:, slots] = joint[n][where]

    def uncertain(p: np.ndarray) -> float:
        after = p / p.sum(-1, keepdims=True)
        return float(-(p * np.log(np.where(after > 0, after, 1.0))).sum() / p.sum())

    return uncertain(pairs), uncertain(pairs.sum(0))


def test_the_class_decides_what_follows_a_common_token() -> None:
    """Independent tokens have the same uncertainty for every token of a class, and little of it is the class's."""
    chain = sampler("syn-medium")
    known, unknown = entropies(chain, chain.joint)
    assert known < 0.8  # about two tokens
    assert unknown - known > 1.2  # e^1.2 times as many where the context is not read
    p = chain.table.p_slot
    known, _ = entropies(chain, p[:, :, None] * p[:, None, :])
    assert known > 2.5


def test_chains_are_for_the_component_with_every_position() -> None:
    for flags in (Flags(finite=True), Flags(finite=True, positions="rope")):
        assert type(Task(flags, "syn-medium", CPU, torch.float64, T).sampler) is MixtureSampler


def test_a_chain_is_the_same_however_it_is_drawn() -> None:
    chain = sampler("syn-medium")
    whole = chain(torch.tensor([3, 5]), torch.arange(4), 6).tokens
    part = chain(torch.tensor([5]), torch.tensor([2]), 4).tokens
    torch.testing.assert_close(whole[1, 2, :4], part[0, 0])

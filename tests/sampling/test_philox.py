"""Philox4x32-10 against the published known answers, and the uniforms made of its words."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats

from scansnap.sampling.philox import WORD, Purpose, philox, uniforms

# counter, key, answer: the kat_vectors file of Random123 (Salmon et al. 2011), philox4x32 with 10 rounds
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
LEAST_P = 1e-4  # of a statistical test; seeds are fixed, so a test that passes always passes


def words(text: str) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(int(word, 16)) for word in text.split())


def shown(numbers: tuple[torch.Tensor, ...]) -> str:
    return " ".join(f"{int(number):08x}" for number in numbers)


def draws(n: int = 20_000, **place: int) -> tuple[np.ndarray, np.ndarray]:
    """``n`` pairs along the last counter, at a place that the keywords change."""
    at = {"seed": 7, "purpose": Purpose.CLASS, "step": 3, "major": 11} | place
    seed, step, major = (torch.tensor(at[name]) for name in ("seed", "step", "major"))
    u, v = uniforms(seed, Purpose(at["purpose"]), step, major, torch.arange(n))
    return u.numpy(), v.numpy()


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    assert shown(philox(words(counter), words(key))) == answer


def test_known_answers_as_one_batch() -> None:
    """Broadcast over tensors, the same words come out."""
    counters, keys = (torch.tensor([[int(w, 16) for w in row[i].split()] for row in KNOWN_ANSWERS]) for i in (0, 1))
    result = philox(tuple(counters.T), tuple(keys.T))
    assert [shown(tuple(row)) for row in torch.stack(result, -1)] == [row[2] for row in KNOWN_ANSWERS]


def test_uniforms_are_53_bits_of_the_words() -> None:
    """The first uniform is the first two words, the second the other two, high word first."""
    seed = 0x299F31D0_24093822  # the key's words, low first; below 2^63
    step, major, minor = 0x13198A2E, 0x85A308D3, 0x243F6A88
    for purpose in Purpose:
        counter = tuple(torch.tensor(word) for word in (minor, major, step, int(purpose)))
        a, b, c, d = (int(w) for w in philox(counter, (torch.tensor(seed & WORD), torch.tensor(seed >> 32))))
        u, v = uniforms(torch.tensor(seed), purpose, *map(torch.tensor, (step, major, minor)))
        assert float(u) == ((a << 32 | b) >> 11) / 2**53
        assert float(v) == ((c << 32 | d) >> 11) / 2**53


def test_uniforms_lie_below_one() -> None:
    """Even the largest words give less than 1, so a draw never falls past the last edge."""
    from scansnap.sampling.philox import _unit

    most, least = torch.tensor(WORD), torch.tensor(0)
    assert float(_unit(most, most)) == 1 - 2.0**-53
    assert float(_unit(least, least)) == 0
    u, v = draws(1_000_000)
    for name, x in (("first", u), ("second", v)):
        assert x.min() >= 0, f"{name}: {x.min()}"
        assert x.max() < 1, f"{name}: {x.max()}"


@pytest.mark.parametrize("purpose", list(Purpose))
def test_uniforms_are_uniform_and_the_two_of_a_pair_independent(purpose: Purpose) -> None:
    u, v = draws(200_000, purpose=purpose)
    for name, x in (("first", u), ("second", v)):
        p = stats.kstest(x, "uniform").pvalue
        assert p > LEAST_P, f"the {name} uniform of {purpose.name} is not uniform: p = {p:.1e}"
    cells = np.histogram2d(u, v, bins=20, range=[[0, 1], [0, 1]])[0].ravel()
    p = stats.chisquare(cells).pvalue
    assert p > LEAST_P, f"the two uniforms of {purpose.name} depend on each other: p = {p:.1e}"
    p = stats.chisquare(np.histogram2d(u[:-1], u[1:], bins=20, range=[[0, 1], [0, 1]])[0].ravel()).pvalue
    assert p > LEAST_P, f"neighbours of {purpose.name} depend on each other: p = {p:.1e}"


PLACES = {
    **{f"purpose {purpose.name}": {"purpose": purpose} for purpose in Purpose},
    "seed 8": {"seed": 8},
    "seed 7 + 2^32": {"seed": 7 + 2**32},  # differs in the upper key word only
    "seed 2^63 - 1": {"seed": 2**63 - 1},
    "step 4": {"step": 4},
    "major 12": {"major": 12},
    "step and major swapped": {"step": 11, "major": 3},
}


@pytest.mark.parametrize(("one", "other"), list(combinations(PLACES, 2)))
def test_different_places_are_independent(one: str, other: str) -> None:
    """Purposes, seeds, steps and samples share no number, and their numbers are jointly uniform."""
    u, v = draws(**PLACES[one])[0], draws(**PLACES[other])[0]
    assert not np.intersect1d(u, v).size, f"{one} and {other} share numbers"
    p = stats.chisquare(np.histogram2d(u, v, bins=10, range=[[0, 1], [0, 1]])[0].ravel()).pvalue
    assert p > LEAST_P, f"{one} and {other} depend on each other: p = {p:.1e}"


def test_largest_counters_stay_exact() -> None:
    """Counters up to 2^32 − 1 are multiplied modulo 2^64, as Python's own integers say."""

    def plain(counter: list[int], key: list[int]) -> list[int]:
        for _ in range(10):
            p0, p1 = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
            counter = [p1 >> 32 ^ counter[1] ^ key[0], p1 % 2**32, p0 >> 32 ^ counter[3] ^ key[1], p0 % 2**32]
            key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
        return counter

    rng = np.random.default_rng(5)
    for _ in range(200):
        numbers = [int(x) for x in rng.choice([0, 1, 2**31, 2**32 - 1, int(rng.integers(2**32))], size=6)]
        result = philox(tuple(torch.tensor(x) for x in numbers[:4]), tuple(torch.tensor(x) for x in numbers[4:]))
        assert [int(x) for x in result] == plain(numbers[:4], numbers[4:]), numbers

"""The drive: B_n of attention that does not move, in closed form and from the response; and where it must fail."""

from dataclasses import replace

import numpy as np
import pytest
from flows import CLASSES, deviation, evolve, flow, with_logits

from scansnap.claims.ours import drive, symmetric
from scansnap.classes import SequenceClasses


def test_it_holds_as_the_memory_vanishes_and_its_error_falls_with_the_ratio() -> None:
    slow, slower = (drive.check(flow("textbook", eta_z)) for eta_z in (0.002, 0.0004))
    assert slow.status == slower.status == "holds"
    assert deviation(slower) < deviation(slow) / 3, "it is the limit η_Z/η_Y → 0"
    assert deviation(slower) < 0.006


def test_at_a_ratio_of_one_it_fails_and_says_that_it_does_not_speak() -> None:
    claim = drive.check(flow("textbook", 0.9))
    assert claim.status == "not applicable"
    assert "weak memory" in claim.reason
    assert claim.observed == "fails"
    assert claim.predicted > 5 * claim.measured


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_another_rate_of_attention_is_no_drive(factor: float) -> None:
    evidence = flow("textbook", 0.002)
    claim = drive.check(with_logits(evidence, factor * evidence.z))
    assert claim.status == "fails"
    assert "B_n" in claim.reason


@pytest.mark.integration
def test_the_response_has_the_closed_form_of_the_family_and_speaks_of_others() -> None:
    evidence = flow("textbook", 0.002)
    t = evidence.response["t"].values
    closed = drive.predict_growth(evidence, t)[1:]
    felt = evidence.response["drive"].values[1:, 0]
    ids = evidence.classes.distinct(1)
    np.testing.assert_allclose(felt[:, ids].sum(-1) / (evidence.f[0, 1, ids] ** 2).sum(), closed[:, 1], rtol=1e-5)
    for name in ("two queries", "three common"):
        assert isinstance(symmetric.find_symmetry(CLASSES[name]), str)
        claim = drive.check(flow(name, 0.0004))
        assert claim.status == "holds", name


def test_where_nothing_moves_or_nothing_is_distinct_it_says_so() -> None:
    apart = SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=0, distinct=3)
    assert drive.check(evolve(apart)).reason == "the distinct tokens' logits do not move"
    alike = SequenceClasses([[0.5, 0.5, 0, 0], [0.2, 0.8, 0, 0]], query=[2, 2], next_token=[2, 3])
    assert drive.check(evolve(alike)).reason == "no class has distinct tokens"
    late = flow("textbook", 0.002)
    cut = replace(late, t=late.t[1:], z=late.z[1:], attention=late.attention[1:], g=None, gap=None)
    assert "not at 0" in drive.check(cut).reason

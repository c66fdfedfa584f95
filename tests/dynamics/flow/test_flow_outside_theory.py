"""Flows that the paper does not speak of are judged by nobody: another norm, a residual connection, half a flow."""

from __future__ import annotations

import pytest

import scansnap as ss

SMALL = ss.SequenceClasses.syn_small()
T = [0, 1, 10, 100, 1000]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"norm": "none"}, "the norm is not l2"),
        ({"norm": "layernorm", "residual": "normed"}, "the norm is not l2"),
        ({"residual": "plain"}, "there is a residual connection"),
        ({"residual": "normed"}, "there is a residual connection"),
    ],
)
def test_other_models_get_no_verdict(options: dict, reason: str) -> None:
    data = ss.flow(SMALL, 1.0, 0.1, T, variables=("attention", "z", "y", "g", "gap"), **options)
    report = ss.verify(data=data)
    assert {(claim.status, claim.reason) for claim in report} == {("not applicable", reason)}


def test_half_a_flow_gets_no_verdict() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(ss.Interrupted) as interrupted:
        ss.flow(SMALL, 1.0, 0.1, T, progress=stop)
    assert {claim.reason for claim in ss.verify(data=interrupted.value.partial)} == {
        "the flow ended before its last time"
    }


@pytest.mark.integration
@pytest.mark.parametrize("attrs", [("stopped",), ("norm", "residual", "field")])
def test_flows_of_older_files_are_judged(attrs: tuple[str, ...]) -> None:
    """They say neither norm nor residual: there was only one of each."""
    data = ss.flow(SMALL, 1.0, 0.1, T, variables=("attention", "z", "g", "gap"))
    there = {claim.name: claim.status for claim in ss.verify(data=data)}
    for name in attrs:
        del data.attrs[name]
    assert {claim.name: claim.status for claim in ss.verify(data=data)} == there
    assert set(there.values()) != {"not applicable"}


@pytest.mark.integration
def test_the_plain_field_gets_the_same_verdicts() -> None:
    reports = [ss.verify(data=ss.flow(SMALL, 1.0, 0.1, T, variables=("attention", "z", "g", "gap"), field=field))
               for field in ("auto", "dense")]  # fmt: skip
    fast, plain = ({claim.name: claim.status for claim in report} for report in reports)
    assert plain == fast

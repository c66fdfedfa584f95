"""The survey as a whole: names, sources, and one report."""

from __future__ import annotations

import pytest

import scansnap as ss
from refusals import refused
from scansnap.claims.survey.run import select_names, statements
from scansnap.claims.survey.statement import SurveyClaim


def test_every_statement_has_its_own_name_a_source_and_a_setting() -> None:
    names = [statement.name for statement in statements()]
    assert len(names) == len(set(names)) >= 10
    assert len({statement.source for statement in statements()}) >= 10
    assert all(statement.setting and statement.text for statement in statements())
    assert all(s.source.read == "our own" or s.source.title for s in statements())
    assert {s.source.short for s in statements() if s.source.title and not s.source.arxiv} == {"ICML 2026 poster 60639"}


def test_what_must_be_among_them() -> None:
    for name in ("joma-integral", "joma-rebound", "joma-linear", "polarisation", "polarisation-l2", "scan-order-adam",
                 "scan-order-sgd", "scan-order-muon", "class-losses-gd", "class-losses-sign", "max-margin", "decay-y",
                 "decay-z", "sink-decay", "retrieval-hard", "retrieval-soft"):  # fmt: skip
        assert select_names((name,)) >= {name}


def test_a_name_or_a_beginning() -> None:
    assert select_names(("decay",)) == {"decay-y", "decay-z"}
    assert select_names(("joma-linear",)) == {"joma-linear"}
    assert select_names(("decay-y", "joma-linear")) == {"decay-y", "joma-linear"}
    assert len(select_names(())) == len(statements())


@pytest.mark.parametrize("name", ["nope", "", "dec", "decay-", "joma-integral-x"])
def test_an_unknown_name_is_one_sentence(name: str) -> None:
    with refused("NAME", names="joma"):
        ss.survey(name)


def test_a_report_with_findings() -> None:
    seen: list[tuple[float, float]] = []
    report = ss.survey("factors-decay", "class", quick=True, progress=lambda *done: seen.append(done[:2]))
    statuses = {claim.name: claim.status for claim in report}
    assert statuses == {"factors-decay": "holds", "class-losses-gd": "holds", "class-losses-sign": "holds",
                        "class-losses-sign-common": "fails"}  # fmt: skip
    assert all(isinstance(claim, SurveyClaim) for claim in report)
    assert seen == [(1, 2), (2, 2)]
    assert "quick" in report.setting

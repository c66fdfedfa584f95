"""The closed forms, the flow and the verdicts beside a run are those of the package."""

from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.checks import InputError
from scansnap.claims.assumptions import overlap_matrix
from scansnap.explorer.live.run import LiveRun
from scansnap.explorer.pages.judging import gather, judge_frames
from scansnap.explorer.pages.predict import Cancelled, c0_of, check_flow, curves, flow_overlay, theory, why_not
from scansnap.explorer.setups.read import read_setup

TEXTBOOK: dict[str, Any] = {"classes": {"preset": "textbook"}, "eta_y": 0.9, "eta_z": 0.02, "momentum": 0.0,
                            "context": "inf", "batch_size": None, "steps": 400}  # fmt: skip
SMALL: dict[str, Any] = {"classes": {"preset": "syn-small"}, "momentum": 0.9}


def test_times_use_the_effective_rates() -> None:
    said = theory(read_setup(SMALL))
    size = {"n_classes": 2, "vocab_size": 34}
    assert said["eta_y"] == pytest.approx(10)
    assert said["t_snap"] == pytest.approx(ss.theory.t_snap(eta_y=10, **size))
    assert said["t_scan"] == pytest.approx(ss.theory.t_scan(eta_y=10, **size))
    assert said["applies"]
    assert {a["name"] for a in said["assumptions"]} >= {"long sequences", "fast decoder", "weak overlap"}


def test_curves_are_the_closed_forms() -> None:
    blueprint = read_setup(TEXTBOOK)
    found = curves(blueprint, 500, 50, c0=2.0)
    rates = {"eta_y": 0.9, "n_classes": 2, "vocab_size": blueprint.classes.vocab_size}
    np.testing.assert_allclose(found["gamma"], ss.theory.gamma(found["t"], **rates))
    b = ss.theory.growth(found["t"], eta_z=0.02, c0=2.0, **rates)
    np.testing.assert_allclose(found["growth"], [0.5 * b, 0.5 * b])
    lower, upper = ss.theory.chi(found["t"], eta_z=0.02, c0=2.0, f_dominant=1.0, **rates)
    np.testing.assert_allclose(found["chi_upper"][0], 0.5 * np.log(upper))
    np.testing.assert_allclose(lower, upper)
    assert found["t"][0] == 0
    assert found["t"][-1] == 500


def test_growth_is_shared_by_the_classes_of_a_query() -> None:
    """As the claims predict it: (p_n/P) ¼ ln(1 + 4PΓ/C₀), P the probability of the query's classes."""
    blueprint = read_setup({**TEXTBOOK, "classes": {"preset": "syn-medium", "n_queries": 3}, "eta_z": 1.0})
    found = curves(blueprint, 500, 50, c0=0.1)
    rates = {"eta_y": 0.9, "n_classes": 6, "vocab_size": blueprint.classes.vocab_size}
    reach = ss.theory.gamma_integral(found["t"], eta_z=1.0, **rates) / 3 / 0.1
    np.testing.assert_allclose(found["growth"][4], 0.5 * np.log1p(4 * reach) / 4)


def test_c0_comes_from_the_overlaps() -> None:
    classes = ss.SequenceClasses.syn_small()
    rho = overlap_matrix(classes)[0, 1]
    assert c0_of(classes) == pytest.approx(1 / rho**2)
    assert c0_of(ss.SequenceClasses.synthetic(common=0)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [({"optimizer": "adam"}, "optimiser"), ({"norm": "none"}, "norm"), ({"residual": "plain"}, "residual"),
     ({"heads": 2}, "heads"), ({"weight_decay": 0.1}, "weight decay"), ({"eta_z": 0.0}, "rate is 0"),
     ({"init": "uniform"}, "start from Y = Z = 0"), ({"optimizer": {"clip": 0.1}}, "clipped"),
     ({"optimizer": {"z": {"schedule": "cosine"}}}, "schedule"), ({}, "")],
)  # fmt: skip
def test_where_the_theory_does_not_speak_it_says_why(change: dict[str, Any], words: str) -> None:
    reason = why_not(read_setup({**SMALL, **change}))
    assert words in reason
    assert bool(words) == bool(reason)


def test_the_overlay_is_the_flow() -> None:
    blueprint = read_setup({**SMALL, "momentum": 0.5, "eta_z": 0.1})
    found = flow_overlay(blueprint, 100, 20, stop=lambda: False)
    data = ss.flow(blueprint.classes, eta_y=2.0, eta_z=0.2, t=found["t"])
    np.testing.assert_allclose(found["loss"], data.loss, rtol=1e-3)
    np.testing.assert_allclose(found["attention"][1][15], data.attention[:, 1, 25], rtol=1e-4)
    np.testing.assert_allclose(found["z"][0][0], data.z[:, 0, 0], rtol=1e-3, atol=1e-6)
    assert len(found["growth"]) == len(found["log_chi"]) == len(found["entropy"]) == 2


def test_the_response_is_that_of_the_package_as_far_as_it_is_trusted() -> None:
    blueprint = read_setup(TEXTBOOK)
    found = flow_overlay(blueprint, 400, 20, stop=lambda: False, by="response")
    data = ss.response(blueprint.classes, eta_y=0.9, eta_z=0.02, t=found["t"])
    np.testing.assert_allclose(found["z"][0][0], data.z[:, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(found["growth"][1], data.growth[:, 1], rtol=1e-6)
    assert found["trusted_until"] == np.inf
    flow = flow_overlay(blueprint, 400, 20, stop=lambda: False)
    np.testing.assert_allclose(found["entropy"], flow["entropy"], rtol=1e-4)
    assert flow["trusted_until"] is None
    strong = flow_overlay(
        read_setup({**SMALL, "momentum": 0.0, "eta_z": 5.0}), 2000, 50, stop=lambda: False, by="response"
    )
    assert strong["t"][-1] <= strong["trusted_until"] < 2000


def test_the_overlay_stops_when_asked() -> None:
    blueprint = read_setup(SMALL)
    with pytest.raises(Cancelled):
        flow_overlay(blueprint, 100, 20, stop=lambda: True)


@pytest.mark.parametrize("change", [{"optimizer": "adam"}, {"init": "uniform"}, {"eta_y": 0.0}])
def test_no_flow_without_the_papers_model(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        check_flow(read_setup({**SMALL, **change}))


def kept(setup: dict[str, Any]) -> tuple[LiveRun, np.ndarray, np.ndarray]:
    live = LiveRun(read_setup(setup))
    while not live.over:
        live.advance(10**9)
    return live, *live.tables.after(-1)


@pytest.mark.parametrize("setup", [TEXTBOOK, {**SMALL, "steps": 150}], ids=["textbook", "small"])
def test_verdicts_on_frames_are_verdicts_on_the_trajectory(setup: dict[str, Any]) -> None:
    live, steps, rows = kept({**setup, "classes": {"preset": "synthetic", "common": 1, "distinct": 3, "unused": 60}})
    which = np.unique(np.linspace(0, len(steps) - 1, 30).astype(int))
    options = {k: v for k, v in live.blueprint.setup.items() if k not in ("classes",)}
    options["context"] = float(options["context"])
    if options["context"] == 128:
        options["context"] = 128
    data = ss.simulate(live.classes, record=steps[which].tolist(), device="cpu", **options,
                       variables=("attention", "z", "y"))  # fmt: skip
    expected = {claim.name: claim for claim in ss.verify(data=data)}
    found = judge_frames(live.blueprint, [], steps[which], rows[which])["claims"]
    assert {claim["name"] for claim in found} == set(expected)
    for claim in found:
        other = expected[claim["name"]]
        if claim["name"] not in ("lemma-1", "conservation-y"):  # judged at fewer tables here
            assert claim["status"] == other.status, claim["name"]
        if other.name.startswith(("theorem", "lemma-4")) and other.measured is not None:
            assert claim["measured"] == pytest.approx(other.measured, rel=1e-3, abs=1e-6), claim["name"]


def test_gradients_from_compact_tables_are_those_of_full_ones() -> None:
    from scansnap.claims.evidence import from_trajectory

    live, steps, rows = kept({**SMALL, "steps": 40})
    data = ss.simulate(live.classes, eta_y=1.0, eta_z=1.0, momentum=0.9, steps=40, device="cpu",
                       record=steps.tolist(), variables=("attention", "z", "y"))  # fmt: skip
    full, compact = from_trajectory(data, live.classes), gather(live.blueprint, steps, rows)
    np.testing.assert_allclose(compact.g, full.g, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(compact.z, full.z)
    np.testing.assert_allclose(compact.gap, full.gap, rtol=1e-5, atol=1e-6)


def test_not_applicable_says_why() -> None:
    live, steps, rows = kept({**SMALL, "steps": 30, "optimizer": "adam"})
    adam = judge_frames(live.blueprint, [], steps, rows)["claims"]
    assert {c["status"] for c in adam} == {"not applicable"}
    assert all("optimiser" in c["why"] for c in adam)
    live, steps, rows = kept({**SMALL, "steps": 30})
    changed = judge_frames(live.blueprint, [{"step": 5, "eta_y": 2.0, "eta_z": 1.0}], steps, rows)["claims"]
    assert all("changed on the way, at step 5" in c["why"] for c in changed)
    failed = judge_frames(live.blueprint, [], steps, rows, failed_step=17)["claims"]
    early = judge_frames(
        live.blueprint, [{"step": 5, "eta_y": 2.0, "eta_z": 1.0}], steps, rows, failed_step=17, until=4
    )
    assert all("only 5 steps" in c["why"] for c in early["claims"]), "what came later is left out"
    assert {(c["status"], c["why"]) for c in failed} == {("not applicable", "the run became non-finite at step 17")}
    assert all("only 3 steps" in c["why"] for c in judge_frames(live.blueprint, [], steps[:3], rows[:3])["claims"])
    assert len({c["name"] for c in adam}) == len(adam) == len(judge_frames(live.blueprint, [], steps, rows)["claims"])


def test_claims_say_of_which_kind_they_are():
    from scansnap.claims.claim import Statement
    from scansnap.explorer.pages.judging import _as_json

    judged = Statement("a", "A", "a statement", "identity").judge(
        quantity="q", measured=1.0, predicted=1.0, deviation=0.9, tolerance=1.0, interval=(0.5, 2.0)
    )
    found = _as_json(judged)
    assert (found["kind"], found["status"]) == ("identity", "undecided")


def test_where_a_statement_says_nothing_there_is_a_set_up_of_which_it_speaks() -> None:
    """Each set-up that is offered, run far enough and judged: what led there applies."""
    from scansnap.claims.registry import by_claim
    from scansnap.explorer.pages.applies import COMMANDS, TEXTBOOK, where

    adam, steps, rows = kept({**SMALL, "steps": 30, "optimizer": "adam"})
    silent = judge_frames(adam.blueprint, [], steps, rows)["claims"]
    by_setup: dict[str, list[str]] = {}
    for claim in silent:
        assert claim["where"] == where(claim["name"])
        if claim["where"] is not None:
            by_setup.setdefault(repr(claim["where"]), []).append(claim["name"])
    assert sum(map(len, by_setup.values())) == len(silent) - len(COMMANDS)
    assert repr(TEXTBOOK) in by_setup
    for names in by_setup.values():
        live, steps, rows = kept({**(where(names[0]) or {}), "steps": 340})  # 10 t₀
        some = np.unique(np.linspace(0, len(steps) - 1, 40).astype(int))
        evidence = gather(live.blueprint, steps[some], rows[some])
        found: dict[str, Any] = {}
        for check in {by_claim()[name] for name in names}:
            judged = check(evidence)
            found |= {c.name: c for c in (judged if isinstance(judged, list) else [judged])}
        assert {name: found[name].why for name in names if found[name].status == "not applicable"} == {}

"""The study of the query/key rate: its rule of equal loss, its arms on a tiny text, and dropped keys."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from scansnap.paper.report import targets
from scansnap.paper.shared import job_pool
from scansnap.paper.shared.language_models import TextSplits
from scansnap.paper.studies.lever import exact, runs, training
from scansnap.paper.studies.lever.arms import (
    ALLOWED,
    ARMS_OF,
    BASE,
    HIGH,
    LOW,
    NO_CHANGE,
    RECIPES,
    Arm,
    arms,
    ratios_of,
)
from scansnap.paper.studies.lever.equal_loss import common_loss, keys_needed, read_at
from scansnap.paper.studies.lever.findings import OWN_RATE, exact_rows, findings, flow_rows, language_rows
from scansnap.paper.studies.lever.study import draw
from scansnap.paper.studies.lever.training import KEY_COUNTS, KeepKeys, LeverRun, LeverScale

pytest.importorskip("transformers")
SCALE = LeverScale(width=16, heads=2, length=17, batch=4, watched=4, measurements=3)


def stream(n: int = 2_000, words: int = 20) -> np.ndarray:
    """Pairs of words that follow each other."""
    first = np.random.default_rng(0).integers(0, words // 2, n)
    return np.stack([first, first + words // 2], 1).ravel().astype(np.int64)


TEXT = TextSplits(stream(), stream(200), stream(150))


def job(arm: Arm = BASE, ratio: float = 1.0, **changes) -> LeverRun:
    return replace(LeverRun(arm, ratio, 1e-2, 0, 4, SCALE, 20, watch=True), **changes)


def test_equal_loss_is_what_all_runs_reach():
    fast, slow = np.array([4.0, 2.0, 1.0]), np.array([4.0, 3.0, 2.5])
    assert common_loss([fast, slow]) == 2.5
    curves = {"x": np.array([0.0, 1.0, 2.0]), "kept": np.arange(6.0).reshape(3, 2)}
    at = read_at(fast, 2.5, curves)
    assert at["x"] == 0.75
    assert at["kept"].tolist() == [1.5, 2.5]
    assert read_at(slow, 2.5, curves)["x"] == 2
    assert np.isnan(read_at(slow, 2.4, curves)["x"]), "never there"
    assert np.isnan(common_loss([fast, np.array([4.0, 3.9, 3.8])])), "too little in common"
    assert np.isnan(common_loss([fast, np.full(3, np.inf)])), "diverged"


def test_keys_needed():
    kept = (1, 2, 4)
    assert keys_needed(kept, np.array([0.0, 0.0, 0.0]), ALLOWED) == 1
    assert keys_needed(kept, np.array([0.03, 0.0, 0.0]), 0.01) == pytest.approx(2 ** (2 / 3))
    assert keys_needed(kept, np.array([0.0, 0.03, 0.0]), 0.01) > 2, "a lucky small number does not count"
    assert keys_needed(kept, np.array([1.0, 1.0, 1.0]), 0.01) == np.inf
    assert np.isnan(keys_needed(kept, np.array([1.0, 1.0, np.nan]), 0.01))


@pytest.mark.parametrize("arm", {**ARMS_OF}.values(), ids=lambda arm: arm.name)
def test_every_arm_trains(arm):
    """Also what the quick study does not run: Muon, QK-norm, and the recipes."""
    record = training.run(job(arm, 1.0 if arm.recipe else 4.0, eta=1e-2), TEXT)
    assert record["steps"] == [0, 1, 2, 4]
    assert np.isfinite(record["loss"]).all()
    if arm.control != "shuffled":  # nothing but frequencies to learn, in four steps
        assert record["loss"][-1] < record["loss"][0]
    assert np.shape(record["kept"]) == (4, len(KEY_COUNTS))
    assert min(record["largest_logit"]) >= 0
    assert record["entropy"][-1] != record["entropy"][0]


def test_a_run_is_repeated_and_the_ratio_matters():
    first, again = (training.run(job(), TEXT) for _ in range(2))
    assert first["loss"] == again["loss"]
    assert first["entropy"] == again["entropy"]
    faster = training.run(job(ratio=8.0), TEXT)
    assert faster["entropy"][0] == first["entropy"][0]
    assert faster["entropy"][-1] != first["entropy"][-1]


def test_all_keys_are_no_restriction_and_one_key_is():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 5, 4, generator=generator) for _ in range(3))
    whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with KeepKeys(5):
        torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v, is_causal=True), whole)
    with KeepKeys(1):
        one = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    best = (q @ k.mT).masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf).argmax(-1)
    torch.testing.assert_close(one, v.gather(2, best[..., None].expand(-1, -1, -1, 4)))
    with KeepKeys(None) as full:
        assert torch.equal(F.scaled_dot_product_attention(q, k, v, is_causal=True), whole)
    visible = (q @ k.mT / 2).abs().masked_fill(~torch.ones(5, 5).tril().bool(), 0)
    assert full.largest == pytest.approx(float(visible.max()))


def test_the_update_norm_of_the_control_is_that_of_ratio_one():
    lengths = {}
    for name, arm, ratio in (("one", BASE, 1.0), ("free", BASE, 8.0), ("held", replace(BASE, control="norm"), 8.0)):
        run = job(arm, ratio, steps=1)
        model = training.build(run)
        before = [p.detach().clone() for p in model.parameters()]
        for _ in training.updates(run, model, training.Windows(TEXT.train, SCALE.batch, SCALE.length)):
            pass
        moved = [p.detach() - b for p, b in zip(model.parameters(), before, strict=True)]
        lengths[name] = sum(float(change.square().sum()) for change in moved)
    assert lengths["held"] == pytest.approx(lengths["one"], rel=1e-4)
    assert lengths["free"] > 1.5 * lengths["one"]


def table_of(slope: dict[str, float], noise: float = 0.01, quick: bool = True):
    """Rows whose entropy has a slope in the logarithm of the ratio, by arm."""
    rng, records = np.random.default_rng(1), {}
    for arm in arms(quick):
        for seed in range(5):
            for ratio in ratios_of(arm):
                end = 2 + slope.get(arm.role + arm.control, 0.0) * np.log(ratio) + noise * rng.normal()
                records[arm, ratio, seed] = {
                    "steps": np.array([0, 1, 2]), "loss": np.array([4.0, 2.0, 1.0]),
                    "entropy": np.array([3.0, end, end]), "support": np.exp([3.0, end, end]),
                    "largest_logit": np.array([1.0, 5.0, 5.0 * ratio]), "kept": np.zeros((3, len(KEY_COUNTS))),
                }  # fmt: skip
    return language_rows(records)


def test_verdicts_follow_the_numbers():
    verdict = {f.says: f.verdict for f in findings(table_of({"qk": -0.2, "qknorm": -0.2, "mlp": 0.01}))}
    assert verdict["Attention entropy falls with the query/key rate, at equal loss"] == "agrees"
    assert verdict["The MLP rate moves entropy by less than the query/key rate"] == "agrees"
    assert verdict[f"The MLP rate does not move entropy (by more than {NO_CHANGE:g} nats)"] == "agrees"
    opposite = {f.says: f.verdict for f in findings(table_of({"qk": 0.2, "mlp": -0.5, "qkshuffled": 0.5}))}
    assert opposite["Attention entropy falls with the query/key rate, at equal loss"] == "disagrees"
    assert opposite["The MLP rate moves entropy by less than the query/key rate"] == "disagrees"
    quiet = findings(table_of({}, noise=0.5))
    assert quiet[0].verdict == "undecided"


@pytest.mark.parametrize(("slope", "verdict"), [(0.1, "agrees"), (-0.1, "disagrees")])
def test_verdicts_of_the_full_study(slope, verdict):
    """The value/output rate, each ratio at its own rate, and longer runs are judged by their own rows."""
    table = table_of({"vo": slope, "qk": -0.2}, quick=False)
    own = table_of({"qk": -2 * slope}, quick=False)
    rated = [arm.name for arm in arms(False) if runs.has_own_rates(arm)]
    judged = findings(pd.concat([table, own[own.case.isin(rated)].assign(kind=OWN_RATE)]))
    by_name = {f.says: f for f in judged}
    assert by_name["Attention entropy rises with the value/output rate, at equal loss"].verdict == verdict
    at_own = by_name["Attention entropy falls with the query/key rate, each ratio at its own best base rate"]
    assert (at_own.verdict, at_own.of) == (verdict, len(rated))
    falls = by_name["Attention entropy falls with the query/key rate, at equal loss"]
    assert falls.of == len([arm for arm in arms(False) if arm.role == "qk" and not arm.control and not arm.recipe])
    assert sum(f.of for f in judged if f.cases == "recipes") == len(RECIPES)


def test_the_exact_model_follows_the_flow(monkeypatch):
    """In small steps at equal loss; a flow at another ratio does not fit."""
    monkeypatch.setattr(exact, "STEPS", 60)
    ratios = (LOW, 1.0, HIGH)
    monkeypatch.setattr(exact, "RATIOS", ratios)
    record = exact.train_case(exact.SMALL, 2)
    rows = exact_rows({exact.SMALL: record}, ratios)
    losses = rows[rows.ratio == LOW].loss_equal.tolist()
    flow = flow_rows(exact.flow_curve(1.0, ratios), ratios, losses)
    off = rows.entropy_equal.to_numpy().reshape(2, 3) - flow.entropy_equal.to_numpy().reshape(2, 3)
    assert np.abs(off).max() < 0.005
    swapped = rows.entropy_equal.to_numpy().reshape(2, 3) - flow.entropy_equal.to_numpy().reshape(2, 3)[:, ::-1]
    assert np.abs(swapped).max() > 0.01


def test_base_rates_belong_to_the_arms():
    assert replace(BASE, role="mlp").rated_as == BASE
    assert {arm.rated_as for arm in arms(True)} <= set(arms(True))
    assert all(recipe.rated_as == recipe for recipe in RECIPES)
    assert len({arm.name for arm in arms(False)}) == len(arms(False))
    assert "lever" in targets.TARGETS
    assert "lever" not in targets.GROUPS["all"]


@pytest.mark.integration
def test_the_whole_study(effort, monkeypatch, tmp_path):
    from scansnap.paper.studies import lever

    monkeypatch.setattr(runs, "SIZE", {"max_words": 30, "steps": 3, "seeds": 2, "valid_tokens": 200})
    monkeypatch.setattr(runs, "SCALE", SCALE)
    monkeypatch.setattr(job_pool, "count_processes", lambda device: 1)
    monkeypatch.setattr(exact, "STEPS", 4)
    calls = []
    computed = lever.compute(replace(effort, quick=True, cache_folder=tmp_path / "runs"), lambda *at: calls.append(at))
    assert calls[-1][0] == calls[-1][1]
    assert set(computed.table.kind) == {"lm", "exact", "flow"}
    assert all(finding.of for finding in computed.findings)
    assert draw(computed).axes

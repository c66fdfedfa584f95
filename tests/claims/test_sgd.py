"""Regime maps by SGD: against the flow where they must agree and where they must not, and continued after a stop."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from local_pool import LocalPool
from refusals import refused
from scansnap import processes
from scansnap.claims import regime_map_sgd as sgd
from scansnap.claims.claim import Statement
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.regime_map import MAPPED, MapAxis, MapLayout, MapPoint, _point
from scansnap.claims.regime_map_sgd import SgdRuns, map_cache, sgd_map
from scansnap.claims.registry import Check
from scansnap.measure.comparison import mean_interval
from scansnap.plots import regime_map as figure
from scansnap.plots.style import save_figure

SMALL = MapPoint(vocab_size=200)
DESCENT = SgdRuns(seeds=1, batch_size=None, context=math.inf)  # the flow in steps of 1


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(processes, "ProcessPoolExecutor", LocalPool)


def layout(theorem: str = "theorem-3", x: str = "ratio=2:100:log", n: int = 2, base: MapPoint = SMALL) -> MapLayout:
    return MapLayout.of(theorem, MapAxis.parse(x, n), MapAxis.parse("overlap=0.5:0.8", n), base)


def test_settings_that_differ_in_attention_s_rate_are_one_simulation():
    found = sgd.plan_groups(layout(n=5), SgdRuns())
    assert [len(group.points) for group in found] == [5] * 5  # one for each overlap
    assert {place for group in found for place in group.indices} == {(i, j) for i in range(5) for j in range(5)}
    for group in found:
        assert len({replace(point, ratio=1.0) for point in group.points}) == 1
    many = sgd.plan_groups(layout(n=5), SgdRuns(seeds=400))
    assert max(len(group.points) for group in many) == 2  # no more than a thousand runs at once
    rates = sgd.plan_groups(layout(x="eta_y=0.5:0.9", n=2), SgdRuns())
    assert len(rates) == 4  # other rates of the decoder are other lengths
    assert rates[0].steps > rates[1].steps


def test_the_evidence_is_that_of_a_whole_trajectory():
    """z, attention, g and the gap from a few rows of Y are those from all of it, in float32's digits."""
    point, training = MapPoint(vocab_size=20, ratio=3.0, overlap=0.6), SgdRuns(seeds=2, batch_size=16, context=30)
    group = sgd.MapGroup(((0, 0),), (point,))
    steps, z, y = sgd.train_group(group, training, "cpu")[0]
    data = ss.simulate(
        point.classes(), eta_y=point.eta_y, eta_z=point.eta_y / 3, seed=1, steps=group.steps, batch_size=16,
        context=30, record=steps.tolist(), variables=("attention", "z", "y"), device="cpu",
    )  # fmt: skip
    wanted = from_trajectory(data, point.classes())
    found = sgd._evidence(point.classes(), point, training, steps, z[1], y[1])
    assert found.sampled
    assert (found.source, found.context) == (wanted.source, wanted.context)
    assert wanted.g is not None
    assert wanted.gap is not None
    assert np.abs(wanted.z).max() > 0.01
    used = np.flatnonzero(point.classes().p_context.any(0))
    assert found.z.shape[-1] == used.max() + 1 < 20  # tokens that are in no context are left out
    for name in ("t", "z", "attention", "g", "gap"):
        right = getattr(wanted, name)
        right = right[..., : used.max() + 1] if name in ("z", "attention", "g") else right
        np.testing.assert_allclose(getattr(found, name), right, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("theorem", MAPPED)
def test_tokens_of_no_context_may_be_left_out(theorem):
    """Every theorem's claims say the same of evidence with all M tokens as of that with those of a context."""
    point, training = replace(SMALL, ratio=20.0), SgdRuns(seeds=2, batch_size=8, context=64)
    few = sgd._evidence(
        point.classes(), point, training, *_first(sgd.train_group(sgd.MapGroup(((0, 0),), (point,)), training, "cpu"))
    )
    pad = [(0, 0), (0, 0), (0, SMALL.vocab_size - few.z.shape[-1])]
    whole = replace(few, **{name: np.pad(getattr(few, name), pad) for name in ("z", "attention", "g")})
    found, wanted = (sgd.BUILT_IN[theorem].judge(evidence) for evidence in (few, whole))
    pairs = zip(found, wanted, strict=True) if isinstance(found, list) else [(found, wanted)]
    for one, other in pairs:
        assert (one.name, one.status) == (other.name, other.status)
        if other.margin is not None:
            assert one.margin == pytest.approx(other.margin, rel=1e-6, abs=1e-9)


def _first(runs):
    steps, z, y = runs[0]
    return steps, z[0], y[0]


def test_without_noise_the_map_is_the_flow_s():
    """Gradient descent in small steps against the exact flow: the same verdicts, margins alike."""
    setting = layout(base=replace(SMALL, eta_y=0.2))
    data = sgd_map(setting, DESCENT, device="cpu")
    assert data.sizes["claim"] == 4
    signs = set()
    for (i, j), point in setting.points.items():
        margins, _ = _point("theorem-3", point)
        for name, margin in margins.items():
            found = float(data.margin.sel(claim=name)[i, j])
            assert found == float(data.low.sel(claim=name)[i, j]) == float(data.high.sel(claim=name)[i, j])
            assert abs(found - max(margin, sgd.FLOOR)) < 0.05, (name, i, j, found, margin)
            signs.add(bool(found >= 0))
    assert signs == {True, False}, "the map has one colour: nothing was compared"


def test_short_sequences_in_small_batches_part_from_the_flow():
    """Two sequences of ten tokens a step: the identity of Theorem 3 fails surely where the flow has it."""
    setting = layout(x="ratio=50:100")
    data = sgd_map(setting, SgdRuns(seeds=6, batch_size=2, context=10), device="cpu").sel(claim="theorem-3-identity")
    flow = [_point("theorem-3", point)[0]["theorem-3-identity"] for point in setting.points.values()]
    assert min(flow) > 0.5
    assert (data.high < 0).all()
    assert (data.low <= data.margin).all()
    assert (data.margin <= data.high).all()


def test_signs_are_judged_on_all_seeds_together():
    """Theorem 2(a) by SGD: the interval is that of its own test, as verify gives it, not of a mean of margins."""
    point, training = replace(SMALL, ratio=5.0, overlap=0.7), SgdRuns(seeds=6, batch_size=32, context=64)
    run = sgd.train_group(sgd.MapGroup(((0, 0),), (point,)), training, "cpu")[0]
    numbers, _ = sgd.judge_point("theorem-2", point, training, *run)
    one = sgd._evidence(point.classes(), point, training, run[0], run[1][0], run[2][0])
    seeds = [sgd._evidence(point.classes(), point, training, run[0], *zy).z for zy in zip(*run[1:], strict=True)]
    pooled = {claim.name: claim for claim in sgd.BUILT_IN["theorem-2"].judge(replace(one, z_seeds=np.stack(seeds)))}
    claim = pooled["theorem-2a"]
    assert claim.interval is not None
    assert numbers["theorem-2a"]["margin"] == max(claim.margin, sgd.FLOOR)
    assert numbers["theorem-2a"]["high"] == 1 - claim.interval[0] / claim.tolerance
    verdict = "holds" if numbers["theorem-2a"]["low"] >= 0 else "fails" if numbers["theorem-2a"]["high"] < 0 else ""
    assert verdict == claim.observed.replace("undecided", "")


def test_the_interval_is_over_seeds_and_one_bad_seed_counts_once(monkeypatch):
    rule = Statement("how-far", "ours", "z ends at 0.")
    ends = iter([0.2, 0.4, 0.3, 0.1, 0.2, 50.0])

    def check(evidence):
        return rule.judge(quantity="", measured=0, predicted=0, deviation=next(ends), tolerance=1.0)

    monkeypatch.setitem(sgd.BUILT_IN, "theorem-3", Check("theorem-3", check))
    training = SgdRuns(seeds=6, batch_size=2, context=4)
    run = (np.arange(3), np.zeros((6, 3, 11)), np.zeros((6, 3, 11, 3)))
    numbers, _ = sgd.judge_point("theorem-3", SMALL, training, *run)
    wanted = mean_interval(np.array([0.8, 0.6, 0.7, 0.9, 0.8, -1.0]))
    assert tuple(numbers["how-far"][name] for name in ("margin", "low", "high")) == pytest.approx(wanted)
    assert wanted[1] < 0 < wanted[2]


def test_one_seed_alone_decides_nothing(monkeypatch):
    rule = Statement("how-far", "ours", "z ends at 0.")
    told = iter([0.2])

    def check(evidence):
        off = next(told, None)
        return rule.not_applicable("") if off is None else rule.judge(
            quantity="", measured=0, predicted=0, deviation=off, tolerance=1.0)  # fmt: skip

    monkeypatch.setitem(sgd.BUILT_IN, "theorem-3", Check("theorem-3", check))
    run = (np.arange(3), np.zeros((6, 3, 11)), np.zeros((6, 3, 11, 3)))
    numbers, _ = sgd.judge_point("theorem-3", SMALL, SgdRuns(seeds=6, batch_size=2, context=4), *run)
    assert numbers == {"how-far": {"margin": pytest.approx(0.8), "low": -math.inf, "high": math.inf}}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"seeds": 1}, "seeds"),
        ({"batch_size": 0}, "batch_size"),
        ({"context": 1}, "context"),
    ],
)
def test_bad_trainings_are_refused(options, field):
    with refused(field):
        SgdRuns(**options)


# --- stopped and continued -----------------------------------------------------------------------------------------


def test_a_stopped_map_is_continued_to_the_same_numbers(tmp_path, monkeypatch):
    setting, training = layout(n=3), SgdRuns(seeds=2, batch_size=4, context=8)
    whole = sgd_map(setting, training, device="cpu")

    def stop(done: int, total: int) -> None:
        if done >= 2 * 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sgd_map(setting, training, device="cpu", cache=map_cache(tmp_path / "m", setting, training), progress=stop)
    cache = map_cache(tmp_path / "m", setting, training)
    assert sgd.load_finished(cache, 3).keys() == {0, 1}
    missing, seconds = sgd.estimate_work(setting, training, cache, device="cpu")
    assert missing == 3 * 2
    assert seconds > 0
    made, seen = [], []
    train = sgd.train_group
    monkeypatch.setattr(sgd, "train_group", lambda group, *rest: made.append(group) or train(group, *rest))
    again = sgd_map(setting, training, device="cpu", cache=cache, progress=lambda *told: seen.append(told))
    assert made == sgd.plan_groups(setting, training)[2:]
    assert seen == [(12, 18), (18, 18)]
    assert again.identical(whole)
    piece = tmp_path / "m" / "group-1"
    piece.write_bytes(piece.read_bytes()[:200])  # half a file is no file
    assert 1 not in sgd.load_finished(map_cache(tmp_path / "m", setting, training), 3)
    cache.discard()
    assert not (tmp_path / "m").exists()


def test_another_map_s_work_is_not_taken_for_this_one_s(tmp_path):
    setting, training = layout(), SgdRuns(seeds=2)
    judged = [[{"a": {"margin": math.nan}}, True]]
    map_cache(tmp_path / "m", setting, training).put("group-0", {"judged": judged})
    assert repr(sgd.load_finished(map_cache(tmp_path / "m", setting, training), 1)) == repr({0: judged})
    for other in ((layout("theorem-1"), training), (layout(n=3), training), (setting, SgdRuns(seeds=3))):
        with refused("the folder with unfinished work"):
            map_cache(tmp_path / "m", *other)
    map_cache(tmp_path / "m", setting, SgdRuns(seeds=3), overwrite=True)
    assert not (tmp_path / "m").exists()


# --- beside the flow's ---------------------------------------------------------------------------------------------


def test_both_maps_are_drawn_and_the_coarser_one_is_read_between_its_points(tmp_path):
    """Over ln ratio and overlap a plane stays a plane; hatching where the interval has 0 in it."""

    def plane(n: int, spread: float):
        setting = MapLayout.of(
            "lemma-3", MapAxis.parse("ratio=1:100:log", n), MapAxis.parse("overlap=0.1:0.5", n), SMALL
        )
        found = {
            place: {"lemma-3": {"margin": m, "low": m - spread, "high": m + spread}}
            for place, point in setting.points.items() for m in [0.8 * np.log10(point.ratio / 10) + point.overlap - 0.3]
        }  # fmt: skip
        return setting.dataset(found, dict.fromkeys(found, False)).assign_attrs(sgd="2 seeds")

    fine, coarse = plane(9, 0.3), plane(3, 0.0)
    both = sgd.add_flow_margins(fine, coarse)
    np.testing.assert_allclose(both.flow_margin, both.margin, atol=1e-9)
    drawn = figure.draw_both(both, coarse)
    above, below = drawn.axes[:2]
    assert "exact flow" in above.get_title()
    assert "2 seeds" in below.get_title()
    assert len(below.collections) == len(above.collections) + 2  # the hatching and the flow's dashed edge
    save_figure(drawn, tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5000

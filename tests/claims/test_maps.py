"""Regime maps: the axes people write, the settings behind the points, and a small map."""

import os
import signal

import numpy as np
import pytest

from local_pool import LocalPool
from refusals import refused
from scansnap import processes
from scansnap.claims import regime_map as maps
from scansnap.claims.assumptions import check_assumptions, overlap_matrix
from scansnap.claims.regime_map import MapAxis, MapPoint, regime_map
from scansnap.plots import regime_map as figure
from scansnap.plots.style import save_figure


def test_axes_as_people_write_them():
    ratio = MapAxis.parse("ratio=1:1000:log", 4)
    np.testing.assert_allclose(ratio.values, [1, 10, 100, 1000])
    assert ratio.log
    overlap = MapAxis.parse("overlap=0.1:0.5", 3)
    np.testing.assert_allclose(overlap.values, [0.1, 0.3, 0.5])
    assert not overlap.log
    assert MapAxis.parse("n_classes=2:4", 30).values == (2, 3, 4)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("speed=1:2", "the axis"),
        ("ratio=1", "the axis ratio"),
        ("ratio=1:b", "the axis ratio"),
        ("ratio=5:1", "the high end of ratio"),
        ("ratio=0:1:log", "the low end of ratio"),
        ("overlap=0.1:1.5", "the high end of overlap"),
        ("ratio=1:10:cubic", "the axis ratio"),
        ("n_classes=1:4", "the low end of n_classes"),
    ],
)
def test_bad_axes(text, field):
    with refused(field):
        MapAxis.parse(text)


@pytest.mark.parametrize("overlap", [0.05, 0.4, 0.8])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_setting_has_the_overlap_and_vocabulary_it_names(overlap, n_classes):
    classes = MapPoint(overlap=overlap, n_classes=n_classes, vocab_size=500).classes()
    assert classes.vocab_size == 500
    assert len(classes.common) == 1
    between = overlap_matrix(classes)[~np.eye(n_classes, dtype=bool)]
    np.testing.assert_allclose(between, overlap, rtol=1e-12)


def test_the_default_setting_meets_every_assumption():
    setting = MapPoint()
    found = check_assumptions(setting.classes(), eta_y=setting.eta_y, eta_z=setting.eta_y / setting.ratio)
    assert [a.name for a in found if not a.met] == []


def test_one_axis_twice_and_unknown_theorems_are_refused():
    axis = MapAxis.parse("ratio=1:10", 2)
    with refused("the axes", "ratio twice"):
        regime_map("theorem-1", axis, axis)
    with refused("the theorem", "theorem-9"):
        regime_map("theorem-9", axis, MapAxis.parse("overlap=0.1:0.2", 2))


@pytest.mark.integration
def test_a_small_map_rises_with_the_ratio_and_draws(tmp_path):
    seen = []
    data = regime_map(
        "lemma-4", MapAxis.parse("ratio=10:100:log", 2), MapAxis.parse("overlap=0.1:0.9", 3), processes=2,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (6, 6)
    margin = data.margin.isel(claim=0)
    assert np.isfinite(margin).all()
    assert (margin.isel(x=-1) > margin.isel(x=0)).all()  # a faster decoder remembers less of earlier attention
    save_figure(figure.draw(data), tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5000


# --- a map never runs another setting than it says -----------------------------------------------------------------


def test_a_vocabulary_too_small_for_the_classes_is_refused():
    """2 classes with 5 distinct tokens: 1 common, 10 distinct, 1 query, 2 next tokens."""
    assert MapPoint(vocab_size=14).classes().vocab_size == MapPoint(vocab_size=14).n_tokens == 14
    with refused("vocab_size"):
        MapPoint(vocab_size=13).classes()


@pytest.mark.parametrize(
    ("knobs", "field"),
    [
        ({"overlap": 1.0}, "overlap"),
        ({"ratio": 0}, "ratio"),
        ({"n_classes": 1}, "n_classes"),
        ({"distinct": 0}, "distinct"),
    ],
)
def test_settings_without_classes_are_refused(knobs, field):
    with refused(field):
        MapPoint(**knobs)


def test_a_map_without_any_classes_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(processes, "ProcessPoolExecutor", None)
    with refused("vocab_size", 20, names="62"):
        regime_map(
            "lemma-3", MapAxis.parse("overlap=0.1:0.2", 2), MapAxis.parse("vocab_size=5:20", 3), MapPoint(n_classes=10)
        )


def test_corners_without_classes_are_left_out_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "ProcessPoolExecutor", LocalPool)
    monkeypatch.setattr(maps, "as_completed", list)
    axes = MapAxis("n_classes", (2, 3), log=False), MapAxis("vocab_size", (14, 60), log=False)
    data = regime_map("lemma-3", *axes)
    np.testing.assert_array_equal(data.possible, [[True, False], [True, True]])  # 3 classes have 20 tokens
    np.testing.assert_array_equal(data.margin.isnull().all("claim"), ~data.possible)
    assert not data.assumptions_met.values[~data.possible.values].any()
    assert data.attrs["left_out"] == ("1 of 4 points left out: their classes need more tokens than the vocabulary has")
    drawn = figure.draw(data)
    assert data.attrs["left_out"] in drawn.get_suptitle()
    save_figure(drawn, tmp_path / "map.png")
    nowhere = data.assign(margin=data.margin.where(False))  # a claim that measures nothing draws, without a warning
    save_figure(figure.draw(nowhere), tmp_path / "map.pdf")


def test_each_point_is_the_setting_that_stands_there(monkeypatch):
    """What the flow is given, against the axes: M, K, rates."""
    seen = []
    monkeypatch.setattr(maps, "_point", lambda theorem, setting: seen.append(setting) or ({"lemma-3": 0.5}, True))
    monkeypatch.setattr(processes, "ProcessPoolExecutor", LocalPool)
    monkeypatch.setattr(maps, "as_completed", list)
    regime_map("lemma-3", MapAxis("vocab_size", (14, 20, 500), log=True), MapAxis("n_classes", (2, 3), log=False))
    made = [(setting.vocab_size, setting.n_classes) for setting in seen]
    assert made == [(14, 2), (20, 2), (500, 2), (20, 3), (500, 3)]
    assert [setting.classes().vocab_size for setting in seen] == [m for m, _ in made]


# --- a map can be red ----------------------------------------------------------------------------------------------


def test_a_point_where_the_theorem_fails_is_negative():
    """Slow decoders and strong overlap are outside Theorem 3, and it is measured there all the same."""
    margins, met = maps._point("theorem-3", MapPoint(ratio=1.0, overlap=0.8, vocab_size=100))
    assert not met
    assert min(margins.values()) < 0
    margins, met = maps._point("lemma-4", MapPoint(ratio=1.0))
    assert margins["lemma-4"] < 0


def _ended():
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_the_system_ends_is_told_in_words():
    """As the command line has it: a lack of memory is one sentence."""
    with pytest.raises(MemoryError, match="the system ended"), processes.killable_pool(1) as pool:
        pool.submit(_ended).result()

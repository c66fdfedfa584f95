"""Regime maps: the axes people write, the settings behind the points, and a small map."""

import numpy as np
import pytest

from scansnap.checks import InputError
from scansnap.claims.maps import Axis, Setting, regime_map
from scansnap.figures import regime_map as figure
from scansnap.figures.style import save_figure
from scansnap.theory.assumptions import check_assumptions, overlap_matrix


def test_axes_as_people_write_them():
    ratio = Axis.parse("ratio=1:1000:log", 4)
    np.testing.assert_allclose(ratio.values, [1, 10, 100, 1000])
    assert ratio.log
    overlap = Axis.parse("overlap=0.1:0.5", 3)
    np.testing.assert_allclose(overlap.values, [0.1, 0.3, 0.5])
    assert not overlap.log
    assert Axis.parse("n_classes=2:4", 30).values == (2, 3, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed=1:2", "the axis is 'speed'"),
        ("ratio=1", "low:high"),
        ("ratio=1:b", "two numbers"),
        ("ratio=5:1", "the high end of ratio is 1.0"),
        ("ratio=0:1:log", "the low end of ratio is 0.0"),
        ("overlap=0.1:1.5", "the high end of overlap is 1.5"),
        ("ratio=1:10:cubic", "low:high:log"),
    ],
)
def test_bad_axes(text, message):
    with pytest.raises(InputError) as refused:
        Axis.parse(text)
    assert message in str(refused.value)


@pytest.mark.parametrize("overlap", [0.05, 0.4, 0.8])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_setting_has_the_overlap_and_vocabulary_it_names(overlap, n_classes):
    classes = Setting(overlap=overlap, n_classes=n_classes, vocab_size=500).classes()
    assert classes.vocab_size == 500
    assert len(classes.common) == 1
    between = overlap_matrix(classes)[~np.eye(n_classes, dtype=bool)]
    np.testing.assert_allclose(between, overlap, rtol=1e-12)


def test_the_default_setting_meets_every_assumption():
    setting = Setting()
    found = check_assumptions(setting.classes(), eta_y=setting.eta_y, eta_z=setting.eta_y / setting.ratio)
    assert [a.name for a in found if not a.met] == []


def test_one_axis_twice_and_unknown_theorems_are_refused():
    axis = Axis.parse("ratio=1:10", 2)
    with pytest.raises(InputError, match="ratio twice"):
        regime_map("theorem-1", axis, axis)
    with pytest.raises(InputError, match="the theorem is 'theorem-9'"):
        regime_map("theorem-9", axis, Axis.parse("overlap=0.1:0.2", 2))


def test_a_small_map_falls_with_the_overlap_and_draws(tmp_path):
    seen = []
    data = regime_map(
        "lemma-3", Axis.parse("ratio=10:100:log", 2), Axis.parse("overlap=0.1:0.9", 3), processes=2,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (6, 6)
    margin = data.margin.isel(claim=0)
    assert np.isfinite(margin).all()
    assert (margin.isel(y=0) > margin.isel(y=-1)).all()  # dropping the overlap costs more where there is more of it
    save_figure(figure.draw(data), tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5000

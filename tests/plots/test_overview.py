"""The overview figure is tested on its data; drawing is checked to work on every shape of it."""

import numpy as np
import pytest

import scansnap as ss
from scansnap.plots import overview
from scansnap.plots.style import save_figure


def trajectory(classes, **options):
    return ss.simulate(classes, eta_y=1.0, eta_z=1.0, steps=30, momentum=0.9, **options)


def test_panels_hold_the_attention_of_common_then_distinct_tokens():
    classes = ss.SequenceClasses.syn_small()
    data = trajectory(classes)
    seen = overview.compute(data)
    assert [panel.n for panel in seen.panels] == [0, 1]
    panel = seen.panels[1]
    np.testing.assert_array_equal(panel.tokens, [*range(10), *range(20, 30)])
    assert panel.n_common == 10
    np.testing.assert_allclose(panel.attention.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(panel.attention, data.attention[0, :, 1].sel(token=panel.tokens))
    assert (seen.z[0] == 0).all()
    assert seen.z[-1, 10:].max() > 0 > seen.z[-1, :10].max()


@pytest.mark.parametrize(
    ("preset", "options"),
    [("syn-small", {}), ("syn-medium", {"heads": 2}), ("zipf", {"record": [0, 30]}), ("syn-small", {"record": [30]})],
    ids=str,
)
def test_it_draws(tmp_path, preset, options):
    data = trajectory(ss.SequenceClasses.preset(preset), **options)
    path = tmp_path / "figure.png"
    save_figure(overview.draw(overview.compute(data)), path)
    assert path.stat().st_size > 10_000
    assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]

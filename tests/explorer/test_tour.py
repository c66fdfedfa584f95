"""The tour tells the truth: what its scenes say is counted in the runs they show."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from scansnap.explorer.live.run import LiveRun
from scansnap.explorer.pages.tour import SCENES
from scansnap.explorer.setups.read import read_setup

BY_NAME = {scene["name"]: scene for scene in SCENES}
VIEWS = {"attention", "heatmap", "z", "loss", "entropy", "growth", "y", "claims"}


@cache
def film(name: str, kind: str = "setup") -> dict[str, np.ndarray]:
    """What a scene shows, by quantity; attention of common and distinct tokens apart."""
    scene = BY_NAME[name]
    setup = {"setup": scene["setup"], "try": {**scene["setup"], **scene["try"]}, "overlay": scene["overlay"]}[kind]
    return watch(LiveRun(read_setup(setup)))


def watch(live: LiveRun) -> dict[str, np.ndarray]:
    while not live.over:
        live.advance(10**9)
    steps, rows = live.film.after(-1)
    seen = {f["name"]: rows[:, f["offset"] : f["offset"] + f["size"]] for f in live.layout()["fields"]}
    k = live.classes.n_classes
    attention, z = (seen[name].reshape(len(steps), k, -1) for name in ("attention", "z"))
    common = np.isin(live.blueprint.layout.slots[0], live.classes.common)
    return {"step": steps, "entropy": seen["entropy"].mean(1), "loss": seen["loss"][:, 0],
            "common": attention[..., common].sum(-1).mean(1), "each_common": attention[..., common],
            "distinct": attention[..., ~common],
            "z_distinct": z[..., ~common], "z_all": z}  # fmt: skip


def at(seen: dict[str, np.ndarray], name: str, step: int) -> Any:
    return seen[name][np.searchsorted(seen["step"], step)]


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s["name"])
def test_scenes_are_whole(scene: dict[str, Any]) -> None:
    for setup in (scene["setup"], {**scene["setup"], **scene["try"]}, scene["overlay"] or scene["setup"]):
        assert read_setup(setup).settings.steps >= scene["until"]
    assert set(scene["watch"]) <= VIEWS
    assert scene["question"].endswith(("?", "."))
    for text in ("title", "commentary", "question", "answer"):
        assert len(scene[text]) > 10
    assert len(SCENES) == 6
    assert scene["at"] is None or set(scene["try"]) <= {"eta_y", "eta_z"}, "only rates change in mid-run"


def test_uniform_start() -> None:
    seen = film("uniform")
    assert 0.6 < at(seen, "common", 0) < 0.667, "almost two thirds"
    assert (seen["z_all"] == 0).all(), "attention is frozen"
    assert seen["loss"][-1] < 1e-2 * seen["loss"][0], "and still the loss falls"
    np.testing.assert_allclose(seen["distinct"][0, 0], np.linspace(0.1, 1, 10) / 15.5, rtol=1e-5)


def test_common_tokens_fall() -> None:
    seen = film("suppression")
    assert at(seen, "common", 0) > 0.6
    assert at(seen, "common", 20) < 0.5
    np.testing.assert_allclose(seen["z_all"].sum(-1), 0, atol=1e-4)
    more, answer = film("suppression", "try"), BY_NAME["suppression"]["answer"]
    assert f"from {more['common'][0]:.0%} of the attention to {more['common'][-1]:.0%}" in answer
    rose = [(bars[-1] > bars[0]).sum() for bars in more["each_common"].swapaxes(0, 1)]
    assert rose == [3, 2], "three in class 0 and two in class 1 rise"
    tallest = more["each_common"][-1].max(-1)
    assert (tallest > more["distinct"][-1].max(-1)).all(), "and are the tallest of all"
    assert (tallest > more["each_common"][0].max(-1)).all()


def test_winners_emerge() -> None:
    seen = film("winners")
    assert (seen["distinct"].argmax(-1) == 9).all(), "the most frequent one leads all the time"
    assert seen["entropy"][-1] < seen["entropy"][0] - 0.15
    equal = film("winners", "try")
    assert equal["entropy"][0] - equal["entropy"][-1] < 0.01, "equal tokens: the entropy hardly falls"
    setup = {**BY_NAME["winners"]["setup"], **BY_NAME["winners"]["try"]}
    other = watch(LiveRun(read_setup({**setup, "seed": 1})))
    assert (equal["distinct"][-1].argmax(-1) != other["distinct"][-1].argmax(-1)).any(), "luck decides"


def test_the_snap() -> None:
    seen = film("snap")
    first = abs(at(seen, "entropy", 100) - seen["entropy"][0])
    assert abs(at(seen, "entropy", 50) - seen["entropy"][0]) > 0.9 * first
    later = seen["entropy"][seen["step"] >= 100]
    assert np.ptp(later) < 0.1 * first
    moved = []
    scene = BY_NAME["snap"]
    assert f"at step {scene['at']}" in scene["question"]
    for eta_z in (1.0, scene["try"]["eta_z"]):
        live = LiveRun(read_setup(scene["setup"]))
        while live.step < scene["at"]:
            live.advance(scene["at"] - live.step)
        before = live.state.tables["z"].clone()
        live.change(None, eta_z)
        while not live.over:
            live.advance(10**9)
        moved.append(float((live.state.tables["z"] - before).abs().max()))
    assert moved[1] < 0.1, "hardly"
    assert 2 < moved[1] / moved[0] < 4, "about three times as fast"


def test_a_faster_decoder_is_less_sparse() -> None:
    fast, slow = film("ratio"), film("ratio", "overlay")
    assert fast["entropy"][-1] > slow["entropy"][-1] + 0.1
    assert at(fast, "loss", 5) < at(slow, "loss", 5), "it explains the data sooner"
    same_ratio = film("ratio", "try")
    assert abs(same_ratio["entropy"][-1] - fast["entropy"][-1]) < 0.05, "mostly the ratio"


def test_adam_picks_other_tokens() -> None:
    adam, sgd = film("adam"), film("adam", "overlay")
    for n in range(2):
        assert (np.diff(sgd["z_distinct"][-1, n]) > 0).all(), "SGD: in the order of frequency"
        assert adam["z_distinct"][-1, n].argmax() == 0, "Adam: the least frequent gains most"
    first = [seen["z_distinct"][np.flatnonzero(np.abs(seen["z_all"]).max((1, 2)))[0]] for seen in (adam, sgd)]
    spread = [np.abs(z).max() / np.abs(z).min() for z in first]
    assert spread[0] < 1.01, "Adam: a rare token moves as fast as a frequent one"
    assert spread[1] > 10, "SGD: it does not"
    from scansnap.explorer.pages.predict import why_not

    assert why_not(read_setup(BY_NAME["adam"]["setup"]))

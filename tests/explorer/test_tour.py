"""The tour tells the truth: what its scenes say is counted in the runs they show."""

from functools import cache

import numpy as np
import pytest
from films import Film

from scansnap.claims.evidence import reason_outside_theory
from scansnap.dynamics.simulate import simulate
from scansnap.explorer.setup import read_setup
from scansnap.explorer.tour import SCENES

BY_NAME = {scene["name"]: scene for scene in SCENES}
VIEWS = {"attention", "heatmap", "z", "loss", "entropy", "growth", "y", "claims"}


@cache
def film(name, kind="setup"):
    """What a scene shows, by quantity; attention of common and distinct tokens apart."""
    scene = BY_NAME[name]
    setup = {"setup": scene["setup"], "try": {**scene["setup"], **scene["try"]}, "overlay": scene["overlay"]}[kind]
    return watch(Film(setup, extra=(20, 100, scene["until"])))


def watch(film):
    classes, c, z = film.classes, film.rows["attention"], film.rows["z"]
    own = [classes.distinct(n) for n in range(classes.n_classes)]
    return {"step": film.steps, "entropy": film.rows["entropy"].mean(1), "loss": film.rows["loss"],
            "common": c[..., classes.common].sum(-1).mean(1), "each_common": c[..., classes.common],
            "distinct": np.stack([c[:, n, tokens] for n, tokens in enumerate(own)], axis=1),
            "z_distinct": np.stack([z[:, n, tokens] for n, tokens in enumerate(own)], axis=1), "z_all": z}  # fmt: skip


def at(seen, name, step):
    return seen[name][np.searchsorted(seen["step"], step)]


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s["name"])
def test_scenes_are_whole(scene):
    for setup in (scene["setup"], {**scene["setup"], **scene["try"]}, scene["overlay"] or scene["setup"]):
        assert read_setup(setup).settings.steps >= scene["until"]
    assert set(scene["watch"]) <= VIEWS
    assert scene["question"].endswith(("?", "."))
    for text in ("title", "commentary", "question", "answer"):
        assert len(scene[text]) > 10
    assert len(SCENES) == 6
    assert scene["at"] is None or set(scene["try"]) <= {"eta_y", "eta_z"}, "only rates change in mid-run"


def test_uniform_start():
    seen = film("uniform")
    assert 0.6 < at(seen, "common", 0) < 0.667, "almost two thirds"
    assert (seen["z_all"] == 0).all(), "attention is frozen"
    assert seen["loss"][-1] < 1e-2 * seen["loss"][0], "and still the loss falls"
    np.testing.assert_allclose(seen["distinct"][0, 0], np.linspace(0.1, 1, 10) / 15.5, rtol=1e-5)


def test_common_tokens_fall():
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


def test_winners_emerge():
    seen = film("winners")
    assert (seen["distinct"].argmax(-1) == 9).all(), "the most frequent one leads all the time"
    assert seen["entropy"][-1] < seen["entropy"][0] - 0.15
    equal = film("winners", "try")
    assert equal["entropy"][0] - equal["entropy"][-1] < 0.01, "equal tokens: the entropy hardly falls"
    setup = {**BY_NAME["winners"]["setup"], **BY_NAME["winners"]["try"]}
    other = watch(Film({**setup, "seed": 1}))
    assert (equal["distinct"][-1].argmax(-1) != other["distinct"][-1].argmax(-1)).any(), "luck decides"


def test_the_snap():
    seen = film("snap")
    first = abs(at(seen, "entropy", 100) - seen["entropy"][0])
    assert abs(at(seen, "entropy", 50) - seen["entropy"][0]) > 0.9 * first
    later = seen["entropy"][seen["step"] >= 100]
    assert np.ptp(later) < 0.1 * first
    moved = []
    scene = BY_NAME["snap"]
    assert f"at step {scene['at']}" in scene["question"]
    for eta_z in (1.0, scene["try"]["eta_z"]):
        changed = Film(scene["setup"], [{"step": scene["at"], "eta_y": 1.0, "eta_z": eta_z}])
        z = changed.rows["z"]
        moved.append(float(np.abs(z[-1] - z[np.searchsorted(changed.steps, scene["at"])]).max()))
    assert moved[1] < 0.1, "hardly"
    assert 2 < moved[1] / moved[0] < 4, "about three times as fast"


def test_a_faster_decoder_is_less_sparse():
    fast, slow = film("ratio"), film("ratio", "overlay")
    assert fast["entropy"][-1] > slow["entropy"][-1] + 0.1
    assert at(fast, "loss", 5) < at(slow, "loss", 5), "it explains the data sooner"
    same_ratio = film("ratio", "try")
    assert abs(same_ratio["entropy"][-1] - fast["entropy"][-1]) < 0.05, "mostly the ratio"


def test_adam_levels_what_sgd_sharpens():
    adam, sgd = film("adam"), film("adam", "overlay")
    scene = BY_NAME["adam"]
    assert f"from {adam['common'][0]:.0%} of the attention to {adam['common'][-1]:.0%}" in scene["commentary"]
    assert sgd["common"][-1] < 0.4, "common tokens fall under both: it is not Adam's doing"
    for n in range(2):
        assert (np.diff(sgd["z_distinct"][-1, n]) > 0).all(), "SGD: in the order of frequency"
        assert (np.diff(adam["z_distinct"][-1, n]) < 0).all(), "Adam: in the opposite order"
        shares = np.round(100 * adam["distinct"][-1, n])
        assert shares[0] < 5, "the rarest one stays behind"
        assert set(shares[1:]) == {6, 7}, "nine of ten"
        assert f"{sgd['distinct'][-1, n].max():.0%} of the attention" in scene["answer"]
    first = [seen["z_distinct"][np.flatnonzero(np.abs(seen["z_all"]).max((1, 2)))[0]] for seen in (adam, sgd)]
    spread = [np.abs(z).max() / np.abs(z).min() for z in first]
    assert spread[0] < 1.01, "Adam: a rare token moves as fast as a frequent one"
    assert spread[1] > 10, "SGD: it does not"
    reading = read_setup({**BY_NAME["adam"]["setup"], "steps": 2})
    assert reason_outside_theory(simulate(reading.classes, reading.runs, settings=reading.settings))
    back = film("adam", "try")
    assert f"falls from {back['entropy'][0]:.2f} to {back['entropy'][-1]:.2f} nats" in scene["answer"]
    assert f"rises to {adam['entropy'][-1]:.2f}, almost the {np.log(10):.2f}" in scene["answer"]

"""The tour tells the truth: what its scenes say is counted in the runs they show."""

from functools import cache

import numpy as np
import pytest
from films import Film, hold

from scansnap.claims.evidence import reason_outside_theory
from scansnap.dynamics.simulate import simulate
from scansnap.explorer.setup import read_setup
from scansnap.explorer.tour import SCENES

BY_NAME = {scene["name"]: scene for scene in SCENES}
VIEWS = {"attention", "heatmap", "z", "loss", "entropy", "growth", "y", "claims"}


@cache
def film(name, kind="setup"):
    """What a scene shows."""
    scene = BY_NAME[name]
    setup = {"setup": scene["setup"], "try": {**scene["setup"], **scene["try"]}, "overlay": scene["overlay"]}[kind]
    return Film(setup, extra=(20, 100, scene["until"]))


def entropy(run, step=None):
    return run.entropy(run.steps[-1] if step is None else step)


def per_class(run, name):
    """Of the distinct tokens, (steps, classes, tokens)."""
    own = [run.classes.distinct(n) for n in range(run.classes.n_classes)]
    return np.stack([run.rows[name][:, n, tokens] for n, tokens in enumerate(own)], axis=1)


def shares(run):
    """Of the attention, on common tokens."""
    return f"from {run.common(0):.0%} of the attention to {run.common(run.steps[-1]):.0%}"


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s["name"])
def test_scenes_are_whole(scene):
    for setup in (scene["setup"], {**scene["setup"], **scene["try"]}, scene["overlay"] or scene["setup"]):
        assert read_setup(setup).settings.steps >= scene["until"]
    assert set(scene["watch"]) <= VIEWS
    assert scene["at"] is None or set(scene["try"]) <= {"eta_y", "eta_z"}, "only rates change in mid-run"


def uniform(scene, run):
    yield from (0.6 < run.common(0) < 0.667, (run.rows["z"] == 0).all(),
                run.at("loss", run.steps[-1]) < 1e-2 * run.at("loss", 0),
                run.distinct(0, 0) == pytest.approx(np.linspace(0.1, 1, 10) / 15.5, rel=1e-5))  # fmt: skip


def suppression(scene, run):
    yield from (run.common(0) > 0.6, run.common(20) < 0.5, abs(run.rows["z"].sum(-1)).max() < 1e-4)
    more = film("suppression", "try")
    first, last = more.rows["attention"][[0, -1]][..., more.classes.common]
    tallest = last.max(-1)
    yield from (shares(more), (last > first).sum(1).tolist() == [3, 2], (tallest > first.max(-1)).all(),
                (tallest > per_class(more, "attention")[-1].max(-1)).all())  # fmt: skip


def winners(scene, run):
    equal = film("winners", "try")
    other = Film({**scene["setup"], **scene["try"], "seed": 1})
    leading = [per_class(r, "attention")[-1].argmax(-1) for r in (equal, other)]
    yield from ((per_class(run, "attention").argmax(-1) == 9).all(), entropy(run) < entropy(run, 0) - 0.15,
                entropy(equal, 0) - entropy(equal) < 0.01, (leading[0] != leading[1]).any())  # fmt: skip


def snap(scene, run):
    moved = [abs(entropy(run, s) - entropy(run, 0)) for s in (50, 100)]
    later = [entropy(run, s) for s in run.steps if s >= 100]
    yield from (moved[0] > 0.9 * moved[1], np.ptp(later) < 0.1 * moved[1], f"at step {scene['at']}")
    moves = []
    for eta_z in (1.0, scene["try"]["eta_z"]):
        changed = Film(scene["setup"], [{"step": scene["at"], "eta_y": 1.0, "eta_z": eta_z}])
        moves.append(abs(changed.rows["z"][-1] - changed.at("z", scene["at"])).max())
    yield from (moves[1] < 0.1, 2 < moves[1] / moves[0] < 4)


def ratio(scene, fast):
    slow = film("ratio", "overlay")
    yield from (entropy(fast) > entropy(slow) + 0.1, fast.at("loss", 5) < slow.at("loss", 5),
                abs(entropy(film("ratio", "try")) - entropy(fast)) < 0.05)  # fmt: skip


def adam(scene, run):
    sgd, back = film("adam", "overlay"), film("adam", "try")
    spread = []
    for each in (run, sgd):
        first = abs(per_class(each, "z")[np.flatnonzero(abs(each.rows["z"]).max((1, 2)))[0]])
        spread.append(first.max() / first.min())
    yield from (shares(run), sgd.common(sgd.steps[-1]) < 0.4, spread[0] < 1.01, spread[1] > 10,
                f"falls from {entropy(back, 0):.2f} to {entropy(back):.2f} nats",
                f"rises to {entropy(run):.2f}, almost the {np.log(10):.2f}")  # fmt: skip
    for n in range(2):
        rounded = np.round(100 * run.distinct(run.steps[-1], n))
        yield from ((np.diff(per_class(sgd, "z")[-1, n]) > 0).all(), (np.diff(per_class(run, "z")[-1, n]) < 0).all(),
                    rounded[0] < 5, set(rounded[1:]) == {6, 7},
                    f"{sgd.distinct(sgd.steps[-1], n).max():.0%} of the attention")  # fmt: skip
    reading = read_setup({**scene["setup"], "steps": 2})
    yield reason_outside_theory(simulate(reading.classes, reading.runs, settings=reading.settings)) != ""


FACTS = [uniform, suppression, winners, snap, ratio, adam]
assert [facts.__name__ for facts in FACTS] == list(BY_NAME)


@pytest.mark.parametrize("facts", FACTS, ids=lambda facts: facts.__name__)
def test_what_a_scene_says_is_counted_in_its_runs(facts):
    scene = BY_NAME[facts.__name__]
    text = " ".join(scene[part] for part in ("commentary", "question", "answer"))
    hold(text, facts(scene, film(scene["name"])))

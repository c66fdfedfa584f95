"""Lectures: decks are read or refused in a sentence, what the shipped ones say is so, and a file holds all of it."""

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from films import Film

from refusals import refused
from scansnap.checks import InputError
from scansnap.explorer import lecture, verdicts
from scansnap.explorer.limits import LIMITS

BEATS = LIMITS["beats"]
STEP = {"setup": {"classes": {"preset": "syn-small"}, "steps": 60}, "to": 20, "sentence": "The common tokens fall."}
GUIDE = Path(__file__).parents[2] / "docs" / "lecture.md"


def deck(**changes):
    return {"title": "A talk", "beat": [{**STEP, **changes}]}


# --- reading ---------------------------------------------------------------------------------------------------------

REFUSED = [
    ({"title": "x"}, "beat"),
    ({"title": "x", "beat": []}, "beat"),
    ({"beat": [STEP]}, "title of the deck"),
    ({**deck(), "autor": "me"}, "autor"),
    (deck(sentence=" "), "sentence of beat 1"),
    (deck(sentence="a" * 241), "sentence of beat 1"),
    (deck(setup="figure-5"), "setup of beat 1"),
    (deck(setup=None), "setup of beat 1"),
    (deck(setup={"preset": "figure-4", "eta_y": -1}), "eta_y in setup of beat 1"),
    (deck(setup={"preset": "figure-4", "eta": 1}), "eta in setup of beat 1"),
    (deck(against=3), "against of beat 1"),
    (deck(to=61), "to of beat 1"),
    (deck(to=1.5), "to of beat 1"),
    (deck(**{"from": 21}), "from of beat 1"),
    (deck(seconds=0), "seconds of beat 1"),
    (deck(theory=3), "theory of beat 1"),
    (deck(theory=[{"name": "x", "points": 3}]), "points of theory of beat 1"),
    (deck(theory=[{"name": "x", "points": [[1]]}]), "points of theory of beat 1"),
    (deck(curve="los"), "curve of beat 1"),
    (deck(marks=[{"step": 60, "eta_z": 2}]), "step in marks of beat 1"),
    (deck(marks=[{"step": 5, "eta_z": 2}, {"step": 5, "eta_z": 3}]), "step in marks of beat 1"),
    (deck(marks=[{"step": 5, "eta_z": -2}]), "eta_z of marks of beat 1"),
    (deck(highlight={"views": ["bar"]}), "views of highlight of beat 1"),
    (deck(highlight={"classes": [2]}), "classes in highlight of beat 1"),
    (deck(highlight={"tokens": ["commn"]}), "tokens in highlight of beat 1"),
    (deck(highlight={"tokens": [30]}), "tokens in highlight of beat 1"),
    (deck(predict={"class": 0}), "question of predict of beat 1"),
    (deck(predict={"question": "Which?", "class": 2}), "class in predict of beat 1"),
    (deck(predict={"question": "Which?"}, to=0), "from of beat 1"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "field"), REFUSED, ids=range(len(REFUSED)))
def test_a_mistake_names_its_field(table, field):
    with refused(field):
        lecture.deck_of(table, "x")


def test_a_deck_is_filled_in():
    marks = [{"step": 5, "eta_z": 2.0}, {"step": 9, "eta_y": 3.0}]
    (beat,) = lecture.deck_of(deck(marks=marks, setup={"preset": "figure-4", "steps": 30}), "x")["beat"]
    assert [beat[key] for key in ("from", "to", "seconds", "curve", "predict")] == [0, 20, 8.0, "entropy", None]
    assert beat["setup"]["eta_y"] == 1.0, "of the preset"
    assert beat["setup"]["steps"] == 30, "what is said besides"
    assert beat["marks"] == [
        {"step": 5, "eta_y": 1.0, "eta_z": 2.0},
        {"step": 9, "eta_y": 3.0, "eta_z": 2.0},
    ]


def test_files_that_are_no_decks(tmp_path):
    (tmp_path / "broken.toml").write_text("title = ")
    (tmp_path / "bytes.toml").write_bytes(b"title = '\xff'")
    for name, words in (("none", "a TOML file that exists, or one of paper, holds, adam"), ("broken", "valid TOML ("),
                        ("bytes", "a TOML file that can be read (it is not UTF-8)")):  # fmt: skip
        with pytest.raises(InputError, match=re.escape(words)):
            lecture.read_deck(tmp_path / f"{name}.toml")


def test_the_example_of_the_guide_is_a_deck_and_the_guide_names_every_key():
    text = GUIDE.read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    made = lecture.deck_of(tomllib.loads(example), "example")
    assert len(made["beat"]) >= 2
    assert any(beat["predict"] for beat in made["beat"])
    for table in (lecture.DECK, lecture.BEAT, lecture.MARK, lecture.HIGHLIGHT, lecture.PREDICT, lecture.THEORY):
        for name, field in table.items():
            assert f"`{name}`" in text
            assert field.help in text or table is lecture.DECK, f"{name}: {field.help}"


# --- what the shipped decks say --------------------------------------------------------------------------------------


class Seen(Film):
    """What a beat shows."""

    @cache  # noqa: B019  # a handful of them, as long as the module
    def claims(self):
        assert not self.marks
        with patch.object(verdicts, "_POINTS", 1000):  # curves are whole here
            return {claim.name: verdicts.claim_as_json(claim) for claim in verdicts.judge(self.reading)}

    @property
    def setup(self):
        return self.reading.setup


@cache
def seen(name, number, against=False):
    beat = made(name)["beat"][number - 1]
    setup, marks = (beat["against"], []) if against else (beat["setup"], beat["marks"])
    return computed(json.dumps([setup, marks]))


@cache
def computed(run):
    setup, marks = json.loads(run)
    return Seen(setup, marks, extra=(5, 20, 100, 300, 330, 1000))


@cache
def made(name):
    return lecture.load_deck(name)


def percent(share):
    return f"{100 * share:.0f}%"


def winner(values):
    return max(values, key=lambda token: values[token])


def rising_with_frequency(z, tokens):
    return bool((np.diff([z[t] for t in tokens]) > 0).all())


def all_assumptions_met(claims, *names):
    return all(a["met"] for name in names for a in claims[name]["assumptions"])


def paper_1(says, run):
    classes = run.classes
    number = {word: token for token, word in enumerate(classes.words)}
    assert [classes.words[t] for t in (classes.query[0], classes.next_token[0])] == ["drinks", "milk"]
    kitten, the, before, after = number["kitten"], number["the"], run.attention(0, 0), run.attention(100, 0)
    assert winner(after) == kitten
    assert re.findall(r"\d+%", says) == [percent(before[kitten]), percent(after[kitten])]
    assert before[the] > before[kitten]
    assert the in classes.common


def paper_2(says, run):
    assert percent(run.common(0)) in says
    for k in range(2):
        assert len(run.classes.support(k)[0]) == 20
        assert len(run.classes.distinct(k)) == len(run.classes.common) == 10
        np.testing.assert_allclose(list(run.attention(0, k).values()), run.classes.support(k)[1], rtol=1e-5)


def paper_3(says, run):
    assert (run.rows["z"] == 0).all()
    assert f"{run.at('loss', 0):.1f}" in says
    assert run.at("loss", 100) < 0.001


def paper_4(says, run):
    after, before = run.attention(100, 0), run.attention(0, 0)
    assert winner(after) == 19
    assert 19 in run.classes.distinct(0)
    assert percent(before[19]) in says
    assert percent(after[19]) in says
    for token in run.classes.common:
        assert before[token] == pytest.approx(before[19], rel=1e-5)
        assert after[token] < before[token]


def paper_5(says, run):
    assert percent(run.common(0)) in says
    assert percent(run.common(20)) in says


def paper_6(says, run):
    assert all(rising_with_frequency(run.z(100, q), range(10 + 10 * q, 20 + 10 * q)) for q in range(2))
    assert f"from {run.entropy(0):.2f} to {run.entropy(100):.2f}" in says


def paper_7(says, run):
    later = [run.entropy(int(s)) for s in run.steps if s >= 100]
    assert np.ptp(later) < 0.1 * abs(run.entropy(100) - run.entropy(0))


def paper_8(says, run):
    assert run.marks == [{"step": 500, "eta_y": 1.0, "eta_z": 3.0}]
    since = run.rows["z"][run.steps >= 500]
    assert abs(since - since[0]).max() < 0.1


def paper_9(says, run):
    other = seen("paper", 9, against=True)
    assert run.eta[0] == 10 * other.eta[0]
    assert f"{run.entropy(1000):.2f} instead of {other.entropy(1000):.2f}" in says
    assert run.at("loss", 5) < other.at("loss", 5)


def paper_10(says, run):
    other = seen("paper", 10, against=True)
    assert re.findall(r"\d+%", says) == [percent(run.common(1000)), percent(other.common(1000))]


def paper_11(says, run):
    assert (len(run.classes.queries), run.classes.n_classes) == (3, 6)
    assert np.ptp(run.at("z", 0)) > 0
    for k in range(6):
        assert winner(run.attention(2000, k)) in run.classes.distinct(k)


def paper_12(says, run):
    claims = run.claims()
    assert all_assumptions_met(claims, "theorem-1-beta", "theorem-2a", "theorem-3-monotone", "theorem-4-growth")
    moved = abs(run.rows["attention"] - run.rows["attention"][0]).max()
    assert moved < 0.002
    in_figure_4 = seen("paper", 2).rows["attention"]
    assert 50 < abs(in_figure_4 - in_figure_4[0]).max() / moved < 200, "a hundred times"


def holds_1(says, run):
    claims = run.claims()
    assert [claims[name]["status"] for name in ("theorem-2a", "theorem-2b")] == ["holds", "holds"]
    assert all_assumptions_met(claims, "theorem-2a", "theorem-2b")
    z = run.z(3000)
    assert [t for t, v in z.items() if v < 0] == run.classes.common.tolist()
    assert sum(v > 0 for v in z.values()) == 10


def holds_2(says, run):
    assert run.claims()["conservation-z"]["status"] == "holds"
    np.testing.assert_allclose(run.rows["z"].sum(-1), 0, atol=1e-4)


def holds_3(says, run):
    before, after = run.attention(0, 0), run.attention(1000, 0)
    common = run.classes.common.tolist()
    assert winner(after) in common
    assert percent(sum(before[t] for t in common)) in says
    assert percent(sum(after[t] for t in common)) in says
    assert sum(after[t] > 1.5 * before[t] for t in common) == sum(after[t] > before[t] for t in common) == 3


def holds_4(says, run):
    for q in range(2):
        z = run.z(1000, q)
        distinct = range(10 + 10 * q, 20 + 10 * q)
        assert [t for t in distinct if z[t] < 0] == [10 + 10 * q], "the rarest one alone"
    assert run.setup["context"] == 128


def holds_5(says, run):
    claim = run.claims()["theorem-4-growth"]
    assert claim["status"] == "fails"
    assert all(a["met"] for a in claim["assumptions"])
    found = re.search(r" at t = (\d+)", claim["quantity"])
    assert found
    assert abs(int(found[1]) - 330) < 10, "which frames a film keeps decides it"
    assert f"{claim['predicted']:.5f}" in says
    assert f"{claim['measured']:.4f}" in says
    assert f"{run.at('growth', 330).mean():.4f}" in says, "as the curve shows it"
    assert round(claim["measured"] / claim["predicted"]) == 8
    curve = claim["curve"]
    hold_line(made("holds")["beat"][4]["theory"][0], curve["x"], curve["predicted"])


def holds_6(says, run):
    instead = run.claims()["theorem-4-growth"]["instead"]
    assert (instead["name"], instead["status"]) == ("memory", "holds")
    assert instead["off"] < 0.05
    four, memory = made("holds")["beat"][5]["theory"]
    assert (four["holds"], memory["holds"]) == (False, True)
    assert four == made("holds")["beat"][4]["theory"][0]
    hold_line(memory, [0, *instead["x"]], [0, *instead["y"]])


def hold_line(line, x, y):
    """What a beat draws of a theory is what the theory gives."""
    steps, values = np.array(line["points"]).T
    assert values == pytest.approx(np.interp(steps, x, y), rel=0.02)


def holds_7(says, run):
    assert run.at("growth", 3000).mean() / run.at("growth", 300).mean() == pytest.approx(2, abs=0.2)


def holds_8(says, run):
    other = seen("holds", 8, against=True)
    assert run.eta == tuple(pytest.approx(10 * rate) for rate in other.eta)
    assert f"{other.entropy(1000):.2f} at step 1000 after {run.entropy(100):.2f} at step 100" in says


def adam_1(says, run):
    assert all(rising_with_frequency(run.z(500, q), range(10 + 10 * q, 20 + 10 * q)) for q in range(2))


def adam_2(says, run):
    z = run.z(500)
    assert winner(z) == 10, "the rarest"
    assert f"{z[10]:.1f}" in says
    assert z[19] < 0
    assert rising_with_frequency({t: -v for t, v in z.items()}, range(10, 20))


def adam_3(says, run):
    assert (run.at("z", 1) == 0).all(), "Y is 0 before"
    np.testing.assert_allclose(np.abs(list(run.z(2).values())), abs(run.z(2)[0]), rtol=1e-3)
    assert run.classes.query[0] == 30


def adam_4(says, run):
    other = seen("adam", 4, against=True)
    assert f"from {other.entropy(0):.2f} down to {other.entropy(500):.2f}" in says
    assert f"up to {run.entropy(500):.2f}" in says
    assert f"{np.log(10):.2f}" in says


def adam_5(says, run):
    other = seen("adam", 5, against=True)
    assert re.findall(r"\d+%", says) == [percent(run.common(500)), percent(other.common(500))]
    assert max(run.common(500), other.common(500)) < run.common(0)


def adam_6(says, run):
    assert winner(run.attention(500, 0)) == 19
    assert run.common(500) < 0.001
    z = np.array([run.z(500)[t] for t in range(10, 20)])
    assert np.ptp(z) < 0.1 * z.mean(), "alike"
    assert winner(seen("adam", 1).attention(500, 0)) == 19, "as under SGD"


def adam_7(says, run):
    assert run.setup["momentum"] == 0
    assert all(rising_with_frequency(run.z(1000, q), range(10 + 10 * q, 20 + 10 * q)) for q in range(2))
    assert run.common(100) > seen("adam", 1).common(100), "later"


def adam_8(says, run):
    claims = [claim for claim in run.claims().values() if claim["reference"].startswith(("Theorem", "Corollary"))]
    assert len(claims) > 10
    assert {claim["status"] for claim in claims} == {"not applicable"}


@pytest.mark.parametrize("name", lecture.SHIPPED_DECKS)
def test_every_beat_of_the_shipped_decks_is_checked_on_its_run(name):
    for number, beat in enumerate(made(name)["beat"], 1):
        globals()[f"{name}_{number}"](beat["sentence"], seen(name, number))


def test_the_shipped_decks_ask_the_audience():
    asked = [sum(beat["predict"] is not None for beat in made(name)["beat"]) for name in lecture.SHIPPED_DECKS]
    assert asked == [2, 1, 2]
    minutes = sum(beat["seconds"] + 45 for beat in made("paper")["beat"]) / 60
    assert 8 < minutes < 12, "with three quarters of a minute of talk to each beat: ten minutes"


# --- the file --------------------------------------------------------------------------------------------------------


def write(path, steps):
    path.write_text(f'title = "x"\n[[beat]]\nsetup = {{preset = "figure-4", steps = {steps}}}\nto = 20\n'
                    'sentence = "They fall."\n')  # fmt: skip
    return path


def test_the_command_writes_one_file_and_nothing_on_a_refusal(tmp_path, scansnap):
    write(tmp_path / "my.toml", 60)
    code, out, _ = scansnap("lecture", "my.toml", "--out", "talk.html")
    assert code == 0
    assert "1 beats" in out
    page = (tmp_path / "talk.html").read_text(encoding="utf-8")
    assert '"lecture":true' in page
    assert '"decks":[{"name":"my","title":"x"' in page
    for name in ("lecture", "lecture-2"):  # default names are numbered
        assert scansnap("lecture", "my.toml")[0] == 0
        assert (tmp_path / f"{name}.html").read_text(encoding="utf-8") == page
    write(tmp_path / "my.toml", 10)
    before = sorted(tmp_path.iterdir())
    for words, said in (
        (("lecture", "my.toml", "--out", "no.html"), "to of beat 1: "),
        (("lecture", "papr", "--out", "no.html"), "deck: "),
        (("lecture", "paper", "--out", "talk.html"), "--out: "),
        (("lecture", "paper", "--out", "no.pdf"), "--out: "),
        (("explorer", "--deck", "my.toml", "--out", "no.html"), "to of beat 1: "),
    ):
        code, _, err = scansnap(*words)
        assert code == 2
        assert err.startswith("Error: ")
        assert said in err
        assert len(err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before

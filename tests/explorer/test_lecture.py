"""Lectures: decks are read or refused in a sentence, what the shipped ones say is so, and a file holds all of it."""

import json
import re
import tomllib
from functools import cache, cached_property
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from films import Film, hold

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
    ({"title": "x"}, "beat"), ({"title": "x", "beat": []}, "beat"), ({"beat": [STEP]}, "title of the deck"),
    ({**deck(), "autor": "me"}, "autor"), (deck(sentence=" "), "sentence of beat 1"),
    (deck(sentence="a" * 241), "sentence of beat 1"), (deck(setup="figure-5"), "setup of beat 1"),
    (deck(setup=None), "setup of beat 1"),
    (deck(setup={"preset": "figure-4", "eta_y": -1}), "eta_y in setup of beat 1"),
    (deck(setup={"preset": "figure-4", "eta": 1}), "eta in setup of beat 1"), (deck(against=3), "against of beat 1"),
    (deck(to=61), "to of beat 1"), (deck(to=1.5), "to of beat 1"), (deck(**{"from": 21}), "from of beat 1"),
    (deck(seconds=0), "seconds of beat 1"), (deck(theory=3), "theory of beat 1"),
    (deck(theory=[{"name": "x", "points": 3}]), "points of theory of beat 1"),
    (deck(theory=[{"name": "x", "points": [[1]]}]), "points of theory of beat 1"),
    (deck(curve="los"), "curve of beat 1"), (deck(marks=[{"step": 60, "eta_z": 2}]), "step in marks of beat 1"),
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


class BeatFilm(Film):
    """What a beat shows."""

    @cached_property
    def claims(self):
        assert not self.marks
        with patch.object(verdicts, "_POINTS", 1000):  # curves are whole here
            return {claim.name: verdicts.claim_as_json(claim) for claim in verdicts.judge(self.reading)}

    def statuses(self, *names):
        return [self.claims[name]["status"] for name in names]

    def meets_assumptions(self, *names):
        return all(a["met"] for name in names for a in self.claims[name]["assumptions"])

    def shares(self, step):
        """Of the first class's words."""
        return {self.classes.words[token]: c for token, c in self.attention(step, 0).items()}

    def ranks(self, step, sign=1):
        """Of both queries, whether the logits of the distinct tokens have the order of frequency."""
        z = [[sign * self.z(step, q)[t + 10 * q] for t in range(10, 20)] for q in range(2)]
        return (np.diff(z) > 0).all(1).tolist()

    def falls(self, first, last):
        return f"from {self.entropy(first):.2f} {{}} {self.entropy(last):.2f}"


def film(name, number, against=False):
    beat = lecture.load_deck(name)["beat"][number - 1]
    return computed(json.dumps([beat["against"], []] if against else [beat["setup"], beat["marks"]]))


@cache
def computed(run):
    return BeatFilm(*json.loads(run), extra=(5, 20, 100, 300, 330, 1000))


def percent(share):
    return f"{100 * share:.0f}%"


def winner(values):
    return max(values, key=lambda token: values[token])


def line(number, i, x, y):
    """Whether what a beat of “What holds” draws of a theory is what the theory gives."""
    steps, values = np.array(lecture.load_deck("holds")["beat"][number - 1]["theory"][i]["points"]).T
    return values == pytest.approx(np.interp(steps, x, y), rel=0.02)


def paper(number, run):
    """What beat ``number`` says: true statements and written numbers."""
    c, z, common = run.attention, run.rows["z"], run.classes.common
    before, after = c(0, 0), c(100, 0)
    if number == 1:
        start, end = run.shares(0), run.shares(100)
        yield from (f"{percent(start['kitten'])} of the attention at the start, {percent(end['kitten'])} after",
                    winner(end) == "kitten", start["the"] > start["kitten"], run.classes.words.index("the") in common,
                    [run.classes.words[t[0]] for t in (run.classes.query, run.classes.next_token)]
                    == ["drinks", "milk"])  # fmt: skip
    elif number == 2:
        yield percent(run.common(0))
        for k in range(2):
            yield len(run.classes.support(k)[0]) == 20
            yield len(run.classes.distinct(k)) == len(common) == 10
            yield list(c(0, k).values()) == pytest.approx(run.classes.support(k)[1], rel=1e-5)
    elif number == 3:
        yield from ((z == 0).all(), f"{run.at('loss', 0):.1f}", run.at("loss", 100) < 0.001)
    elif number == 4:
        yield from (winner(after) == 19, 19 in run.classes.distinct(0), percent(before[19]), percent(after[19]))
        yield from (before[t] == pytest.approx(before[19], rel=1e-5) and after[t] < before[t] for t in common)
    elif number == 5:
        yield f"from {percent(run.common(0))} to {percent(run.common(20))}"
    elif number == 6:
        yield from (run.ranks(100) == [True, True], run.falls(0, 100).format("to"))
    elif number == 7:
        later = [run.entropy(int(s)) for s in run.steps if s >= 100]
        yield np.ptp(later) < 0.1 * abs(run.entropy(100) - run.entropy(0))
    elif number == 8:
        since = z[run.steps >= 500]
        yield from (run.marks == [{"step": 500, "eta_y": 1.0, "eta_z": 3.0}], abs(since - since[0]).max() < 0.1)
    elif number in (9, 10):
        slow = film("paper", number, against=True)
        yield from (run.eta[0] == 10 * slow.eta[0], run.at("loss", 5) < slow.at("loss", 5))
        yield from [[f"{run.entropy(1000):.2f} instead of {slow.entropy(1000):.2f}"],
                    [f"keep {percent(run.common(1000))}", f"one {percent(slow.common(1000))}"]][number - 9]  # fmt: skip
    elif number == 11:
        yield from ((len(run.classes.queries), run.classes.n_classes) == (3, 6), np.ptp(run.at("z", 0)) > 0)
        yield from (winner(c(2000, k)) in run.classes.distinct(k) for k in range(6))
    elif number == 12:
        moved, usual = (abs(r.rows["attention"] - r.rows["attention"][0]).max() for r in (run, film("paper", 2)))
        yield from (run.meets_assumptions("theorem-1-beta", "theorem-2a", "theorem-3-monotone", "theorem-4-growth"),
                    moved < 0.002, 50 < usual / moved < 200)  # fmt: skip


def holds(number, run):
    common, distinct = run.classes.common.tolist(), range(10, 20)
    if number == 1:
        names, z = ("theorem-2a", "theorem-2b"), run.z(3000)
        yield from (run.statuses(*names) == ["holds", "holds"], run.meets_assumptions(*names),
                    [t for t, v in z.items() if v < 0] == common, sum(v > 0 for v in z.values()) == 10)  # fmt: skip
    elif number == 2:
        yield from (run.statuses("conservation-z") == ["holds"], abs(run.rows["z"].sum(-1)).max() < 1e-4)
    elif number == 3:
        before, after = run.attention(0, 0), run.attention(1000, 0)
        yield "from {} to {}".format(*(percent(sum(c[t] for t in common)) for c in (before, after)))
        yield from (winner(after) in common, sum(after[t] > before[t] for t in common) == 3,
                    sum(after[t] > 1.5 * before[t] for t in common) == 3)  # fmt: skip
    elif number == 4:
        yield run.reading.setup["context"] == 128
        yield from ([t for t in distinct if run.z(1000, q)[t + 10 * q] < 0] == [10] for q in range(2))
    elif number == 5:
        claim = run.claims["theorem-4-growth"]
        yield from (claim["status"] == "fails", run.meets_assumptions("theorem-4-growth"),
                    abs(int(claim["quantity"].split(" at t = ")[1].split()[0].strip(",.:;")) - 330) < 10,
                    f"{claim['predicted']:.5f}", f"{claim['measured']:.4f}", f"{run.at('growth', 330).mean():.4f}",
                    round(claim["measured"] / claim["predicted"]) == 8,
                    line(5, 0, claim["curve"]["x"], claim["curve"]["predicted"]))  # fmt: skip
    elif number == 6:
        instead = run.claims["theorem-4-growth"]["instead"]
        four, memory = lecture.load_deck("holds")["beat"][5]["theory"]
        yield from ((instead["name"], instead["status"]) == ("memory", "holds"), instead["off"] < 0.05,
                    (four["holds"], memory["holds"]) == (False, True),
                    four == lecture.load_deck("holds")["beat"][4]["theory"][0],
                    line(6, 1, [0, *instead["x"]], [0, *instead["y"]]))  # fmt: skip
    elif number == 7:
        yield run.at("growth", 3000).mean() / run.at("growth", 300).mean() == pytest.approx(2, abs=0.2)
    elif number == 8:
        slow = film("holds", 8, against=True)
        yield run.eta == tuple(pytest.approx(10 * rate) for rate in slow.eta)
        yield f"{slow.entropy(1000):.2f} at step 1000 after {run.entropy(100):.2f} at step 100"


def adam(number, run):
    distinct, sgd = range(10, 20), film("adam", 1)
    if number == 1:
        yield run.ranks(500) == [True, True]
    elif number == 2:
        z = run.z(500)
        yield from (winner(z) == 10, f"{z[10]:.1f}", z[19] < 0, run.ranks(500, sign=-1)[0])
    elif number == 3:
        moves = np.abs(list(run.z(2).values()))
        yield from ((run.at("z", 1) == 0).all(), moves == pytest.approx(moves[0], rel=1e-3))
        yield run.classes.query[0] == 30
    elif number in (4, 5):
        yield film("adam", number, against=True).rows["entropy"].tolist() == sgd.rows["entropy"].tolist()
        yield from [[sgd.falls(0, 500).format("down to"), f"up to {run.entropy(500):.2f}", f"{np.log(10):.2f}"],
                    [f"{percent(run.common(500))} under Adam and {percent(sgd.common(500))} under SGD",
                     max(run.common(500), sgd.common(500)) < run.common(0)]][number - 4]  # fmt: skip
    elif number == 6:
        z = np.array([run.z(500)[t] for t in distinct])
        yield from (winner(run.attention(500, 0)) == winner(sgd.attention(500, 0)) == 19, run.common(500) < 0.001,
                    np.ptp(z) < 0.1 * z.mean())  # fmt: skip
    elif number == 7:
        yield from (
            run.reading.setup["momentum"] == 0,
            run.ranks(1000) == [True, True],
            run.common(100) > sgd.common(100),
        )
    elif number == 8:
        of_theorems = [c for c in run.claims.values() if c["reference"].startswith(("Theorem", "Corollary"))]
        yield from (len(of_theorems) > 10, {claim["status"] for claim in of_theorems} == {"not applicable"})


@pytest.mark.parametrize("facts", [paper, holds, adam], ids=lambda facts: facts.__name__)
def test_every_beat_of_the_shipped_decks_is_checked_on_its_run(facts):
    beats = lecture.load_deck(facts.__name__)["beat"]
    for number, beat in enumerate(beats, 1):
        hold(beat["sentence"], facts(number, film(facts.__name__, number)))
    assert sum(beat["predict"] is not None for beat in beats) == {"paper": 2, "holds": 1, "adam": 2}[facts.__name__]


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

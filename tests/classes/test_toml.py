"""Classes as TOML: exact round trips, whole files or none, every mistake said in one sentence."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refused
from scansnap.classes import SequenceClasses
from scansnap.classes.toml import load_table

EXPLICIT = """\
vocab_size = 4
[[class]]
query = 3
next_token = 1
p_class = 0.25
tokens = [1, 0]
p_context = [0.75, 0.25]
[[class]]
query = 3
next_token = 2
p_class = 0.75
tokens = [2]
p_context = [1]
"""


def read_text(folder: Path, text: str) -> SequenceClasses:
    path = folder / "classes.toml"
    path.write_text(text, encoding="utf-8")
    return SequenceClasses.from_toml(path)


# --- reading ---------------------------------------------------------------------------------------------


def test_explicit_form(tmp_path: Path) -> None:
    expected = SequenceClasses([[0.25, 0.75, 0, 0], [0, 0, 1, 0]], [3, 3], [1, 2], [0.25, 0.75])
    assert read_text(tmp_path, EXPLICIT) == expected
    assert SequenceClasses.from_toml(str(tmp_path / "classes.toml")) == expected


def test_p_class_may_be_left_out(tmp_path: Path) -> None:
    text = EXPLICIT.replace("p_class = 0.25\n", "").replace("p_class = 0.75\n", "")
    assert read_text(tmp_path, text).p_class.tolist() == [0.5, 0.5]


def test_presets(tmp_path: Path) -> None:
    assert read_text(tmp_path, 'preset = "syn-small"') == SequenceClasses.syn_small()
    assert read_text(tmp_path, 'preset = "syn-medium"\nn_queries = 3') == SequenceClasses.syn_medium(3)
    text = 'preset = "synthetic"\ndistinct = 2\ndistinct_weights = [1, 0.5]\ncommon_weight = 2'
    expected = SequenceClasses.synthetic(distinct=2, distinct_weights=[1, 0.5], common_weight=2)
    assert read_text(tmp_path, text) == expected


def test_classes_table_of_a_run_file(tmp_path: Path) -> None:
    text = 'steps = 100\n[classes]\npreset = "syn-medium"\nn_queries = 5\n[rates]\neta_y = 1\n'
    assert read_text(tmp_path, text) == SequenceClasses.syn_medium(5)
    explicit = EXPLICIT.replace("[[class]]", "[[classes.class]]").replace(
        "vocab_size", "steps = 3\n[classes]\nvocab_size"
    )
    assert read_text(tmp_path, explicit) == read_text(tmp_path, EXPLICIT)
    assert load_table(tmp_path / "classes.toml")["vocab_size"] == 4


def changed(old: str, new: str) -> str:
    assert old in EXPLICIT
    return EXPLICIT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        # keys nobody reads
        (changed("tokens = [2]", "tokens = [2]\nnext = 2"), "next"),
        ('preset = "syn-medium"\nn_query = 3', "the setting 'n_query' of preset syn-medium"),
        ('preset = "syn-small"\nvocab_size = 34', "the setting 'vocab_size' of preset syn-small"),
        ('preset = "syn-small"\nname = "mine"', "the setting 'name' of preset syn-small"),
        # missing keys
        ("", ("class", None)),
        ("vocab_size = 4", ("class", None)),
        (changed("vocab_size = 4\n", ""), ("vocab_size", None)),
        (changed("query = 3\n", ""), ("query of class 0", None)),
        (changed("next_token = 2\n", ""), ("next_token of class 1", None)),
        (changed("tokens = [2]\n", ""), ("tokens of class 1", None)),
        (changed("p_context = [1]\n", ""), ("p_context of class 1", None)),
        (changed("p_class = 0.25\n", ""), ("p_class of class 0", None)),
        (changed("p_class = 0.75\n", ""), ("p_class of class 1", None)),
        # wrong types
        ("classes = 3", "classes"),
        ("class = 3", "class"),
        ("class = []", "class"),
        ("class = [1]", "class"),
        ("[class]\nquery = 3", "class"),
        ("preset = 3", "preset"),
        ('preset = "syn"', "preset"),
        ('preset = "syn-medium"\nn_queries = 1.0', "n_queries"),
        (changed("vocab_size = 4", 'vocab_size = "4"'), "vocab_size"),
        (changed("vocab_size = 4", "vocab_size = 4.0"), "vocab_size"),
        (changed("vocab_size = 4", "vocab_size = true"), ("vocab_size", True)),
        (changed("query = 3", "query = true"), ("query of class 0", True)),
        (changed("query = 3", "query = 3.0"), "query of class 0"),
        (changed("query = 3", "query = [1, 2]"), "query of class 0"),
        (changed("next_token = 2", 'next_token = "2"'), "next_token of class 1"),
        (changed("p_class = 0.75", "p_class = true"), ("p_class of class 1", True)),
        (changed("p_class = 0.75", "p_class = [0.75]"), "p_class of class 1"),
        (changed("tokens = [2]", "tokens = 2"), "tokens of class 1"),
        (changed("tokens = [2]", "tokens = [2.0]"), "tokens of class 1"),
        (changed("tokens = [1, 0]", "tokens = [true, 0]"), "tokens of class 0"),
        (changed("tokens = [1, 0]", "tokens = [[1, 0], [1]]"), "tokens of class 0"),
        (changed("p_context = [1]", "p_context = 1"), "p_context of class 1"),
        (changed("[0.75, 0.25]", "[0.75, '0.25']"), "p_context of class 0"),
        (changed("p_context = [1]", "p_context = [true]"), "p_context of class 1"),
        # wrong values
        (changed("query = 3", "query = 4"), "query"),
        (changed("tokens = [2]", "tokens = [-1]"), "tokens of class 1"),
        (changed("next_token = 2", "next_token = 1"), "next_token"),
        (changed("[0.75, 0.25]", "[0.75, nan]"), "P(·|0)"),
        (changed("[0.75, 0.25]", "[0.75, inf]"), "P(·|0)"),
        (changed("[0.75, 0.25]", "[1.25, -0.25]"), "P(·|0)"),
        (changed("[0.75, 0.25]", "[0.5, 0.25]"), "the sum of P(·|0)"),
        (changed("[0.75, 0.25]", "[1]"), "class 0"),
        (changed("p_class = 0.75", "p_class = 0.5"), "the sum of p_class"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, field: str) -> None:
    with refused(field):
        read_text(tmp_path, text)


def test_a_misspelt_key_of_a_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with refused("vocabsize", 4):
        read_text(tmp_path, "vocabsize = 4\n" + EXPLICIT)


def test_from_table_names_where_it_stands() -> None:
    with refused("presets", 1):
        SequenceClasses.from_table({"presets": 1}, where="[classes] of run.toml")


# --- files that cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["vocab_size = ", "vocab_size 4", "a = 1\na = 2", "a = " + "1" * 5000])
def test_bad_syntax(tmp_path: Path, text: str) -> None:
    with refused("the TOML file", f"{tmp_path}/classes.toml"):
        read_text(tmp_path, text)


def test_bad_syntax_says_where(tmp_path: Path) -> None:
    with refused("the TOML file", names="line 2, column 7"):
        read_text(tmp_path, "vocab_size = 4\nclass 3\n")


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with refused("the TOML file", str(path)):
        SequenceClasses.from_toml(path)
    with refused("the TOML file", str(path)):
        SequenceClasses.from_toml(str(path))


def test_directory_instead_of_file(tmp_path: Path) -> None:
    with refused("the TOML file", str(tmp_path), names="Is a directory"):
        SequenceClasses.from_toml(tmp_path)


def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "classes.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with refused("the TOML file", str(path)):
        SequenceClasses.from_toml(path)


# --- round trips -----------------------------------------------------------------------------------------


def bits(classes: SequenceClasses) -> list[bytes]:
    arrays = (classes.p_context, classes.p_class, classes.query, classes.next_token)
    return [array.tobytes() for array in arrays]


@st.composite
def distributions(draw: st.DrawFn, size: int) -> np.ndarray:
    """Probabilities with full mantissas; all but the first may be as tiny as float64 goes."""
    weights = np.array(draw(st.lists(st.floats(1e-9, 1.0), min_size=size, max_size=size)))
    probs = weights / weights.sum()
    tiny = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    tiny[0] = False
    probs[tiny] = draw(st.floats(5e-324, 1e-20))
    return probs / probs[~tiny].sum() * draw(st.sampled_from([1.0, 1 + 3e-7, 1 - 1e-12, 1 + 1e-13]))


@st.composite
def random_classes(draw: st.DrawFn) -> SequenceClasses:
    k = draw(st.integers(1, 4))
    m = draw(st.integers(max(k, 12), 40))
    sizes = [draw(st.integers(1, 12)) for _ in range(k)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return SequenceClasses.from_support(
        [rng.choice(m, size, replace=False) for size in sizes],
        [draw(distributions(size)) for size in sizes],
        vocab_size=m,
        query=rng.integers(m, size=k),
        next_token=rng.choice(m, k, replace=False),
        p_class=draw(st.one_of(st.none(), distributions(k))),
    )


@settings(max_examples=80, deadline=None)
@given(classes=random_classes())
def test_round_trip_changes_no_bit(tmp_path_factory: pytest.TempPathFactory, classes: SequenceClasses) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.toml"
    classes.to_toml(path)
    again = SequenceClasses.from_toml(path)
    assert again == classes
    assert bits(again) == bits(classes)
    assert again.as_toml() == path.read_text(encoding="utf-8")


def test_tiny_probabilities_survive(tmp_path: Path) -> None:
    probs = [1.0, 5e-324, 2.2250738585072014e-308, 1e-17]
    classes = SequenceClasses.from_support(
        [[0, 1, 2, 3]], [probs], vocab_size=5, query=[4], next_token=[0], p_class=[1]
    )
    classes.to_toml(tmp_path / "tiny.toml")
    assert SequenceClasses.from_toml(tmp_path / "tiny.toml").support(0)[1].tolist() == probs


def test_rows_at_the_edge_of_being_rescaled_survive(tmp_path: Path) -> None:
    """A row off by 1e-12 is kept or rescaled depending on its sum: the order of summation must not matter."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        probs = np.append(rng.dirichlet(np.ones(30)), [0.0, 0.0])
        probs[0] += 1e-12
        classes = SequenceClasses.from_support([rng.permutation(32)], [probs], vocab_size=32, query=[0], next_token=[1])
        classes.to_toml(tmp_path / "edge.toml")
        assert SequenceClasses.from_toml(tmp_path / "edge.toml") == classes


def test_presets_survive(tmp_path: Path) -> None:
    for classes in (
        SequenceClasses.syn_small(),
        SequenceClasses.syn_medium(10),
        SequenceClasses.zipf(vocab=300, overlap=0.3),
    ):
        classes.to_toml(tmp_path / "preset.toml")
        assert bits(SequenceClasses.from_toml(tmp_path / "preset.toml")) == bits(classes)


# --- writing ---------------------------------------------------------------------------------------------


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "classes.toml"
    for classes in (SequenceClasses.syn_medium(3), SequenceClasses.syn_small()):
        classes.to_toml(str(path))
        assert os.listdir(tmp_path) == ["classes.toml"]
        assert SequenceClasses.from_toml(path) == classes


def test_a_failing_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "classes.toml"
    SequenceClasses.syn_small().to_toml(path)
    genuine = Path.write_bytes

    def disk_full(self: Path, data: bytes) -> int:
        genuine(self, data[:50])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", disk_full)
        with refused("the TOML file", str(path), names="No space left on device"):
            SequenceClasses.syn_medium(3).to_toml(path)
    assert os.listdir(tmp_path) == ["classes.toml"]
    assert SequenceClasses.from_toml(path) == SequenceClasses.syn_small()


@pytest.mark.parametrize("where", ["folder", "folder/" + "n" * 300, "."])
def test_writing_where_no_file_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with refused("the TOML file", str(where)):
        SequenceClasses.syn_small().to_toml(where)
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == []


# --- words -------------------------------------------------------------------------------------------------

WORDS = EXPLICIT.replace("vocab_size = 4\n", 'vocab_size = 4\nwords = ["the", "cat", "sat", "<eos>"]\n')
AWKWARD = ['"', "\\", "\n[[class]]\n", "\x00\x1f\x7f\x85", "😀 wörd", "", "[bold]", "#", "\u2028", "'''"]


def test_words_are_read_and_written(tmp_path: Path) -> None:
    classes = read_text(tmp_path, WORDS)
    assert classes.words == ("the", "cat", "sat", "<eos>")
    classes.to_toml(tmp_path / "again.toml")
    again = SequenceClasses.from_toml(tmp_path / "again.toml")
    assert (again, again.words) == (classes, classes.words)
    assert read_text(tmp_path, EXPLICIT).words is None


def test_how_tokens_read_decides_nothing(tmp_path: Path) -> None:
    with_words, without = read_text(tmp_path, WORDS), read_text(tmp_path, EXPLICIT)
    assert with_words == without
    assert with_words.as_toml(words=False) == without.as_toml()


def come_back(words: list[str]) -> bool:
    classes = SequenceClasses([[1 / len(words)] * len(words)], query=[0], next_token=[1], words=words)
    return SequenceClasses.from_table(tomllib.loads(classes.as_toml()), "text").words == tuple(words)


@given(st.lists(st.text(), min_size=2, max_size=12, unique=True))
@settings(max_examples=50, deadline=None)
def test_any_words_come_back(words: list[str]) -> None:
    assert come_back(words)


def test_awkward_words_come_back() -> None:
    assert come_back(AWKWARD)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ('"the"', "words"),
        ('["the", "cat"]', "words"),
        ('["the", "cat", 3, "a"]', "the word of token 2"),
        ('["the", "cat", "the", "a"]', "the word of token 2"),
    ],
)
def test_wrong_words_are_refused(tmp_path: Path, words: str, field: str) -> None:
    text = EXPLICIT.replace("vocab_size = 4\n", f"vocab_size = 4\nwords = {words}\n")
    with refused(field):
        read_text(tmp_path, text)


def test_half_characters_are_refused() -> None:
    with refused("the word of token 1", "\ud800"):
        SequenceClasses([[1.0, 0]], query=[0], next_token=[1], words=["a", "\ud800"])

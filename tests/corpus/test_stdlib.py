"""The standard library's docstrings: what is taken from a module, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from refusals import refused
from scansnap.corpus import load_corpus
from scansnap.corpus.sources import SPLITS
from scansnap.corpus.stdlib import paragraphs, split_of, standard_library

CODE = '''"""First line.

Second paragraph
over two lines."""
raise SystemExit("never run")
class A:
    "It's A."
    def f(self):
        """Return f(x)."""
        return "no docstring"
    async def g(self):
        x = "neither"
if True:
    def h(): "Nested, too."
"""a string in between"""
bad = "\\d"
'''


def test_paragraphs_in_order_as_words() -> None:
    assert list(paragraphs(CODE)) == [
        "first line .",
        "second paragraph over two lines .",
        "it's a .",
        "return f ( x ) .",
        "nested , too .",
    ]


@pytest.mark.parametrize("code", ["def f(:", "\0", ""])
def test_code_that_does_not_parse_is_passed_over(code: str) -> None:
    assert list(paragraphs(code)) == []


def test_modules_are_split_by_path_and_tests_left_out(tmp_path: Path) -> None:
    names = [f"pack/m{i}.py" for i in range(30)]
    for name in [*names, "test/test_x.py", "site-packages/other.py"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"""About {path.stem}."""')
    source = standard_library(tmp_path)
    words_by_split = {split: "".join(source.blocks(split)).split() for split in SPLITS}
    for name in names:
        word = Path(name).stem
        assert [split for split in SPLITS if word in words_by_split[split]] == [split_of(name)]
    everything = {word for words in words_by_split.values() for word in words}
    assert not everything & {"test_x", "other"}


def test_split_is_eight_to_one_to_one() -> None:
    splits = [split_of(f"module{i}.py") for i in range(10_000)]
    # five standard deviations of a binomial number
    assert splits.count("train") == pytest.approx(8000, abs=5 * (10_000 * 0.8 * 0.2) ** 0.5)
    assert splits.count("test") == pytest.approx(1000, abs=5 * (10_000 * 0.1 * 0.9) ** 0.5)


def test_fingerprint_knows_content_and_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"A."')
    before = standard_library(tmp_path).fingerprint()
    assert standard_library(tmp_path).fingerprint() == before
    (tmp_path / "a.py").write_text('"B."')
    other = standard_library(tmp_path).fingerprint()
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({before, other, standard_library(tmp_path).fingerprint()}) == 3


def test_no_modules(tmp_path: Path) -> None:
    with refused("data", "stdlib", names=".py"):
        standard_library(tmp_path)


@pytest.mark.integration
def test_this_python_has_enough_text() -> None:
    corpus = load_corpus("stdlib", use_cache=False)
    assert corpus.train.size > 200_000
    assert min(corpus.valid.size, corpus.test.size) > 10_000
    assert "docstrings" in corpus.title
    assert {"the", "return"} <= set(corpus.words[:60])

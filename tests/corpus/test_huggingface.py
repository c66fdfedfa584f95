"""WikiText by name, from a hub that is made here: pinned, compared, kept, and the same as a folder of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import scansnap.corpus.huggingface as hub
from refusals import refused
from scansnap.corpus import find_corpus, load_corpus
from scansnap.corpus.huggingface import THEIR_NAMES, PublishedSplit, checksum_of
from scansnap.corpus.sources import SPLITS, TextSource

TEXT = {"train": ["", " b a \n", " c ", ""], "valid": ["a\n"], "test": ["c\n"]}


def text(source: TextSource, split: str) -> str:
    return "".join(source.blocks(split))


class Rows:
    """The part of a ``datasets`` table that is used: a slice is a dictionary of columns."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, some: slice) -> dict[str, list[str]]:
        return {"text": self.lines[some]}


class Hub:
    """In place of the package ``datasets``; remembers what it was asked for."""

    def __init__(self, lines: dict[str, list[str]]) -> None:
        self.lines, self.asked = lines, []  # type: ignore[var-annotated]

    def load_dataset(self, *names: str, revision: str | None = None) -> dict[str, Rows]:
        self.asked.append((*names, revision))
        return {THEIR_NAMES[split]: Rows(lines) for split, lines in self.lines.items()}


def published(lines: list[str]) -> PublishedSplit:
    return PublishedSplit(len(lines), sum(len(line.encode()) for line in lines), checksum_of(lines))


@pytest.fixture
def small_hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A hub with a text of a few words, which passes as WikiText-2 here."""
    small = Hub({split: list(lines) for split, lines in TEXT.items()})
    monkeypatch.setitem(sys.modules, "datasets", small)  # type: ignore[arg-type]
    monkeypatch.setitem(hub.PUBLISHED, "wikitext-2", {split: published(lines) for split, lines in TEXT.items()})
    monkeypatch.setattr(hub, "ROWS", 2)
    return small


def test_one_revision_is_asked_for_and_rows_are_lines(small_hub: Hub) -> None:
    source = find_corpus("wikitext-2")
    assert small_hub.asked == [("Salesforce/wikitext", "wikitext-2-v1", hub.REVISION)]
    assert len(hub.REVISION) == 40
    assert (source.name, source.title) == ("wikitext-2", "WikiText-2")
    assert (text(source, "train"), text(source, "valid")) == ("\n b a \n c \n\n", "a\n")
    assert load_corpus(source).train.size == 3 + 4


def test_what_was_fetched_is_kept_and_needs_neither_hub_nor_package(
    small_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_corpus("wikitext-2")
    monkeypatch.setitem(sys.modules, "datasets", None)
    again = find_corpus("wikitext-2")
    assert [text(again, split) for split in SPLITS] == [text(first, split) for split in SPLITS]
    assert again.fingerprint() == first.fingerprint()
    assert len(small_hub.asked) == 1


def test_a_damaged_copy_is_fetched_again(small_hub: Hub, own_cache: Path) -> None:
    find_corpus("wikitext-2")
    cached = next(own_cache.glob("wikitext-2-*/train.txt"))
    cached.write_text("another\n")
    assert text(find_corpus("wikitext-2"), "train") == "\n b a \n c \n\n"
    assert len(small_hub.asked) == 2


def test_without_a_cache_it_is_read_from_the_table(small_hub: Hub, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "a file"))
    source = find_corpus("wikitext-2")
    assert text(source, "train") == "\n b a \n c \n\n"
    assert load_corpus(source).train.size == 3 + 4


@pytest.mark.parametrize(
    "lines", [["", " b a \n", " c "], ["", " b a \n", " d ", ""], ["", " b a  \n", " c ", ""]],
    ids=["a line less", "another word", "another blank"],
)  # fmt: skip
def test_another_text_is_refused_and_not_kept(small_hub: Hub, own_cache: Path, lines: list[str]) -> None:
    small_hub.lines["train"] = lines
    with refused("data", names="the train split of Salesforce/wikitext at b08601e04326"):
        find_corpus("wikitext-2")
    assert not list(own_cache.glob("wikitext-2-*"))


def test_by_name_and_from_a_folder_it_is_the_same_corpus(small_hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for split, lines in TEXT.items():  # as its authors wrote it: a blank stands in a line without words
        (folder / f"{split}.txt").write_text("".join((line.rstrip("\n") or " ") + "\n" for line in lines))
    named, local = load_corpus("wikitext-2"), load_corpus(folder)
    assert named.words == local.words
    for split in SPLITS:
        np.testing.assert_array_equal(named.split(split), local.split(split))


def test_the_checksum_is_that_of_the_words_in_their_lines() -> None:
    assert checksum_of([" b a ", "c", ""]) == checksum_of(["", "b  a", " c \n"])
    assert len({checksum_of(lines) for lines in (["b a"], ["a b"], ["b", "a"], ["b a", ""], ["b a", "b a"])}) == 5


def test_the_published_checksums_are_those_of_the_folder(wikitext: Path) -> None:
    for split, content in hub.PUBLISHED["wikitext-2"].items():
        lines = text(find_corpus(wikitext), split).split("\n")[:-1]
        assert published([f"{line}\n" if line.strip() else "" for line in lines]) == content


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # makes the import fail
    with refused("data", names="pip install 'scansnap[text]'"):
        find_corpus("wikitext-2")


def test_out_of_reach_with_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: str, **__: str) -> None:
        raise ConnectionError("no route\nto host.")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with refused("data", names=("a folder with train.txt, valid.txt and test.txt", "(no route to host)")):
        find_corpus("wikitext-103")

"""Sources: what a path or name leads to, how a single file is cut, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scansnap.corpus.sources as sources
from refusals import refused
from scansnap.corpus import find_corpus, load_corpus
from scansnap.corpus.sources import SPLITS, find_corpora


def text(source: sources.TextSource, split: str) -> str:
    return "".join(source.blocks(split))


def test_folder(folder: Path) -> None:
    source = find_corpus(folder)
    assert (source.name, source.title) == ("small", "small")
    assert text(source, "train") == "b a b\n\nc b a <unk>\n"
    assert text(source, "test") == "z b\n"  # a last line without its end gets one


def test_basic_english_is_lower_case_with_punctuation_apart(folder: Path) -> None:
    (folder / "train.txt").write_text('The "cat", it\'s (here); no?\nB: a.\n', encoding="utf-8")
    source = find_corpus(f"basic_english:{folder}")
    assert [line.split() for line in text(source, "train").splitlines()] == [
        ["the", "cat", ",", "it", "'", "s", "(", "here", ")", "no", "?"], ["b", "a", "."]
    ]  # fmt: skip
    assert source.title == "small, basic_english"
    assert source.fingerprint() != find_corpus(folder).fingerprint()
    assert load_corpus(source, use_cache=False).train.size == 11 + 1 + 3 + 1
    (folder / "train.txt").write_bytes(b"a \xff\n")
    with refused("data"):
        text(source, "train")


def test_several_sources_by_a_list_or_a_folder_of_folders(folder: Path) -> None:
    assert [source.name for source in find_corpora([folder, "stdlib"])] == ["small", "stdlib"]
    assert [source.name for source in find_corpora(folder.parent)] == ["small"]
    assert [source.title for source in find_corpora(f"basic_english:{folder.parent}")] == ["small, basic_english"]
    assert [source.name for source in find_corpora(folder)] == ["small"]


def test_folder_of_a_known_name_has_its_title(folder: Path) -> None:
    known = folder.rename(folder.with_name("wikitext-2"))
    assert find_corpus(str(known)).title == "WikiText-2"


def test_folder_as_wikitext_is_packed(folder: Path) -> None:
    for split in SPLITS:
        (folder / f"{split}.txt").rename(folder / f"wiki.{split}.tokens")
    assert text(find_corpus(folder), "valid") == "a c\n"


def test_variable_is_the_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_corpus().name == "stdlib"
    monkeypatch.setenv("SCANSNAP_DATA", str(folder))
    assert find_corpus().name == "small"
    assert find_corpus("stdlib").name == "stdlib"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    lines=st.lists(st.text("ab é", max_size=4), min_size=3, max_size=45),
    block=st.integers(1, 30),
    end=st.sampled_from(["", "\n"]),
)
def test_single_file_is_cut_by_lines(tmp_path: Path, lines: list[str], block: int, end: str) -> None:
    lines[-1] += "x"  # so that the last line is one with or without its end
    path = tmp_path / "one.txt"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    held_out = max(1, len(lines) // 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK", block)  # cuts fall inside, at the end of and between blocks
        source = find_corpus(path)
        parts = [text(source, split).split("\n")[:-1] for split in SPLITS]
    assert [line for part in parts for line in part] == lines
    assert [len(part) for part in parts[1:]] == [held_out, held_out]


def test_blocks_are_whole_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 3)
    blocks = list(find_corpus(folder).blocks("train"))
    assert len(blocks) > 1
    assert all(block.endswith("\n") for block in blocks)
    assert "".join(blocks) == "b a b\n\nc b a <unk>\n"


def test_byte_order_mark_is_no_word(folder: Path) -> None:
    (folder / "valid.txt").write_bytes(b"\xef\xbb\xbfa c\r\n")
    assert load_corpus(folder).valid.tolist() == load_corpus(folder).vocabulary.encode("a c\n").tolist()


def test_several_files_for_a_split(folder: Path) -> None:
    (folder / "train").mkdir()
    (folder / "train.txt").rename(folder / "train" / "b.txt")
    (folder / "train" / "a.txt").write_text("first")  # its line gets an end
    (folder / "valid.txt").rename(folder / "valid-2.txt")
    (folder / "valid-1.txt").write_bytes(b"\xef\xbb\xbfmark\n")
    source = find_corpus(folder)
    assert text(source, "train") == "first\nb a b\n\nc b a <unk>\n"
    assert text(source, "valid") == "mark\na c\n"
    (folder / "valid-2.txt").write_bytes(b"\xff\n")
    with refused("data", names="valid-2.txt (byte 0xff at 0)"):
        text(source, "valid")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(files=st.lists(st.lists(st.text("ab", min_size=1, max_size=3), max_size=9), min_size=1, max_size=5))
def test_folder_of_other_files_is_cut_as_one_text(tmp_path_factory: Any, files: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("several")
    for number, lines in enumerate(files):
        (path / f"{number}.txt").write_text("\n".join(lines))
    (path / "whole").mkdir()
    (path / "whole" / "one.txt").write_text("".join(line + "\n" for lines in files for line in lines))
    if sum(map(len, files)) < 3:
        with refused("data"):
            find_corpus(path)
        return
    single, several = find_corpus(path / "whole" / "one.txt"), find_corpus(path)
    assert [text(single, split) for split in SPLITS] == [text(several, split) for split in SPLITS]
    assert single.fingerprint() == several.fingerprint()


def test_several_sources_are_one_text(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("x\ny\nz\n")
    for data in (f"{folder}, {tmp_path / 'more.txt'}", [folder, tmp_path / "more.txt"]):
        source = find_corpus(data)
        assert source.title == "small + more"
        assert [text(source, split) for split in SPLITS] == ["b a b\n\nc b a <unk>\nx\n", "a c\ny\n", "z b\nz\n"]
    assert find_corpus(f"{tmp_path / 'more.txt'},{folder}").fingerprint() != source.fingerprint()


def test_what_is_no_text_is_refused(folder: Path, tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "book.pdf").write_bytes(b"%PDF")
    (tmp_path / "two.txt").write_text("a\nb\n")
    for data, names in (
        (tmp_path / "nowhere", ("nowhere", "wikitext-2")),
        (f"{folder},nowhere", "nowhere"),
        ([], ()),
        (tmp_path / "book.pdf", ".txt"),
        (tmp_path / "two.txt", "two.txt"),
    ):
        with refused("data", names=names):
            find_corpus(data)
    source = find_corpus(folder)
    with refused("split", names="train, valid, test"):
        text(source, "dev")
    for content in (b"", b" \n\n"):
        (folder / "test.txt").write_bytes(content)
        with refused("data", names="test.txt"):
            load_corpus(folder)
    assert list(own_cache.iterdir()) == []
    for split in ("train", "valid"):
        (folder / f"{split}.txt").unlink()
        with refused("data", names=f"{split}.txt"):
            text(source, split)  # the source was made before
    (folder / "train.txt").write_text("a\n")
    with refused("data", names="valid.txt"):
        find_corpus(folder)


def test_bad_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 2)
    (folder / "train.txt").write_bytes(b"good\ngood\nb\xffd\n")
    with refused("data", names=("train.txt (byte 0xff at 11)", "UTF-8")):
        load_corpus(folder)

"""The cache: used when it can be trusted, made anew when not, never in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import scansnap.corpus.corpus as corpus_module
from scansnap.corpus import Corpus, cache, find_corpus, load_corpus
from scansnap.corpus.encoding import EncodedText, map_split
from scansnap.corpus.sources import SPLITS
from scansnap.corpus.vocabulary import WordCounter


def same(a: Corpus, b: Corpus) -> bool:
    return a.vocabulary == b.vocabulary and all(np.array_equal(a.split(s), b.split(s)) for s in SPLITS)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every encoding, so that a test sees whether the cache was used."""
    times: list[int] = []

    def encode(*args: object, **kwargs: object) -> object:
        times.append(1)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    real = corpus_module.encode
    monkeypatch.setattr(corpus_module, "encode", encode)
    return times


def test_second_time_from_the_cache(folder: Path, encoded: list[int]) -> None:
    first = load_corpus(folder)
    assert same(first, load_corpus(folder))
    assert len(encoded) == 1
    assert first.train.dtype == load_corpus(folder).train.dtype == np.uint16


def test_without_cache(folder: Path, own_cache: Path, encoded: list[int]) -> None:
    assert same(load_corpus(folder, use_cache=False), load_corpus(folder, use_cache=False))
    assert len(encoded) == 2
    assert not own_cache.exists()


def test_cache_of_another_folder(folder: Path, tmp_path: Path, own_cache: Path) -> None:
    load_corpus(folder, cache_dir=tmp_path / "mine")
    assert len(list((tmp_path / "mine" / "corpus").iterdir())) == 1
    assert not own_cache.exists()


@pytest.mark.parametrize("split", SPLITS)
def test_other_content_is_another_entry(folder: Path, own_cache: Path, encoded: list[int], split: str) -> None:
    load_corpus(folder)
    file = folder / f"{split}.txt"
    stat = file.stat()
    file.write_bytes(file.read_bytes().replace(b"b", b"a").replace(b"a c", b"c c"))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the same size and time, other bytes
    assert file.stat().st_size == stat.st_size
    changed = load_corpus(folder)
    assert len(encoded) == len(list(own_cache.iterdir())) == 2
    assert same(changed, load_corpus(folder, use_cache=False))


def test_text_moved_between_splits_is_another_entry(folder: Path, encoded: list[int]) -> None:
    (folder / "valid.txt").write_text("a\nc\n")
    (folder / "test.txt").write_text("b\n")
    load_corpus(folder)
    (folder / "valid.txt").write_text("a\n")
    (folder / "test.txt").write_text("c\nb\n")
    assert load_corpus(folder).valid.size == 2
    assert len(encoded) == 2


def test_other_settings_are_other_entries(folder: Path, own_cache: Path, encoded: list[int]) -> None:
    for settings in ({}, {"min_count": 1}, {"min_count": 2}, {"max_words": 3}):
        load_corpus(folder, **settings)
        assert same(load_corpus(folder, **settings), load_corpus(folder, use_cache=False, **settings))
    assert len(list(own_cache.iterdir())) == 4


def test_key_knows_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.entry_name("a b/../c", "0", min_count=1)
    assert "/" not in before
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert cache.entry_name("a b/../c", "0", min_count=1)[-32:] != before[-32:]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "flipped bit": flip_a_bit,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize(
    ("file", "damage"),
    [("train.npy", "flipped bit"), ("valid.npy", "cut short"), ("entry", "empty"), ("entry", "gone")],
)
def test_damage_is_noticed_and_mended(
    folder: Path, own_cache: Path, encoded: list[int], file: str, damage: str
) -> None:
    load_corpus(folder)
    good = load_corpus(folder, use_cache=False)  # in memory: a map would be damaged with its file
    encoded.clear()
    (entry,) = own_cache.iterdir()
    DAMAGES[damage](entry / file)
    assert same(load_corpus(folder), good)
    assert len(encoded) == 1
    assert same(load_corpus(folder), good)
    assert len(encoded) == 1  # the second time it is whole again


def test_ids_outside_the_vocabulary_are_not_trusted(folder: Path, own_cache: Path) -> None:
    load_corpus(folder)
    good = load_corpus(folder, use_cache=False)
    (entry,) = own_cache.iterdir()
    for split in SPLITS:
        np.save(entry / f"{split}.npy", good.split(split) + np.uint16(50))
    corpus_module.finish_text(entry, EncodedText(good.vocabulary, {}, dict.fromkeys(SPLITS, 1)))
    assert corpus_module.read_entry(entry) is None


def test_pickles_are_not_loaded(folder: Path, own_cache: Path) -> None:
    load_corpus(folder)
    good = load_corpus(folder, use_cache=False)
    (entry,) = own_cache.iterdir()
    np.save(entry / "train.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="object"):
        map_split(entry, "train")
    corpus_module.finish_text(entry, EncodedText(good.vocabulary, {}, dict.fromkeys(SPLITS, 1)))
    assert corpus_module.read_entry(entry) is None
    assert same(load_corpus(folder), good)


@pytest.mark.parametrize("place", ["a file", "under a file"])
def test_cache_that_cannot_be_written(folder: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "blocked").write_text("")
    blocked = tmp_path / "blocked" if place == "a file" else tmp_path / "blocked" / "deeper"
    assert same(load_corpus(folder, cache_dir=blocked), load_corpus(folder, use_cache=False))


def test_user_without_a_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    source = find_corpus(folder)
    monkeypatch.delenv("SCANSNAP_CACHE")
    monkeypatch.setattr(Path, "expanduser", no_home)
    assert same(load_corpus(source), load_corpus(source, use_cache=False))


def test_cache_that_cannot_be_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    source = find_corpus(folder)
    monkeypatch.setattr(Path, "exists", refused)
    assert same(load_corpus(source), load_corpus(source, use_cache=False))


def test_text_that_changes_meanwhile_is_not_cached(
    folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = corpus_module.encode

    def slow_encode(*args: object, **kwargs: object) -> object:
        (folder / "valid.txt").write_text("c a\n")
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(corpus_module, "encode", slow_encode)
    corpus = load_corpus(folder)
    assert list(own_cache.iterdir()) == []
    assert corpus.vocabulary.decode(corpus.valid) == "c a\n"  # its file is gone, not its ids


def test_killed_while_writing_leaves_no_entry(folder: Path, own_cache: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from unittest.mock import patch
from scansnap.corpus import load_corpus
from scansnap.corpus.vocabulary import WordCounter
def other(*args):
    print("writing", flush=True)
    time.sleep(600)
patch.object(WordCounter, "held_out", other).start()
load_corpus(sys.argv[1])
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert all(path.name.startswith(".") for path in own_cache.iterdir())
    good = load_corpus(folder)
    assert same(load_corpus(folder), good)
    assert len([path for path in own_cache.iterdir() if not path.name.startswith(".")]) == 1


def test_interrupted_while_writing_leaves_nothing(
    folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*_: object) -> object:
        assert next(own_cache.rglob("train.first")).exists()  # amid its files
        raise KeyboardInterrupt

    monkeypatch.setattr(WordCounter, "held_out", other)
    with pytest.raises(KeyboardInterrupt):
        load_corpus(folder)
    assert list(own_cache.iterdir()) == []


def test_progress_reaches_the_end(folder: Path) -> None:
    messages: list[tuple[int, int]] = []
    load_corpus(folder, progress=lambda done, total: messages.append((done, total)))
    assert [done for done, _ in messages] == sorted(done for done, _ in messages)
    assert messages[-1][0] == messages[-1][1] == sum((folder / f"{s}.txt").stat().st_size for s in SPLITS)

"""Streams of any length: one pass over the text, maps of files, and the batches that a stream in memory gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import scansnap.corpus.encoding as encoding
from scansnap.corpus import Corpus, load_corpus, sources
from scansnap.corpus import windows as windows_module
from scansnap.corpus.cooccurrence import cooccurrence
from scansnap.corpus.sources import SPLITS, TextSource
from scansnap.corpus.vocabulary import build, id_type
from scansnap.corpus.windows import Windows
from scansnap.text.evaluation import perplexity
from scansnap.text.prediction import count_before, predict
from scansnap.text.training import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A text of some length, in small blocks."""
    path = tmp_path / "book"
    path.mkdir()
    words = np.array([f"w{i}" for i in range(40)])
    rng = np.random.default_rng(0)
    for split, lines in zip(SPLITS, (300, 40, 40), strict=True):
        rows = (words[(rng.random(9) ** 2 * 40).astype(int)] for _ in range(lines))
        (path / f"{split}.txt").write_text("".join(" ".join(row) + "\n" for row in rows))
    return path


def both(path: Path) -> tuple[Corpus, Corpus]:
    """In memory, and mapped from the cache's files."""
    load_corpus(path)
    return load_corpus(path, use_cache=False), load_corpus(path)


def test_text_is_read_once(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []
    real = TextSource.blocks
    monkeypatch.setattr(TextSource, "blocks", lambda self, split: passes.append(split) or real(self, split))
    load_corpus(book)
    assert passes == list(SPLITS)


def test_ids_are_those_of_the_text_in_one_piece(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 100)
    monkeypatch.setattr(encoding, "BLOCK", 7)
    memory, file = both(book)
    vocabulary, ids = build([(book / "train.txt").read_text()])
    for corpus in (memory, file):
        assert corpus.vocabulary == vocabulary
        np.testing.assert_array_equal(corpus.train, ids)
        np.testing.assert_array_equal(corpus.test, vocabulary.encode((book / "test.txt").read_text()))
        assert corpus.train.dtype == np.uint16
        assert corpus.n_words == {split: corpus.split(split).size for split in SPLITS}
    assert isinstance(file.train, np.memmap)
    assert not isinstance(memory.train, np.memmap)


def test_two_bytes_as_long_as_they_suffice() -> None:
    assert id_type(2**16) == np.uint16
    assert np.iinfo(id_type(2**16)).max == 2**16 - 1
    assert id_type(2**16 + 1).itemsize == 4


def test_more_words_than_two_bytes_can_number(tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{i} {i}\n" for i in range(90_000)))
    corpus = load_corpus(path)
    assert corpus.vocab_size > 2**16
    assert corpus.train.dtype == load_corpus(path).train.dtype == np.int32
    assert int(corpus.train.max()) == corpus.vocab_size - 2  # before <unk>, which never occurs
    assert corpus.vocabulary.decode(corpus.train[-3:]) == "71999 71999\n"


def test_nothing_but_the_entry_is_left(book: Path, own_cache: Path) -> None:
    load_corpus(book)
    (entry,) = own_cache.iterdir()
    assert {path.name for path in entry.iterdir()} == {"entry", *map(encoding.file_name, SPLITS)}


def test_a_map_is_not_the_file(book: Path) -> None:
    first = load_corpus(book)
    first.train[:5] = 0
    assert load_corpus(book).train[:5].tolist() == load_corpus(book, use_cache=False).train[:5].tolist() != [0] * 5


def test_a_disk_that_is_full_amid_the_text(book: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> object:
        raise OSError(28, "No space left on device")

    expected = load_corpus(book, use_cache=False)
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "map_split", full)
        result = load_corpus(book)
    assert result.vocabulary == expected.vocabulary
    np.testing.assert_array_equal(result.train, expected.train)
    assert list(own_cache.iterdir()) == []


@given(batch=st.integers(1, 5), length=st.integers(1, 9), seed=st.none() | st.integers(0, 9))
def test_batches_from_a_map_are_those_from_memory(tmp_path_factory, batch: int, length: int, seed: int | None) -> None:
    stream = np.random.default_rng(3).integers(0, 60_000, 97)
    folder = tmp_path_factory.mktemp("map")
    np.save(folder / "train.npy", stream.astype(np.uint16))
    a, b = Windows(stream.astype(np.int32), batch, length), Windows(encoding.map_split(folder, "train"), batch, length)
    assert a.digest() == b.digest()
    assert a.bounds() == b.bounds()
    for i in a.order(seed):
        (x, y), (u, v) = a[i], b[i]
        assert x.dtype == u.dtype == torch.int64
        assert torch.equal(x, u)
        assert torch.equal(y, v)


def test_a_map_is_not_loaded(book: Path) -> None:
    stream = load_corpus(book).train
    windows = Windows(stream, 4, 10)
    assert windows.columns.data_ptr() == stream.ctypes.data


@pytest.mark.parametrize("kind", ["yz", "transformer"])
def test_training_on_a_map_is_training_in_memory(book: Path, kind: str) -> None:
    losses, valid = [], []
    for corpus in both(book):
        size = corpus.vocab_size
        model = (YZTransformer(YZSettings(size, eta_y=5.0, eta_z=0.5)) if kind == "yz"
                 else Transformer(TransformerSettings(size, width=8, eta=0.5)))  # fmt: skip
        done = train(model, corpus.train, valid=corpus.valid, steps=6, batch=4, length=8, shuffle=1)
        losses.append(done.losses)
        valid.append((done.valid[6], perplexity(model, corpus.test, length=8, stride=3)))
    assert losses[0].tobytes() == losses[1].tobytes()
    assert valid[0] == valid[1]


def test_what_counts_words_takes_a_map(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, file = both(book)
    for split in ("train", "valid"):
        a, b = (cooccurrence(corpus, queries=3, split=split, cross_eos=False) for corpus in (memory, file))
        assert (a.query.tolist(), a.pair_counts.tolist()) == (b.query.tolist(), b.pair_counts.tolist())
        assert (a.contexts != b.contexts).nnz == 0
    queries = np.array([0, 5])
    whole = count_before(memory.train.astype(np.int64), queries, memory.vocab_size, 6)
    monkeypatch.setattr("scansnap.text.prediction.BLOCK", 11)
    np.testing.assert_array_equal(count_before(file.train, queries, file.vocab_size, 6), whole)
    prediction = predict(
        YZSettings(file.vocab_size, eta_y=5.0, eta_z=0.5), file.train, queries=2, steps=2, batch=4, length=8
    )
    counts = np.bincount(memory.train)
    assert counts[prediction.queries].tolist() == sorted(counts, reverse=True)[:2]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("length", [7, 10, 2000])
def test_batches_of_a_long_stream_are_sent(book: Path, monkeypatch: pytest.MonkeyPatch, seed: int, length: int) -> None:
    """On another kind of device than that of the stream; torch's meta device stands for it."""
    stream = load_corpus(book).train
    sent: list[torch.Tensor] = []
    meta = torch.device("meta")
    monkeypatch.setattr(windows_module, "MAX_ON_DEVICE", len(stream) - 40)
    monkeypatch.setattr(windows_module, "send", lambda batch, device: sent.append(batch) or batch)
    windows, plain = Windows(stream, 4, length, meta), Windows(stream, 4, length)
    assert windows.columns.device.type == "cpu"
    for i in plain.order(seed, 2):
        for x, y in zip(windows[i], plain[i], strict=True):
            assert torch.equal(x, y)
            assert (x.dtype, x.is_contiguous()) == (torch.int64, True)
    assert len(sent) == len(plain)
    monkeypatch.setattr(windows_module, "MAX_ON_DEVICE", len(stream))
    assert Windows(stream, 4, 10, meta).columns.device == meta  # a short one goes as a whole


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_sent_to_a_gpu_are_those_that_lie_there(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, losses = load_corpus(book), []
    for most in (windows_module.MAX_ON_DEVICE, 0):
        monkeypatch.setattr(windows_module, "MAX_ON_DEVICE", most)
        windows, plain = Windows(corpus.train, 4, 10, "cuda"), Windows(corpus.train, 4, 10)
        assert windows.columns.is_cuda == (most > 0)
        for i in plain.order(seed=2):
            (x, y), (u, v) = windows[i], plain[i]
            assert x.is_cuda
            assert torch.equal(x.cpu(), u)
            assert torch.equal(y.cpu(), v)
        model = YZTransformer(YZSettings(corpus.vocab_size, eta_y=5.0, eta_z=0.5), "cuda")
        done = train(model, corpus.train, valid=corpus.valid, steps=200, batch=4, length=8, shuffle=1)
        losses.append((done.losses.tobytes(), done.valid[200]))
    assert losses[0] == losses[1]


MEMORY = """
import resource, sys
import numpy as np
from scansnap.corpus import load_corpus
from scansnap.corpus.windows import Windows
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024
load_corpus(sys.argv[1])  # what the libraries take
before = anonymous()
peak = 0
def look(done, total):
    global peak
    peak = max(peak, anonymous())
corpus = load_corpus(sys.argv[2], progress=look)
windows = Windows(corpus.train, 20, 35)
for i in windows.order(seed=0):
    windows[i]
peak = max(peak, anonymous())
print(corpus.train.size, peak - before)
"""


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells memory as Linux does")
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """2 and 8 million tokens: held in memory the ids would be 12 MB more, and their first numbers 24 MB."""
    rng, memory_by_size = np.random.default_rng(0), []
    words = np.array([f"word{i}" for i in range(500)])
    lines = "".join(" ".join(words[rng.integers(0, 500, 9)]) + "\n" for _ in range(20_000))
    (tmp_path / "little.txt").write_text(lines[:10_000])
    for times in (10, 40):
        (tmp_path / "text.txt").write_text(lines * times)
        result = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path / "little.txt"), str(tmp_path / "text.txt")],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        tokens, memory = map(int, result.stdout.split())
        memory_by_size.append(memory)
    assert tokens > 6_000_000
    assert memory_by_size[1] - memory_by_size[0] < 8e6

"""Subwords: trained and given tokenizers, whole words from pieces, and one sentence for what cannot be used."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap.corpus.corpus as corpus_module
import scansnap.corpus.tokenizers as module
from refusals import refused
from scansnap.corpus import Vocabulary, load_corpus
from scansnap.corpus.corpus import TextLength, encode_blocks
from scansnap.corpus.sources import SPLITS
from scansnap.corpus.subwords import SubwordCounter, Subwords
from scansnap.corpus.tokenizers import SubwordEncoder, train_bpe
from scansnap.corpus.vocabulary import EOS, UNK, build

tokenizers: Any = pytest.importorskip("tokenizers")

TEXT = "the riverbank and the river bank of the <unk> rivers\nthe banks don't flow , the rivers flow\n\n" * 30
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(["river", "banks", UNK, "the"])
LINES = st.lists(st.lists(WORDS, max_size=6), max_size=6)


@pytest.fixture(scope="module")
def trained() -> str:
    return train_bpe([TEXT], 280)


@pytest.fixture(scope="module")
def vocabulary(trained: str) -> Subwords:
    counter = SubwordCounter(trained)
    counter.train(TEXT)
    subwords, _ = counter.finish()
    assert isinstance(subwords, Subwords)
    return subwords


@pytest.fixture
def banks(tmp_path: Path) -> Path:
    path = tmp_path / "banks"
    path.mkdir()
    for split, times in zip(SPLITS, (30, 3, 3), strict=True):
        (path / f"{split}.txt").write_text(TEXT[: len(TEXT) // 30 * times])
    return path


def plain(text: str) -> str:
    """A text as it is decoded: words between single blanks."""
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


@settings(deadline=None)
@given(lines=LINES)
def test_any_text_comes_back(vocabulary: Subwords, lines: list[list[str]]) -> None:
    text = "\n".join(" ".join(line) for line in lines)
    if EOS in text.split():
        return
    assert vocabulary.decode(vocabulary.encode(text)) == plain(text)


def test_ids_go_by_frequency_and_pieces_tell_whether_they_begin_a_word(vocabulary: Subwords) -> None:
    assert list(vocabulary.counts) == sorted(vocabulary.counts, reverse=True)
    assert vocabulary.words[0] == "the"
    ids = vocabulary.encode("the riverbanks\n")
    assert [vocabulary.words[i] for i in ids] == ["the", "river", "##bank", "##s", EOS]
    assert "".join(vocabulary.words[i].removeprefix("##") for i in vocabulary.encode("zebra")).endswith("zebra")
    assert len(set(vocabulary.words)) == len(vocabulary) == 280
    np.testing.assert_array_equal(np.bincount(vocabulary.encode(TEXT), minlength=280), vocabulary.counts)


def test_marks_are_single_tokens_and_are_joined_like_words(vocabulary: Subwords) -> None:
    ids = vocabulary.encode("river <unk> bank\n")
    assert [vocabulary.words[i] for i in ids] == ["river", UNK, "bank", EOS]
    goes_on = vocabulary.id("##s")
    assert vocabulary.decode([vocabulary.unk, goes_on, vocabulary.id("the")]) == "<unk>s the"
    assert vocabulary.decode([goes_on, vocabulary.eos, vocabulary.eos, vocabulary.id("the")]) == "s\n\nthe"


def test_a_word_of_several_pieces_is_told_them(vocabulary: Subwords) -> None:
    assert vocabulary.words[vocabulary.id("rivers")] == "rivers"
    with refused("word", "riverbanks", names="river, ##bank, ##s"):
        vocabulary.id("riverbanks")


def test_saved_and_loaded(vocabulary: Subwords) -> None:
    again = Vocabulary.from_json(vocabulary.to_json())
    assert again == vocabulary
    assert again.fingerprint() == vocabulary.fingerprint()
    np.testing.assert_array_equal(again.encode("the river\n"), vocabulary.encode("the river\n"))
    assert Vocabulary(vocabulary.words, vocabulary.counts) != vocabulary


def test_other_merges_are_another_vocabulary(vocabulary: Subwords) -> None:
    table = json.loads(vocabulary.tokenizer)
    table["model"]["merges"] = table["model"]["merges"][:-1]
    other = Subwords(vocabulary.words, vocabulary.counts, vocabulary.own, json.dumps(table))
    assert other.fingerprint() != vocabulary.fingerprint()
    assert other != vocabulary


def test_training_gives_the_same_bytes_in_every_process(trained: str) -> None:
    code = "import sys; from scansnap.corpus.tokenizers import train_bpe; print(train_bpe([sys.stdin.read()], 280))"
    for threads in ("true", "false"):
        process = subprocess.run([sys.executable, "-c", code], input=TEXT, capture_output=True, text=True, check=True,
                               env={**os.environ, "TOKENIZERS_PARALLELISM": threads})  # fmt: skip
        assert process.stdout.rstrip("\n") == trained


def test_marks_of_the_text_cost_no_merges(trained: str) -> None:
    tokens = json.loads(trained)["model"]["vocab"]
    assert {UNK, EOS} <= set(tokens)
    assert not any("unk" in token for token in tokens if token != UNK)


# --- a corpus of subwords ----------------------------------------------------------------------------------------


def test_corpus(banks: Path, own_cache: Path) -> None:
    first = load_corpus(banks, tokenizer="bpe", vocab_size=280)
    again = load_corpus(banks, tokenizer="bpe", vocab_size=280)
    memory = load_corpus(banks, tokenizer="bpe", vocab_size=280, use_cache=False)
    assert first.vocabulary == again.vocabulary == memory.vocabulary
    for split in SPLITS:
        np.testing.assert_array_equal(first.split(split), memory.split(split))
        np.testing.assert_array_equal(again.split(split), memory.split(split))
        text = (banks / f"{split}.txt").read_text()
        assert again.vocabulary.decode(again.split(split)) == plain(text)
        assert again.n_words[split] == len(text.split()) + text.count("\n")
    assert "280 subwords" in repr(first)
    assert len(list(own_cache.iterdir())) == 1


def test_each_tokenizer_has_its_entry(banks: Path, tmp_path: Path, own_cache: Path) -> None:
    load_corpus(banks)
    load_corpus(banks, tokenizer="bpe", vocab_size=280)
    sizes = [load_corpus(banks, tokenizer="bpe", vocab_size=282).vocab_size]
    path = tmp_path / "tokenizer.json"
    for size in (270, 275):
        path.write_text(train_bpe([TEXT], size))
        sizes.append(load_corpus(banks, tokenizer=path).vocab_size)
    assert sizes == [282, 270, 275]
    assert len(list(own_cache.iterdir())) == 5


def test_a_large_text_is_sampled_for_training(banks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled: list[str] = []
    monkeypatch.setattr(corpus_module, "TRAINED_ON", (banks / "train.txt").stat().st_size // 3)
    monkeypatch.setattr("scansnap.corpus.sources.BLOCK", 200)
    monkeypatch.setattr(module, "train_bpe", lambda blocks, size: train_bpe(sampled.extend(blocks) or sampled, size))
    load_corpus(banks, tokenizer="bpe", vocab_size=300)
    whole = (banks / "train.txt").read_text()
    assert 0.2 < len("".join(sampled)) / len(whole) < 0.4
    assert whole.startswith(sampled[0])
    assert sampled[-1] in whole[len(whole) * 9 // 10 :]


# --- other tokenizers --------------------------------------------------------------------------------------------


def bert() -> Any:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece(cleanup=False)
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]", "[CLS]", "[SEP]"],
                                                   show_progress=False)  # fmt: skip
    tokenizer.train_from_iterator([TEXT.replace(UNK, "")], trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", None, [("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_padding(length=7)
    tokenizer.enable_truncation(3)
    return tokenizer


def sentencepiece() -> Any:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=60, special_tokens=["<pad>", "<unk>"], unk_token="<unk>",
                                                 show_progress=False)  # fmt: skip
    tokenizer.train_from_iterator([TEXT.replace(UNK, "")], trainer)
    return tokenizer


def gpt2() -> Any:
    """Bytes, no unknown token, no blank at the beginning."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
                                             initial_alphabet=alphabet)  # fmt: skip
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


KINDS = {"bert": bert, "sentencepiece": sentencepiece, "gpt2": gpt2}


@pytest.mark.parametrize("kind", KINDS)
def test_given_tokenizers(banks: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tokenizer.json"
    KINDS[kind]().save(str(path))
    corpus = load_corpus(banks, tokenizer=str(path))
    vocabulary = corpus.vocabulary
    assert corpus.vocab_size == KINDS[kind]().get_vocab_size() + (1 if kind != "gpt2" else 2)  # <eos>, <unk>
    text = plain((banks / "valid.txt").read_text())
    spaced = text if kind != "bert" else text.replace("'", " ' ")  # it takes words apart at signs, and does not tell
    assert vocabulary.decode(corpus.valid) == spaced
    shown = [vocabulary.words[i] for i in vocabulary.encode("the river <unk>\n")]
    assert shown[-2:] == [UNK, EOS]
    assert "".join(piece.removeprefix("##") for piece in shown[:-2]).replace("▁", "") == "theriver"


@pytest.mark.parametrize("kind", [*KINDS, "trained"])
def test_word_by_word_is_line_by_line(kind: str, trained: str) -> None:
    pieces = SubwordEncoder(trained if kind == "trained" else KINDS[kind]().to_str())
    assert pieces.encodes_by_word
    text = "the rivers , don't Ünseen e\u0301 中文 x<unk>y <unk> bank\n\n the  bank\n flow"
    cut = [pieces.tokenizer.encode(" " + part, add_special_tokens=False).ids
           for part in ("the rivers , don't Ünseen e\u0301 中文 x<unk>y", "bank", "the bank", "flow")]  # fmt: skip
    unk, eos = pieces.unk, pieces.eos
    expected = [*cut[0], unk, *cut[1], eos, eos, *cut[2], eos, *cut[3]]
    assert pieces.encode(text).tolist() == expected
    assert pieces.encode(text).tolist() == expected  # from memory
    assert pieces.words == 2 * 16
    if kind != "gpt2":  # the others begin a line with a blank themselves
        pieces.encodes_by_word = False
        assert pieces.encode(text).tolist() == expected


def test_pieces_are_forgotten_when_there_are_too_many(trained: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, other = SubwordEncoder(trained), SubwordEncoder(trained)
    monkeypatch.setattr(module, "MAX_WORDS", 8)
    for text in ("the river flow of\n", "banks and don't river\n", "the banks\n"):
        np.testing.assert_array_equal(pieces.encode(text), other.encode(text))
    assert list(pieces._number) == [UNK, EOS, "the", "river", "banks"]  # the first half, and what came after


def test_a_tokenizer_that_reaches_over_blanks_cuts_lines(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a b": 0, "[UNK]": 1}, unk_token="[UNK]"))
    pieces = SubwordEncoder(tokenizer.to_str())
    assert not pieces.encodes_by_word
    assert pieces.encode("a b\na  b <unk> a\n").tolist() == [0, 2, 0, 1, 1, 2]


# --- what cannot be used -----------------------------------------------------------------------------------------


def without_unknown() -> str:
    return str(tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="<unk>")).to_str())


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe", b"", b"[]", b'{"model": {"type": "BPE"}}', "without unknown", "without bytes"]
)
def test_bad_files(banks: Path, tmp_path: Path, own_cache: Path, content: bytes | str | None) -> None:
    path = tmp_path / "bad.json"
    if content == "without unknown":
        path.write_text(without_unknown())
    elif content == "without bytes":
        table = json.loads(gpt2().to_str())
        del table["model"]["vocab"]["!"]
        path.write_text(json.dumps(table))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with refused("tokenizer", names="bad.json"):
        load_corpus(banks, tokenizer=path)
    assert not own_cache.exists()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tokenizer": "bpe", "vocab_size": 257}, "vocab_size"),
        ({"tokenizer": "bpe", "vocab_size": 300.0}, "vocab_size"),
        ({"tokenizer": "bpe", "max_words": 300}, "max_words"),
        ({"tokenizer": "bpe", "min_count": 2}, "min_count"),
        ({"vocab_size": 300}, "vocab_size"),
        ({"tokenizer": "sentences"}, "tokenizer"),
    ],
)
def test_settings_that_contradict_are_refused(banks: Path, own_cache: Path, options: Any, field: str) -> None:
    with refused(field):
        load_corpus(banks, **options)
    assert not own_cache.exists()


def test_without_the_package(
    banks: Path, own_cache: Path, vocabulary: Subwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = vocabulary.to_json()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tokenizers", None)  # makes the import fail
        with refused("tokenizer", names="scansnap[text]"):
            load_corpus(banks, tokenizer="bpe", vocab_size=280)
        assert not own_cache.exists()
    there = load_corpus(banks, tokenizer="bpe", vocab_size=280)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    again = load_corpus(banks, tokenizer="bpe", vocab_size=280)  # encoded before, perhaps elsewhere
    np.testing.assert_array_equal(again.train, there.train)
    loaded = Vocabulary.from_json(saved)
    assert loaded.words[loaded.id("river")] == "river"  # what needs no cutting goes without
    with refused("tokenizer", names="scansnap[text]"):
        loaded.encode("river")
    assert load_corpus(banks).vocabulary.unit == "words"


# --- units -------------------------------------------------------------------------------------------------------


def test_nats_of_a_text_are_the_same_in_all_units(vocabulary: Subwords) -> None:
    text = "the  rivers\n\nzebra \n"
    words, _ = build([text], min_count=1)
    for either in (words, vocabulary):
        tokens, size = encode_blocks(either, ["the  rivers\n\n", "zebra \n"])
        assert (size.words, size.characters) == (6, len("the rivers\n\nzebra\n"))
        assert (size.tokens, size.unknown) == (len(tokens), 0)
        nats = 12.5
        perplexity = math.exp(nats / (size.tokens - 1))
        assert size.per_word(perplexity) == pytest.approx(math.exp(nats / 5))
        assert size.bits_per_character(perplexity) == pytest.approx(nats / math.log(2) / 18)
    assert encode_blocks(words, ["of the\n"])[1].unknown == 1
    assert TextLength(1000, 3).per_word(math.inf) == math.inf
    assert TextLength(10, 10).per_word(7.5) == pytest.approx(7.5)

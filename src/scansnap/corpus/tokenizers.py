"""Tokenizers of the package ``tokenizers``, trained on a text or read from a tokenizer.json.

A line is its words between single blanks, and every word is encoded with the blank before it. Where no token contains a
blank (byte-level, Metaspace and BERT-like tokenizers) each word is encoded once, however often it occurs, which is ten
times as fast as encoding lines. The words <unk> and <eos> are special tokens and stay whole.

Training, encoding and decoding need the package, which is part of ``scansnap[text]``.
"""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.checks.extras import missing_package
from scansnap.corpus.vocabulary import EOS, UNK, Tokens, split_words

MIN_VOCAB_SIZE = 256 + 2  # every byte and both special tokens
LINES = 1000  # that the package encodes at a time
MAX_WORDS = 2**20  # different words whose subwords are stored (some 200 MB)
CONTINUES = "##"  # before a subword that continues a word
_BLANK = "Ġ"  # the byte 0x20 in byte-level tokenizers
# steps that encode each word by itself
_LOCAL_CUTS = {"ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit", "BertPreTokenizer"}
_LOCAL_FORMS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer", "Sequence"}


def package() -> Any:
    """The package ``tokenizers``; the error says how to install it."""
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise missing_package("tokenizer", "a tokenizer of subwords", "words", "tokenizers") from None


def train_bpe(blocks: Iterable[str], vocab_size: int) -> str:
    """The JSON of a byte-level BPE tokenizer with ``vocab_size`` tokens, or fewer if no pair repeats.

    Every byte and the special tokens <unk> and <eos> are tokens, so only <unk> in the text is unknown.
    """
    library = package()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=[UNK, EOS], show_progress=False,
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_lines(blocks), trainer)
    return str(tokenizer.to_str())


def read(path: Path) -> str:
    """The JSON of a ``tokenizer.json`` that can encode texts."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError("tokenizer", str(path), "words, bpe, or a readable tokenizer.json") from None
    SubwordEncoder(text, str(path))
    return text


class SubwordEncoder:
    """Encodes and decodes text with a tokenizer's own ids; special tokens that it lacks have the ids after them."""

    def __init__(self, text: str, where: str = "saved with the vocabulary") -> None:
        try:
            self.tokenizer = package().Tokenizer.from_str(text)
            self.table = json.loads(text)
        except InputError:
            raise
        except Exception:  # the package has no exception class of its own
            raise InputError("tokenizer", where, "words, bpe, or a tokenizer.json that the package tokenizers can read"
                             ) from None  # fmt: skip
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        vocabulary: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        self.tokens = {number: token for token, number in vocabulary.items()}
        size = max(self.tokens, default=-1) + 1
        unknown = _unknown(self.table["model"], self.tokenizer)
        if unknown is None and not self._has_all_bytes(vocabulary):
            expected = "a tokenizer that can encode any text (with an unknown token such as <unk>, or with all bytes)"
            raise InputError("tokenizer", where, expected)
        self.unk = next((i for i in (unknown, vocabulary.get(UNK)) if i is not None), size)
        self.eos = vocabulary.get(EOS, max(size, self.unk + 1))
        self.size = max(size, self.unk + 1, self.eos + 1)
        self.encodes_by_word = _encodes_by_word(self.table)
        self.words = 0  # encoded so far, with line ends
        self._remember([UNK, EOS])  # words with one subword
        self._flat = np.array([self.unk, self.eos], np.int32)  # subwords of all words, one word after the other
        self._lengths = np.ones(2, np.int64)

    def encode(self, text: str) -> Tokens:
        """Ids of the subwords of a text, <eos> for each line feed."""
        words = split_words(text)
        self.words += len(words)
        return self._word_by_word(words) if self.encodes_by_word else self._line_by_line(words)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids: words between single blanks, lines for <eos>."""
        lines, run = [""], list[int]()

        def flush() -> None:
            if run:
                piece = self.tokenizer.decode(run, skip_special_tokens=False)
                lines[-1] = _append(lines[-1], piece.strip(" "), self.continues(run[0]))
                run.clear()

        for number in ids:
            if number in (self.unk, self.eos):
                flush()
                lines[-1:] = [lines[-1], ""] if number == self.eos else [_append(lines[-1], UNK, False)]
            else:
                run.append(number)
        flush()
        return "\n".join(lines)

    def continues(self, number: int) -> bool:
        """Whether a subword continues the word before it."""
        token = self.tokens.get(number, UNK)
        if token in self._added:
            return False
        if self._bytes:
            return not token.startswith(_BLANK)
        if "Metaspace" in self._types:
            return not token.startswith("▁")
        return token.startswith(CONTINUES)

    def names(self) -> dict[int, str]:
        """A unique name of each subword, with ## before it if it continues a word."""
        names = {self.unk: UNK, self.eos: EOS}
        taken = set(names.values())
        for number, token in sorted(self.tokens.items()):
            if number in names:
                continue
            name = self._name(number, token)
            while name in taken:
                name += f"#{number}"
            names[number] = name
            taken.add(name)
        return names

    def _name(self, number: int, token: str) -> str:
        if token in self._added or not (self._bytes or "Metaspace" in self._types):
            return token
        continues = self.continues(number)
        if self._bytes:
            content = bytes(_BYTES.get(letter, ord("?")) for letter in (token if continues else token[1:]))
            whole = bytes(_BYTES.get(letter, ord("?")) for letter in token)
            try:
                body = content.decode("utf-8")
            except UnicodeDecodeError:
                body = ""
            if not body or not body.isprintable() or " " in body:
                return "".join(f"<0x{byte:02X}>" for byte in whole)
        else:
            body = token if continues else token[1:] or token
        return CONTINUES + body if continues else body

    @property
    def _bytes(self) -> bool:
        return "ByteLevel" in self._types

    @cached_property
    def _types(self) -> set[str]:
        return _types(self.table.get("pre_tokenizer")) | _types(self.table.get("decoder"))

    @cached_property
    def _added(self) -> set[str]:
        return {token["content"] for token in self.table.get("added_tokens") or []}

    def _has_all_bytes(self, vocabulary: dict[str, int]) -> bool:
        if self._bytes:
            return all(letter in vocabulary for letter in _BYTES)
        return bool(self.table["model"].get("byte_fallback")) and all(f"<0x{b:02X}>" in vocabulary for b in range(256))

    def _remember(self, words: Iterable[str]) -> None:
        """Number these words; a new word gets the next number."""
        self._number = defaultdict[str, int](None, ((word, number) for number, word in enumerate(words)))
        self._number.default_factory = self._number.__len__

    def _word_by_word(self, words: list[str]) -> Tokens:
        if len(self._number) > MAX_WORDS:  # the first words stay, since they are frequent
            self._remember(islice(self._number, MAX_WORDS // 2))
            self._lengths = self._lengths[: MAX_WORDS // 2]
            self._flat = self._flat[: self._lengths.sum()]
        numbers = np.fromiter(map(self._number.__getitem__, words), np.int64, len(words))
        new = [" " + word for word in islice(self._number, len(self._lengths), None)]
        if new:
            encoded = [encoding.ids for encoding in self.tokenizer.encode_batch(new, add_special_tokens=False)]
            self._flat = np.concatenate([self._flat, *(np.array(ids, np.int32) for ids in encoded)])
            self._lengths = np.append(self._lengths, [len(ids) for ids in encoded])
        lengths = self._lengths[numbers]
        starts = (np.cumsum(self._lengths) - self._lengths)[numbers]
        before = np.cumsum(lengths) - lengths
        return np.asarray(self._flat[np.arange(lengths.sum()) + np.repeat(starts - before, lengths)])

    def _line_by_line(self, words: list[str]) -> Tokens:
        special = {UNK: [self.unk], EOS: [self.eos]}
        lines: list[list[str]] = [[]]
        order: list[list[int] | None] = []  # a special token, or None for the next line
        for word in words:
            if word in special:
                order += [None, special[word]]
                lines.append([])
            else:
                lines[-1].append(word)
        encoded = iter(self.tokenizer.encode_batch([" ".join(line) for line in lines], add_special_tokens=False))
        parts = [next(encoded).ids if ids is None else ids for ids in [*order, None]]
        return np.concatenate([np.array(part, np.int32) for part in parts])


def _append(line: str, subword: str, continues: bool) -> str:
    return line + subword if continues or not line else f"{line} {subword}"


def _lines(blocks: Iterable[str]) -> Iterator[list[str]]:
    """Lines without special tokens."""
    for block in blocks:
        lines = [" ".join(word for word in line.split() if word not in (UNK, EOS)) for line in block.split("\n")]
        for start in range(0, len(lines), LINES):
            yield lines[start : start + LINES]


def _unknown(model: dict[str, Any], tokenizer: Any) -> int | None:
    """The id of the model's unknown token, if it has one."""
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    token = model.get("unk_token")
    number = tokenizer.token_to_id(token) if isinstance(token, str) else None
    return None if number is None else int(number)


def _types(part: Any) -> set[str]:
    """Types of pre-tokenizers, decoders or normalizers, also in sequences."""
    if not isinstance(part, dict):
        return set()
    inside = [*(part.get("pretokenizers") or []), *(part.get("decoders") or []), *(part.get("normalizers") or [])]
    return {str(part.get("type"))}.union(*map(_types, inside))


def _encodes_by_word(table: dict[str, Any]) -> bool:
    """Whether the tokens of a line are those of its words, one by one."""
    cuts = table.get("pre_tokenizer")
    steps = [cuts] if isinstance(cuts, dict) and cuts.get("type") != "Sequence" else (cuts or {}).get("pretokenizers")
    local = any(step["type"] in _LOCAL_CUTS and step.get("use_regex", True) and step.get("split", True)
                for step in steps or [])  # fmt: skip
    swallows = any(token.get("rstrip") for token in table.get("added_tokens") or [])
    return local and not swallows and _types(table.get("normalizer")) <= _LOCAL_FORMS


def _byte_letters() -> dict[str, int]:
    """The letters of bytes in byte-level tokenizers: themselves if printable, else from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_letters()

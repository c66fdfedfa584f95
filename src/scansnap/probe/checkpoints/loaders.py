"""Load the model, tokenizer and batch for a checkpoint: with transformers, or with a function of the user."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scansnap.checks import InputError, check_integer
from scansnap.checks.extras import installed, missing_package

Encode = Callable[[str], list[int]]


class TokenEncoder(NamedTuple):
    """A tokenizer: text to token ids, and the text of each id if known."""

    encode: Encode
    words: list[str] | None = None


_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "merges.txt", "*.tiktoken")  # files of tokenizers
_CAUSAL = ("ForCausalLM", "LMHeadModel")  # they return the loss if labels are passed


class LoadedModel(NamedTuple):
    """A model, and a function that loads its tokenizer if it may have one."""

    model: nn.Module
    tokens: Callable[[], TokenEncoder] | None = None
    returns_loss: bool = False


Loader = Callable[[Path], LoadedModel]


def get_loader(name: str) -> Loader:
    """``hf``, or ``module:function`` with function(path) → model or (model, tokenizer)."""
    if name == "hf":
        if not installed("transformers"):
            raise missing_package("--loader", name, "module:function", "transformers")
        return _hugging_face
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InputError("--loader", name, "hf or module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # like python -m
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise InputError("--loader", name, "hf or an importable module:function", problem) from None
    if not callable(function):
        raise InputError("--loader", name, "hf or module:function", f"{attribute} is not callable")
    return lambda path: _load_with(name, function, path)


def _load_with(name: str, function: Callable[[Path], Any], path: Path) -> LoadedModel:
    try:
        result = function(path)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise InputError("--loader", name, f"a function that loads {path}", problem) from None
    model, tokenizer = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(model, nn.Module):
        expected = "a function that returns a torch.nn.Module, or (model, tokenizer)"
        raise InputError("--loader", name, expected, f"for {path.name} it returns {type(model).__name__}")
    return LoadedModel(model, None if tokenizer is None else lambda: _encoder(tokenizer))


def _encoder(tokenizer: Any) -> TokenEncoder:
    """From a function or a tokenizer with a method ``encode``; without special tokens if possible."""
    if not hasattr(tokenizer, "encode"):
        return TokenEncoder(lambda text: list(tokenizer(text)))
    options = {"add_special_tokens": False}
    try:
        tokenizer.encode("a", **options)
    except TypeError:
        options = {}
    named = getattr(tokenizer, "convert_ids_to_tokens", None)
    words = None if named is None else [str(word) for word in named(range(len(tokenizer)))]
    # the package tokenizers wraps the ids
    return TokenEncoder(lambda text: list(getattr(encoded := tokenizer.encode(text, **options), "ids", encoded)), words)


def _hugging_face(path: Path) -> LoadedModel:
    import transformers

    with _quiet_logging(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
            architecture = (getattr(config, "architectures", None) or ["AutoModel"])[0]
            kind = getattr(transformers, architecture, transformers.AutoModel)
            model = kind.from_pretrained(path, local_files_only=True)
        except Exception as error:
            raise InputError(
                "FOLDER", str(path), "a checkpoint that transformers can load", _first_line(error)
            ) from None
    return LoadedModel(model, lambda: _tokenizer(path), architecture.endswith(_CAUSAL))


def _tokenizer(path: Path) -> TokenEncoder:
    """The tokenizer of the checkpoint, or of the folder that contains all."""
    import transformers

    error: Exception = OSError("no file tokenizer.json")
    for folder in (path, path.parent):
        if not any(file for pattern in _TOKENIZERS for file in folder.glob(pattern)):
            continue  # some tokenizer classes load without files, and have no words
        with _quiet_logging(transformers):
            try:
                return _encoder(transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True))
            except Exception as problem:
                error = problem
    hint = f"the checkpoint's tokenizer cannot be loaded: {_first_line(error)}"
    raise InputError("--batch", "a text", "token ids in a .pt or .npy file", hint)


@contextmanager
def _quiet_logging(transformers: Any) -> Iterator[None]:
    """Without the progress bars and advice of transformers."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _first_line(error: Exception) -> str:
    """The first line of an error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".: ")


LENGTH, SEQUENCES = 127, 16
IDS = (".pt", ".npy")
_CHARACTERS = 16  # of a text to read per token, at first


def check_batch(path: Path, length: int | None, sequences: int | None) -> None:
    """Refuse bad options before a model is loaded."""
    if not path.is_file():
        raise InputError("--batch", str(path), "a text file, or token ids in a .pt or .npy file")
    for option, value in (("--length", length), ("--sequences", sequences)):
        if value is not None and path.suffix in IDS:
            raise InputError.conflict(option, f"--batch {path} has token ids; leave {option} out")
    if sequences is not None:
        check_integer("--sequences", sequences, least=1)
    if length is not None and check_integer("--length", length, least=3) % 2 == 0:
        # a softmax over words could be mistaken for one over keys; vocabularies are rarely odd
        raise InputError("--length", length, "an odd integer ≥ 3")


def read_batch(
    path: Path, tokens: Callable[[], TokenEncoder] | None, length: int | None, sequences: int | None
) -> Tensor:
    """Token ids (B, T)."""
    if path.suffix in IDS:
        return _ids(path)
    if tokens is None:
        hint = "or pass --loader a function that returns (model, tokenizer)"
        raise InputError("--batch", str(path), "token ids in a .pt or .npy file", hint)
    t, b = LENGTH if length is None else length, SEQUENCES if sequences is None else sequences
    ids = encode_file("--batch", path, tokens().encode, b * t)
    if len(ids) < b * t:
        expected = f"a text of at least {b * t} tokens, {b} sequences of {t}"
        raise InputError("--batch", str(path), expected, f"it has {len(ids)}; pass fewer --sequences")
    return torch.tensor(ids[: b * t]).reshape(b, t)


def encode_file(option: str, path: Path, encode: Encode, most: int | None = None) -> list[int]:
    """The tokens of a text file; the first ``most`` of a long one, whose last may be cut short."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read() if most is None else file.read(_CHARACTERS * (most + 1))
            tokens = encode(text)
            if most is not None and len(tokens) <= most:
                tokens = encode(text + file.read())
            return tokens
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(option, str(path), "a readable text file", reason) from None


def _ids(path: Path) -> Tensor:
    expected = "an array of integers (sequence, position)"
    try:
        ids = torch.load(path, weights_only=True) if path.suffix == ".pt" else torch.from_numpy(np.load(path))
    except Exception as error:  # whatever a file may hold
        raise InputError("--batch", str(path), f"a file with {expected}", type(error).__name__) from None
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or ids.numel() == 0:
        kind = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
        raise InputError("--batch", str(path), expected, f"it has {kind}")
    return ids.long()

"""Making the model of a checkpoint: Hugging Face's way, or by a function of the user."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from scansnap.checks import InputError
from scansnap.checks.extras import installed, lacking

Encode = Callable[[str], list[int]]


class Tokens(NamedTuple):
    """How a text becomes token ids, and the text of each id if that is known."""

    encode: Encode
    words: list[str] | None = None


_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "merges.txt", "*.tiktoken")  # files of which there is one at least
_CAUSAL = ("ForCausalLM", "LMHeadModel")  # given their own tokens as labels these say the loss


class Loaded(NamedTuple):
    """A model, and what gets its tokenizer, if there may be one."""

    model: nn.Module
    tokens: Callable[[], Tokens] | None = None
    says_loss: bool = False


Loader = Callable[[Path], Loaded]


def loader_of(name: str) -> Loader:
    """``hf``, or ``module:function`` with function(path) → model or (model, tokenizer); not yet called."""
    if name == "hf":
        if not installed("transformers"):
            raise lacking("--loader", name, "module:function", "transformers")
        return _hugging_face
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise InputError("--loader", name, "hf or module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a module beside, as with python -m
    try:
        made = getattr(importlib.import_module(module), function)
    except Exception as error:
        allowed = f"hf or module:function that can be imported ({type(error).__name__}: {error})"
        raise InputError("--loader", name, allowed) from None
    if not callable(made):
        raise InputError("--loader", name, f"hf or module:function, and {function} is no function")
    return lambda path: _users(name, made, path)


def _users(name: str, function: Callable[[Path], Any], path: Path) -> Loaded:
    try:
        made = function(path)
    except Exception as error:
        raise InputError("--loader", name, f"able to load {path} ({type(error).__name__}: {error})") from None
    model, tokenizer = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        allowed = "a function that returns a torch.nn.Module, or it and a tokenizer"
        raise InputError("--loader", name, f"{allowed} ({path.name}: {type(model).__name__})")
    return Loaded(model, None if tokenizer is None else lambda: _tokens(tokenizer))


def _tokens(tokenizer: Any) -> Tokens:
    """Of a function, or of a tokenizer with a method ``encode``; without special tokens where it can do without."""
    if not hasattr(tokenizer, "encode"):
        return Tokens(lambda text: list(tokenizer(text)))
    options = {"add_special_tokens": False}
    try:
        tokenizer.encode("a", **options)
    except TypeError:
        options = {}
    named = getattr(tokenizer, "convert_ids_to_tokens", None)
    words = None if named is None else [str(word) for word in named(range(len(tokenizer)))]
    # the package tokenizers wraps the numbers
    return Tokens(lambda text: list(getattr(found := tokenizer.encode(text, **options), "ids", found)), words)


def _hugging_face(path: Path) -> Loaded:
    import transformers

    with _silent(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
            architecture = (getattr(config, "architectures", None) or ["AutoModel"])[0]
            kind = getattr(transformers, architecture, transformers.AutoModel)
            model = kind.from_pretrained(path, local_files_only=True)
        except Exception as error:
            raise InputError("FOLDER", str(path), f"a checkpoint that transformers can load ({_line(error)})") from None
    return Loaded(model, lambda: _tokenizer(path), architecture.endswith(_CAUSAL))


def _tokenizer(path: Path) -> Tokens:
    """That of the checkpoint, or one in the folder of all."""
    import transformers

    error: Exception = OSError("it has no file tokenizer.json")
    for place in (path, path.parent):
        if not any(file for pattern in _TOKENIZERS for file in place.glob(pattern)):
            continue  # some kinds are made without a single word then
        with _silent(transformers):
            try:
                return _tokens(transformers.AutoTokenizer.from_pretrained(place, local_files_only=True))
            except Exception as problem:
                error = problem
    allowed = "token ids in a .pt or .npy file, as the checkpoint has no tokenizer that can be loaded"
    raise InputError("--batch", "a text", f"{allowed} ({_line(error)})")


@contextmanager
def _silent(transformers: Any) -> Iterator[None]:
    """Its bars and its advice are not ours to show."""
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


def _line(error: Exception) -> str:
    """The first line of what may be a page."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".: ")

"""The batch of a folder of checkpoints: a text cut into sequences by the model's tokenizer, or token ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_integer
from scansnap.probe.checkpoints.loaders import Encode, Tokens

LENGTH, SEQUENCES = 127, 16
IDS = (".pt", ".npy")
_CHARACTERS = 16  # of a text read for each token that is wanted, at first


def check_batch(path: Path, length: int | None, sequences: int | None) -> None:
    """Refuse early what no model is needed for."""
    if not path.is_file():
        raise InputError("--batch", str(path), "a text file, or token ids in a .pt or .npy file")
    for option, value in (("--length", length), ("--sequences", sequences)):
        if value is not None and path.suffix in IDS:
            raise InputError(option, value, "left out where --batch has token ids")
    if sequences is not None:
        check_integer("--sequences", sequences, least=1)
    if length is not None and check_integer("--length", length, least=3) % 2 == 0:
        # a softmax over an even number of words could be taken for one over keys; vocabularies are rarely odd
        raise InputError("--length", length, "an odd number of tokens")


def read_batch(path: Path, tokens: Callable[[], Tokens] | None, length: int | None, sequences: int | None) -> Tensor:
    """Token ids (B, T)."""
    if path.suffix in IDS:
        return _ids(path)
    if tokens is None:
        allowed = "token ids in a .pt or .npy file, or --loader a function that returns (model, tokenizer)"
        raise InputError("--batch", str(path), allowed)
    t, b = LENGTH if length is None else length, SEQUENCES if sequences is None else sequences
    ids = encoded("--batch", path, tokens().encode, b * t)
    if len(ids) < b * t:
        allowed = f"a text of at least {b * t} tokens, {b} sequences of {t} (it has {len(ids)}; see --sequences)"
        raise InputError("--batch", str(path), allowed)
    return torch.tensor(ids[: b * t]).reshape(b, t)


def encoded(option: str, path: Path, encode: Encode, most: int | None = None) -> list[int]:
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
        raise InputError(option, str(path), f"a text file that can be read ({reason})") from None


def _ids(path: Path) -> Tensor:
    allowed = "whole numbers (sequence, position)"
    try:
        ids = torch.load(path, weights_only=True) if path.suffix == ".pt" else torch.from_numpy(np.load(path))
    except Exception as error:  # whatever a file may hold
        raise InputError("--batch", str(path), f"a file with {allowed} ({type(error).__name__})") from None
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or ids.numel() == 0:
        kind = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__
        raise InputError("--batch", str(path), f"{allowed}, and it has {kind}")
    return ids.long()

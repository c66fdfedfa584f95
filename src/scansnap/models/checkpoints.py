"""A model in training on disk: one safetensors file with all tensors and a JSON header, replaced as a whole.

The header says what lies there: the model's own description, the number of updates, where in the data it stands and
what the data and the vocabulary were. Tensors are the model's (``model.…``), those of the record so far, and the
vocabulary's JSON as bytes, so that a model and its words can neither part nor be mixed. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scansnap.checks import InputError
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.models.model import LanguageModel
from scansnap.models.transformer import Transformer
from scansnap.models.yz_transformer import YZTransformer
from scansnap.storage import replacing

FORMAT = 2
KEY = "scansnap"
WORDS = "vocabulary"  # the tensor with the words


@dataclass(frozen=True)
class Header:
    """What a checkpoint is about."""

    model: dict[str, Any]
    step: int
    data: dict[str, Any] = field(default_factory=dict)  # stream, batch, length, order and position in them
    vocabulary: str = ""  # fingerprint; empty: not told

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **self.__dict__}, sort_keys=True)


def fingerprint(vocabulary: Vocabulary | None) -> str:
    """One word for the words and their order; empty without a vocabulary."""
    if vocabulary is None:
        return ""
    return hashlib.sha256("\n".join(vocabulary.words).encode()).hexdigest()[:16]


def save_checkpoint(
    path: Path,
    model: LanguageModel,
    header: Header,
    record: dict[str, Tensor],
    vocabulary: Vocabulary | None = None,
) -> None:
    """Write everything an exact continuation needs; the file appears whole or not at all."""
    save_file = safetensors_package().torch.save_file
    tensors = {f"model.{name}": tensor for name, tensor in model.tensors().items()} | record
    if vocabulary is not None:
        tensors[WORDS] = torch.frombuffer(bytearray(vocabulary.to_json().encode()), dtype=torch.uint8)
    # copies: views of one vector share memory, which the format refuses
    plain = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    with replacing(Path(path)) as scratch:
        save_file(plain, scratch, metadata={KEY: header.to_json()})


def read_header(path: Path) -> Header:
    """The header alone: cheap, whatever the size of the file."""
    safe_open = safetensors_package().safe_open
    try:
        with safe_open(path, framework="pt") as file:
            values = json.loads((file.metadata() or {})[KEY])
        if values.pop("format") != FORMAT:
            raise KeyError("format")
        return Header(**values)
    except FileNotFoundError:
        raise InputError("checkpoint", str(path), "a file that is there") from None
    except (KeyError, ValueError, TypeError, OSError, safetensors_package().SafetensorError):
        raise InputError("checkpoint", str(path), "a checkpoint written by scansnap") from None


def load_checkpoint(path: Path, model: LanguageModel) -> tuple[Header, dict[str, Tensor]]:
    """Write the tensors into the model, in place, and return the header and the record so far."""
    header, safe_open = read_header(path), safetensors_package().safe_open
    if header.model != model.describe():
        raise InputError(
            "checkpoint", str(path), f"one of the same model ({_difference(header.model, model.describe())})"
        )
    own = {f"model.{name}": tensor for name, tensor in model.tensors().items()}
    record = {}
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        if not names >= set(own) or any(
            tuple(file.get_slice(name).get_shape()) != tuple(tensor.shape) for name, tensor in own.items()
        ):
            raise InputError("checkpoint", str(path), "one with all tensors of the model")
        for name in names - {WORDS}:
            if name in own:
                own[name].detach().copy_(file.get_tensor(name))
            else:
                record[name] = file.get_tensor(name)
    return header, record


def read_vocabulary(path: Path) -> Vocabulary:
    """The words that were saved with the model."""
    with safetensors_package().safe_open(path, framework="pt") as file:
        if WORDS not in file.keys():  # noqa: SIM118 (a file is no dictionary)
            raise InputError("checkpoint", str(path), "one that was saved with its vocabulary")
        return Vocabulary.from_json(file.get_tensor(WORDS).numpy().tobytes().decode())


def open_model(path: Path, device: str | torch.device = "cpu") -> tuple[LanguageModel, Header]:
    """The trained model a checkpoint holds, whatever its kind."""
    model = build_model(read_header(path).model, device)
    return model, load_checkpoint(path, model)[0]


def build_model(description: dict[str, Any], device: str | torch.device = "cpu") -> LanguageModel:
    """A model as ``describe()`` told of it, with its initial values."""
    kinds: dict[str, type[Transformer] | type[YZTransformer]] = {"transformer": Transformer, "yz": YZTransformer}
    kind = str(description.get("kind"))
    if kind not in kinds:
        raise InputError("kind", kind, "one of " + ", ".join(kinds))
    return kinds[kind].from_description(description, device)


def safetensors_package() -> Any:
    """The package, or a message that says how to get it."""
    try:
        import safetensors
        import safetensors.torch
    except ImportError:
        raise InputError("checkpoint", "given", "left out unless the package safetensors is installed, as with "
                         "pip install 'scansnap[text]'") from None  # fmt: skip
    return safetensors


def _difference(theirs: dict[str, Any], mine: dict[str, Any]) -> str:
    names = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
    return ", ".join(f"its {name} is {theirs.get(name)!r}, here {mine.get(name)!r}" for name in names[:3])

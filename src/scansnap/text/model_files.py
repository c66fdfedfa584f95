"""The file of a model, in training or trained: safetensors with all tensors and a JSON header, replaced as a whole.

The header says what lies there: the model's own description, the number of updates, where in the data it stands and
what the data and the vocabulary were. Tensors are the model's (``model.…``), those of the record so far, and the
vocabulary's JSON as bytes, so that a model and its words can neither part nor be mixed. Nothing is pickled.

The header carries the SHA-256 of every tensor (with its type and shape) and its own. Reading the header checks the
header; reading a model checks all of it (about 1 GB/s) before the first tensor is used. What the header says of types,
shapes and places is compared with the size of the file before anything is allocated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scansnap.checks import InputError
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.storage import checksums, replacing
from scansnap.storage.checksums import CheckedFiles, Damaged
from scansnap.storage.objects import open_regular
from scansnap.text.model import LanguageModel
from scansnap.text.safetensors_layout import LayoutError, check_layout
from scansnap.text.transformer.model import Transformer
from scansnap.text.yz.model import YZTransformer

FORMAT = 3  # 2 is read as well
KEY = "scansnap"
WORDS = "vocabulary"  # the tensor with the words
LAYERS = 10_000  # of a model that is read


@dataclass(frozen=True)
class CheckpointHeader:
    """What a checkpoint is about."""

    model: dict[str, Any]
    step: int
    data: dict[str, Any] = field(default_factory=dict)  # stream, batch, length, order and position in them
    vocabulary: str = ""  # fingerprint; empty: not told

    def to_json(self, sums: dict[str, str]) -> str:
        """With the checksums of the tensors, and its own."""
        return checksums.sign({"format": FORMAT, "tensors": sums, **self.__dict__})

    def is_valid(self) -> bool:
        """Whether all fields have their types."""
        return (isinstance(self.model, dict) and isinstance(self.data, dict) and isinstance(self.vocabulary, str)
                and type(self.step) is int and self.step >= 0)  # fmt: skip


def fingerprint(vocabulary: Vocabulary | None) -> str:
    """One word for how a vocabulary encodes; empty without one."""
    return "" if vocabulary is None else vocabulary.fingerprint()


def save_checkpoint(
    path: Path,
    model: LanguageModel,
    header: CheckpointHeader,
    record: dict[str, Tensor],
    vocabulary: Vocabulary | None = None,
) -> None:
    """Write everything an exact continuation needs; the file appears whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {f"model.{name}": tensor for name, tensor in model.tensors().items()} | record
    if vocabulary is not None:
        tensors[WORDS] = torch.frombuffer(bytearray(vocabulary.to_json().encode()), dtype=torch.uint8)
    # copies: views of one vector share memory, which the format refuses
    plain = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    metadata = {KEY: header.to_json({name: _digest(tensor) for name, tensor in plain.items()})}
    with replacing(Path(path)) as scratch:
        try:
            save_file(plain, scratch, metadata=metadata)
        except SafetensorError as error:  # where the disk is full
            raise OSError(None, str(error)) from error


def read_header(path: Path) -> CheckpointHeader:
    """The header alone: cheap, whatever the size of the file."""
    with _opened(path) as found:
        return found.header


def check(path: Path) -> CheckedFiles:
    """Compare every tensor with its checksum."""
    with _opened(path) as found:
        found.check(found.sums)
        return CheckedFiles(1, path.stat().st_size)


def load_checkpoint(path: Path, model: LanguageModel) -> tuple[CheckpointHeader, dict[str, Tensor]]:
    """Write the tensors into the model, in place, and return the header and the record so far.

    The model stays as it is unless all of the file is as it was written.
    """
    with _opened(path) as found:
        if found.header.model != model.describe():
            differs = _difference(found.header.model, model.describe())
            raise InputError("checkpoint", str(path), f"one of the same model ({differs})")
        found.check(found.sums)
        tensors = {name: found.file.get_tensor(name) for name in found.sums if name != WORDS}
        if found.format == 2:
            tensors = _moments_of_format_2(tensors, model.describe())
        own = {f"model.{name}": tensor for name, tensor in model.tensors().items()}
        if any(name not in tensors or tensors[name].shape != tensor.shape for name, tensor in own.items()):
            raise InputError("checkpoint", str(path), "one with all tensors of the model")
        for name, tensor in own.items():
            tensor.detach().copy_(tensors.pop(name))
    return found.header, tensors


def read_vocabulary(path: Path) -> Vocabulary:
    """The words that were saved with the model."""
    with _opened(path) as found:
        if WORDS not in found.sums:
            raise InputError("checkpoint", str(path), "one that was saved with its vocabulary")
        found.check([WORDS])
        return Vocabulary.from_json(found.file.get_tensor(WORDS).numpy().tobytes(), str(path))


@dataclass(frozen=True)
class _CheckpointFile:
    """A file whose header is as it was written."""

    path: Path
    file: Any
    header: CheckpointHeader
    sums: dict[str, str]  # of the tensors
    format: int

    def check(self, names: Iterable[str]) -> None:
        for name in names:
            if _digest(self.file.get_tensor(name)) != self.sums[name]:
                raise Damaged("checkpoint", self.path, f"the tensor {name}", "does not match its checksum")


@contextmanager
def _opened(path: Path) -> Iterator[_CheckpointFile]:
    from safetensors import SafetensorError, safe_open

    foreign = InputError("checkpoint", str(path), "a checkpoint written by scansnap, whole")
    try:
        check_layout(path)
        with safe_open(path, framework="pt") as file:
            values = (file.metadata() or {}).get(KEY)
            if values is None:
                raise foreign
            found = _CheckpointFile(path, file, *_header(path, values))
            for name in sorted(set(file.keys()) ^ set(found.sums)):
                problem = "is missing" if name in found.sums else "is not its own"
                raise Damaged("checkpoint", path, f"the tensor {name}", problem)
            yield found
    except FileNotFoundError:
        raise InputError("checkpoint", str(path), "a file that is there") from None
    except (OSError, LayoutError, SafetensorError) as error:
        if _begins_like_ours(path):
            raise Damaged("checkpoint", path, "its content", f"cannot be read ({error})") from None
        raise foreign from None


def _begins_like_ours(path: Path) -> bool:
    try:
        with open_regular(path.resolve()) as file:
            return f'"{KEY}"'.encode() in file.read(1 << 16)
    except OSError:
        return False


def _header(path: Path, text: str) -> tuple[CheckpointHeader, dict[str, str], int]:
    """The header, the tensors' checksums and the format."""
    try:
        values = checksums.signed(text)
    except KeyError:
        raise InputError("checkpoint", str(path), checksums.EARLIER) from None
    except (ValueError, TypeError, RecursionError):
        raise Damaged("checkpoint", path, "its header", "does not match its checksum") from None
    version, sums = values.pop("format", None), values.pop("tensors", {})
    if version not in (2, FORMAT):
        raise InputError("checkpoint", str(path), f"a checkpoint of the format {FORMAT}")
    model = values.get("model")
    if version == 2 and isinstance(model, dict):  # it named a momentum in any case, and knew no weight decay
        momentum = model.get("momentum") if model.get("optimizer") == "momentum" else None
        model |= {"momentum": momentum, "weight_decay": 0.0}
    header = CheckpointHeader(**values) if values.keys() == CheckpointHeader.__dataclass_fields__.keys() else None
    if header is None or not header.is_valid() or not _are_texts(sums):
        raise InputError("checkpoint", str(path), "a checkpoint whose header scansnap wrote")
    return header, sums, version


def _are_texts(table: Any) -> bool:
    return isinstance(table, dict) and all(isinstance(value, str) for value in table.values())


def _moments_of_format_2(tensors: dict[str, Tensor], told: dict[str, Any]) -> dict[str, Tensor]:
    """Those of a transformer were of the gradient; now they are of its negative, as everywhere."""
    if told["kind"] != "transformer":
        return tensors
    turned = {name for name in tensors if name.startswith("model.") and name.endswith((".momentum", ".mean"))}
    return {
        name.replace(".momentum", ".velocity") if name in turned else name: -tensor if name in turned else tensor
        for name, tensor in tensors.items()
    }


def _digest(tensor: Tensor) -> str:
    """Of a tensor's type, shape and content."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def open_model(path: Path, device: str | torch.device = "cpu") -> tuple[LanguageModel, CheckpointHeader]:
    """The trained model a checkpoint holds, whatever its kind."""
    model = build_for(path, device)
    return model, load_checkpoint(path, model)[0]


def build_for(path: Path, device: str | torch.device = "cpu") -> LanguageModel:
    """The model that a checkpoint describes, with its initial values.

    Nothing of its size is allocated unless the file has tensors of the same shapes.
    """
    with _opened(path) as found:
        shapes = {name: tuple(found.file.get_slice(name).get_shape()) for name in found.sums}
        if found.format == 2:  # its velocities have another name
            shapes |= {name.replace(".momentum", ".velocity"): shape for name, shape in shapes.items()}
        description = found.header.model
    other = InputError("checkpoint", str(path), "one with all tensors of the model that its header describes")
    layers = description.get("layers", 1)
    if not isinstance(layers, int) or layers > LAYERS:
        raise other
    try:
        with torch.device("meta"):
            tensors = build_model(description, "meta").tensors()
    except InputError as error:
        raise InputError("checkpoint", str(path), f"one of a model that can be ({error})") from None
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise other from None
    if any(shapes.get(f"model.{name}") != tuple(tensor.shape) for name, tensor in tensors.items()):
        raise other
    return build_model(description, device)


def build_model(description: dict[str, Any], device: str | torch.device = "cpu") -> LanguageModel:
    """A model as ``describe()`` told of it, with its initial values."""
    kinds: dict[str, type[Transformer] | type[YZTransformer]] = {"transformer": Transformer, "yz": YZTransformer}
    kind = str(description.get("kind"))
    if kind not in kinds:
        raise InputError("kind", kind, "one of " + ", ".join(kinds))
    return kinds[kind].from_description(description, device)


def _difference(theirs: dict[str, Any], mine: dict[str, Any]) -> str:
    names = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
    return ", ".join(f"its {name} is {theirs.get(name)!r}, here {mine.get(name)!r}" for name in names[:3])

"""Model files: safetensors with all tensors of a training and a JSON header, replaced atomically.

The header has the model's configuration, the number of updates, the position in the data, and fingerprints of the data
and the vocabulary. The tensors are those of the model (``model.…``), the record of the training, and the vocabulary's
JSON as bytes, so that a model and its words stay together. Nothing is pickled.

The header carries the SHA-256 of every tensor (with its type and shape) and its own. Reading the header checks the
header; reading a model checks all of it (about 1 GB/s) before the first tensor is used. safetensors itself compares
types, shapes and offsets with the size of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_choice
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.storage import checksums, replacing
from scansnap.storage.checksums import CheckedFiles, Damaged
from scansnap.storage.objects import open_regular
from scansnap.text.model import LanguageModel
from scansnap.text.training_result import TrainingResult
from scansnap.text.transformer.model import Transformer
from scansnap.text.yz.model import YZTransformer

SUFFIX = ".safetensors"
FORMAT = 3
KEY = "scansnap"
WORDS = "vocabulary"  # the tensor with the words
MAX_LAYERS = 10_000  # of a model that is read
KINDS: dict[str, type[Transformer] | type[YZTransformer]] = {"transformer": Transformer, "yz": YZTransformer}


@dataclass(frozen=True)
class CheckpointHeader:
    """The header of a model's file."""

    model: dict[str, Any]
    step: int
    data: dict[str, Any] = field(default_factory=dict)  # stream, batch, length, order, schedule and position in them
    vocabulary: str = ""  # fingerprint; empty without a vocabulary

    def to_json(self, sums: dict[str, str]) -> str:
        """With the checksums of the tensors, and its own."""
        return checksums.sign({"format": FORMAT, "tensors": sums, **self.__dict__})

    def is_valid(self) -> bool:
        """Whether all fields have their types."""
        return (isinstance(self.model, dict) and isinstance(self.data, dict) and isinstance(self.vocabulary, str)
                and type(self.step) is int and self.step >= 0)  # fmt: skip


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model with its words."""

    model: LanguageModel
    vocabulary: Vocabulary
    header: CheckpointHeader
    measured: dict[str, dict[int, float]]  # numbers measured in training, by name and step

    @property
    def title(self) -> str:
        """What the model is and how long it was trained."""
        description = self.model.describe()
        kind = "YZ model" if description["kind"] == "yz" else "Transformer"
        kind = f"Prediction of a {kind}" if description.get("uniform_attention") else kind
        layers = f"{self.model.layers} layer{'s' if self.model.layers > 1 else ''}"
        return f"{kind}, {layers}, {len(self.vocabulary):,} {self.vocabulary.unit}, {self.header.step:,} steps"


def load_model(path: Path | str, device: str | torch.device = "cpu") -> TrainedModel:
    """Load a trained model with its vocabulary.

    Parameters
    ----------
    path
        A file that ``train(..., checkpoint=path, vocabulary=vocabulary)`` or ``scansnap text train`` wrote.
    device
        Where the model computes.

    Returns
    -------
    TrainedModel
        With ``model``, ``vocabulary``, ``header`` and ``measured``.

    Examples
    --------
    >>> import tempfile, numpy as np, scansnap as ss
    >>> from scansnap.corpus.vocabulary import build
    >>> vocabulary, ids = build(["the cat sat on the mat\\n"] * 20, min_count=1)
    >>> model = ss.text.YZTransformer(ss.text.YZSettings(len(vocabulary)))
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> run = ss.text.train(model, ids, steps=2, batch=2, checkpoint=path, vocabulary=vocabulary)
    >>> ss.text.load_model(path).title
    'YZ model, 1 layer, 7 words, 2 steps'
    """
    path = Path(path)
    vocabulary = read_vocabulary(path)
    model = build_untrained(path, device)
    if model.vocab_size != len(vocabulary):
        raise InputError("vocabulary", f"{len(vocabulary)} words", f"the {model.vocab_size} words of the model")
    header, record = load_checkpoint(path, model)
    result = TrainingResult.from_tensors(header.step, header.step, record)
    measured = {"perplexity": result.valid} if result.valid else {}
    for step, values in result.measured.items():
        for name, value in values.items():
            if not isinstance(value, np.ndarray):
                measured.setdefault(name, {})[step] = float(value)
    return TrainedModel(model, vocabulary, header, measured)


def build_untrained(path: Path, device: str | torch.device = "cpu") -> LanguageModel:
    """The model that a checkpoint describes, with its initial values.

    Nothing of its size is allocated unless the file has tensors of the same shapes.
    """
    with _opened(path) as checkpoint:
        shapes = {name: tuple(checkpoint.file.get_slice(name).get_shape()) for name in checkpoint.sums}
        description = checkpoint.header.model
    mismatch = InputError("checkpoint", str(path), "a checkpoint with all tensors of the model in its header")
    layers = description.get("layers", 1)
    if not isinstance(layers, int) or layers > MAX_LAYERS:
        raise mismatch
    try:
        with torch.device("meta"):
            tensors = build_model(description, "meta").tensors()
    except InputError as error:
        raise InputError("checkpoint", str(path), f"a checkpoint of a valid model ({error})") from None
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise mismatch from None
    if any(shapes.get(f"model.{name}") != tuple(tensor.shape) for name, tensor in tensors.items()):
        raise mismatch
    return build_model(description, device)


def build_model(description: dict[str, Any], device: str | torch.device = "cpu") -> LanguageModel:
    """A model from its ``describe()``, with its initial values."""
    kind = check_choice("kind", str(description.get("kind")), KINDS)
    return KINDS[kind].from_description(description, device)


def fingerprint(vocabulary: Vocabulary | None) -> str:
    """Identifies how a vocabulary encodes; empty without one."""
    return "" if vocabulary is None else vocabulary.fingerprint()


def save_checkpoint(
    path: Path,
    model: LanguageModel,
    header: CheckpointHeader,
    record: dict[str, Tensor],
    vocabulary: Vocabulary | None = None,
) -> None:
    """Write everything that an exact continuation needs, atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {f"model.{name}": tensor for name, tensor in model.tensors().items()} | record
    if vocabulary is not None:
        tensors[WORDS] = torch.frombuffer(bytearray(vocabulary.to_json().encode()), dtype=torch.uint8)
    # copies: the format refuses views that share memory
    copies = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    metadata = {KEY: header.to_json({name: _digest(tensor) for name, tensor in copies.items()})}
    with replacing(Path(path)) as scratch:
        try:
            save_file(copies, scratch, metadata=metadata)
        except SafetensorError as error:  # such as a full disk
            raise OSError(None, str(error)) from error


def read_header(path: Path) -> CheckpointHeader:
    """The header alone: cheap, whatever the size of the file."""
    with _opened(path) as checkpoint:
        return checkpoint.header


def check(path: Path) -> CheckedFiles:
    """Compare every tensor with its checksum."""
    with _opened(path) as checkpoint:
        checkpoint.check(checkpoint.sums)
        return CheckedFiles(1, path.stat().st_size)


def load_checkpoint(path: Path, model: LanguageModel) -> tuple[CheckpointHeader, dict[str, Tensor]]:
    """Write the tensors into the model, in place; the header and the record of the training.

    The model stays as it is unless the whole file is sound.
    """
    with _opened(path) as checkpoint:
        saved, current = checkpoint.header.model, model.describe()
        if saved != current:
            names = [name for name in {**saved, **current} if saved.get(name) != current.get(name)][:3]
            differences = ", ".join(f"its {name} is {saved.get(name)!r}, not {current.get(name)!r}" for name in names)
            raise InputError("checkpoint", str(path), f"a checkpoint of the same model ({differences})")
        checkpoint.check(checkpoint.sums)
        tensors = {name: checkpoint.file.get_tensor(name) for name in checkpoint.sums if name != WORDS}
        own = {f"model.{name}": tensor for name, tensor in model.tensors().items()}
        if any(name not in tensors or tensors[name].shape != tensor.shape for name, tensor in own.items()):
            raise InputError("checkpoint", str(path), "a checkpoint with all tensors of the model")
        for name, tensor in own.items():
            tensor.detach().copy_(tensors.pop(name))
    return checkpoint.header, tensors


def read_vocabulary(path: Path) -> Vocabulary:
    """The words that were saved with the model."""
    with _opened(path) as checkpoint:
        if WORDS not in checkpoint.sums:
            raise InputError("checkpoint", str(path), "a checkpoint that was saved with its vocabulary")
        checkpoint.check([WORDS])
        return Vocabulary.from_json(checkpoint.file.get_tensor(WORDS).numpy().tobytes(), str(path))


@dataclass(frozen=True)
class _CheckpointFile:
    """A file whose header is sound."""

    path: Path
    file: Any
    header: CheckpointHeader
    sums: dict[str, str]  # of the tensors

    def check(self, names: Iterable[str]) -> None:
        for name in names:
            if _digest(self.file.get_tensor(name)) != self.sums[name]:
                raise Damaged("checkpoint", self.path, f"the tensor {name}", "does not match its checksum")


@contextmanager
def _opened(path: Path) -> Iterator[_CheckpointFile]:
    from safetensors import SafetensorError, safe_open

    foreign = InputError("checkpoint", str(path), "a complete checkpoint written by scansnap")
    try:
        with open_regular(path.resolve()), safe_open(path, framework="pt") as file:  # a pipe may never end
            values = (file.metadata() or {}).get(KEY)
            if values is None:
                raise foreign
            checkpoint = _CheckpointFile(path, file, *_parse_header(path, values))
            for name in sorted(set(file.keys()) ^ set(checkpoint.sums)):
                problem = "is missing" if name in checkpoint.sums else "is not its own"
                raise Damaged("checkpoint", path, f"the tensor {name}", problem)
            yield checkpoint
    except FileNotFoundError:
        raise InputError("checkpoint", str(path), "a file that exists") from None
    except (OSError, SafetensorError) as error:
        if _begins_like_ours(path):
            raise Damaged("checkpoint", path, "its content", f"cannot be read ({error})") from None
        raise foreign from None


def _begins_like_ours(path: Path) -> bool:
    try:
        with open_regular(path.resolve()) as file:
            return f'"{KEY}"'.encode() in file.read(1 << 16)
    except OSError:
        return False


def _parse_header(path: Path, text: str) -> tuple[CheckpointHeader, dict[str, str]]:
    """The header and the tensors' checksums."""
    try:
        values = checksums.signed(text)
    except KeyError:
        raise InputError("checkpoint", str(path), checksums.EARLIER) from None
    except (ValueError, TypeError, RecursionError):
        raise Damaged("checkpoint", path, "its header", "does not match its checksum") from None
    sums = values.pop("tensors", {})
    if values.pop("format", None) != FORMAT:
        raise InputError("checkpoint", str(path), f"a checkpoint of the format {FORMAT}")
    header = CheckpointHeader(**values) if values.keys() == CheckpointHeader.__dataclass_fields__.keys() else None
    are_texts = isinstance(sums, dict) and all(isinstance(value, str) for value in sums.values())
    if header is None or not header.is_valid() or not are_texts:
        raise InputError("checkpoint", str(path), "a checkpoint whose header scansnap wrote")
    return header, sums


def _digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's type, shape and content."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""A model file of somebody else is refused by its header, before anything of the size it declares is allocated."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_text import open_model

from scansnap.checks import InputError
from scansnap.storage import checksums
from scansnap.text import model_files
from scansnap.text.model_files import KEY, CheckpointHeader, check, read_header, save_checkpoint
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

WHOLE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HEADERS: dict[str, Any] = {
    "not JSON": b"\xff\xfe{",
    "a list": [1],
    "deeply nested": b"[" * 100_000,
    "an integer of 5,000 digits": b'{"x": ' + b"9" * 5000 + b"}",
    "a negative shape": {"x": WHOLE | {"shape": [-1]}},
    "a huge shape": {"x": WHOLE | {"shape": [2**40, 2**40]}},
    "a huge shape without content": {"x": WHOLE | {"shape": [0, 2**70], "data_offsets": [0, 0]}},
    "another type": {"x": WHOLE | {"dtype": "OBJ"}},
    "a type of half bytes": {"x": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}},
    "overlapping places": {"x": WHOLE, "y": WHOLE | {"data_offsets": [2, 6]}},
    "a place behind the file": {"x": WHOLE | {"data_offsets": [2**50, 2**50 + 4]}},
    "the same name twice": b'{"x": %s, "x": %s}' % ((json.dumps(WHOLE).encode(),) * 2),
    "metadata that is no text": {"__metadata__": {KEY: 5}, "x": WHOLE},
    "metadata that is a list": {"__metadata__": [1], "x": WHOLE},
}


def write(file: Path, header: Any, content: bytes = bytes(4), length: int | None = None) -> Path:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded) if length is None else length) + encoded + content)
    return file


READERS: list[Callable[[Path], Any]] = [read_header, check, open_model]


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_header_is_bad_input(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "m.safetensors", HEADERS[name])
    for read in READERS:
        with pytest.raises(InputError) as refusal:
            read(file)
        assert refusal.value.field == "checkpoint"


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**11, 3])
def test_a_hostile_length_of_the_header_is_bad_input(tmp_path: Path, length: int) -> None:
    with pytest.raises(InputError):
        read_header(write(tmp_path / "m.safetensors", {"x": WHOLE}, length=length))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are of POSIX")
def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.safetensors")
    for place in (tmp_path / "m.safetensors", Path("/dev/zero")):
        with pytest.raises(InputError):
            read_header(place)


def resigned(file: Path, **changes: Any) -> None:
    """Changes to our own header, under a checksum that fits."""
    (length,) = struct.unpack("<Q", file.read_bytes()[:8])
    content = file.read_bytes()[8 + length :]
    header = json.loads(file.read_bytes()[8 : 8 + length])
    actual = json.loads(header["__metadata__"][KEY]) | changes
    del actual["sha256"]
    header["__metadata__"][KEY] = checksums.sign({name: value for name, value in actual.items() if value is not ...})
    write(file, header, content)


@pytest.mark.parametrize(
    "changes",
    [{"model": 5}, {"model": {}}, {"model": ...}, {"step": "many"}, {"step": -1}, {"data": []}, {"more": 1},
     {"tensors": 5}, {"tensors": {"model.step": 5}}, {"tensors": {}}, {"vocabulary": None}, {"format": 2}],
    ids=str,
)  # fmt: skip
def test_a_header_of_other_fields_under_a_sound_checksum_is_bad_input(tmp_path: Path, changes: dict[str, Any]) -> None:
    file = saved(tmp_path)
    resigned(file, **changes)
    with pytest.raises(InputError):
        open_model(file)


def saved(folder: Path, kind: str = "yz") -> Path:
    model = (YZTransformer(YZSettings(vocab_size=4)) if kind == "yz"
             else Transformer(TransformerSettings(vocab_size=4, width=8, heads=2)))  # fmt: skip
    save_checkpoint(folder / "m.safetensors", model, CheckpointHeader(model.describe(), 0), {})
    return folder / "m.safetensors"


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("yz", {"vocab_size": 10**6}), ("yz", {"vocab_size": 10**12}), ("yz", {"layers": 10**9}), ("yz", {"layers": "2"}),
     ("yz", {"vocab_size": [4]}), ("yz", {"vocab_size": 10**30}), ("yz", {"kind": "other"}),
     ("transformer", {"vocab_size": 10**9}), ("transformer", {"width": 10**6}), ("transformer", {"layers": 99})],
    ids=str,
)  # fmt: skip
def test_a_model_of_another_size_than_its_tensors_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, changes: dict[str, Any]
) -> None:
    file = saved(tmp_path, kind)
    model, header = open_model(file)
    assert header.model == model.describe()
    resigned(file, model=header.model | changes)
    devices: list[str] = []
    build = model_files.build_model

    def recorded(description: dict[str, Any], device: str | torch.device = "cpu") -> Any:
        devices.append(str(device))
        return build(description, device)

    monkeypatch.setattr(model_files, "build_model", recorded)
    with pytest.raises(InputError):
        open_model(file)
    assert devices in ([], ["meta"]), "only shapes were made"

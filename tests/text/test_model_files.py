"""Files of models: what they say, what they refuse, and that a failed write leaves the old one."""

import json
import resource

import numpy as np
import pytest
import torch
from small_text import M, open_model, stream, transformer

from refusals import refused
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.storage import WriteError
from scansnap.text.model_files import CheckpointHeader, build_model, load_checkpoint, read_header, save_checkpoint
from scansnap.text.training import train


def test_a_checkpoint_in_the_way_stays(tmp_path):
    file = tmp_path / "run.safetensors"
    train(transformer(), stream(), steps=3, batch=4, length=10, checkpoint=file)
    for path in (file, tmp_path):
        with refused("checkpoint"):
            train(transformer(), stream(), steps=2, batch=4, length=10, checkpoint=path)
    assert read_header(file).step == 3
    train(transformer(), stream(), steps=2, batch=4, length=10, checkpoint=file, overwrite=True)
    assert read_header(file).step == 2


def test_a_checkpoint_says_what_it_is(tmp_path):
    file = tmp_path / "a.safetensors"
    words = Vocabulary(["<unk>", "<eos>", *(f"w{i}" for i in range(M - 2))], np.arange(M, 0, -1))
    model = transformer()
    train(model, stream(), steps=43, batch=4, length=10, checkpoint=file, vocabulary=words)
    header = read_header(file)
    assert header.model == model.describe()
    assert (header.step, header.data["epoch"], header.data["window"]) == (43, 4, 3)
    opened, _ = open_model(file)
    inputs = torch.arange(6)[None]
    assert torch.equal(opened.logits(inputs), model.logits(inputs))
    cases = [
        ("checkpoint", "data", {"tokens": stream(seed=5)}),
        ("checkpoint", "length", {"length": 5}),
        ("checkpoint", "vocabulary", {"vocabulary": None}),
        ("steps", "2", {"steps": 2}),
        ("checkpoint", "eta", {"model": transformer(eta=2.0)}),
    ]
    for field, name, change in cases:
        options = {
            "model": transformer(),
            "tokens": stream(),
            "steps": 50,
            "batch": 4,
            "length": 10,
            "vocabulary": words,
        }
        with refused(field, names=name):
            train(**options | change, checkpoint=file, resume=True)
        assert torch.equal(options["model"].tensors()["embedding"], transformer().tensors()["embedding"])
    with refused("kind"):
        build_model({"kind": "rnn"})


def test_files_that_are_no_checkpoints(tmp_path):
    with refused("checkpoint"):
        read_header(tmp_path / "none.safetensors")
    (tmp_path / "text").write_text("no checkpoint at all")
    with refused("checkpoint"):
        read_header(tmp_path / "text")
    with refused("resume"):
        train(transformer(), stream(), steps=2, batch=4, length=10, resume=True)
    model = transformer()
    lacking = type("Lacking", (), {"tensors": lambda s: {"step": model.step}, "describe": lambda s: model.describe()})()
    save_checkpoint(tmp_path / "part", lacking, CheckpointHeader(model.describe(), 0), {})
    with refused("checkpoint"):
        load_checkpoint(tmp_path / "part", model)


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    import safetensors.torch

    file = tmp_path / "a.safetensors"
    train(transformer(), stream(), steps=3, batch=4, length=10, checkpoint=file)
    before = file.read_bytes()

    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="space"):
        train(transformer(), stream(), steps=5, batch=4, length=10, checkpoint=file, resume=True)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_disk_that_takes_no_more_is_one_sentence(tmp_path):
    """safetensors says it with an error of its own kind."""
    file = tmp_path / "a.safetensors"
    train(transformer(), stream(), steps=3, batch=4, length=10, checkpoint=file)
    before, (soft, hard) = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    assert len(before) > 4096  # the block by which a place is tried
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(WriteError, match=r"a\.safetensors could not be written"):
            train(transformer(), stream(), steps=5, batch=4, length=10, checkpoint=file, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_bytes() == before
    assert [place.name for place in tmp_path.iterdir()] == [file.name]


def test_a_checkpoint_of_an_earlier_version_is_said(tmp_path):
    import safetensors.torch

    header = {"format": 1, "model": {}, "step": 3, "data": {}, "vocabulary": ""}
    safetensors.torch.save_file({"x": torch.zeros(3)}, tmp_path / "a", metadata={"scansnap": json.dumps(header)})
    with refused("checkpoint", names="version"):
        read_header(tmp_path / "a")
    safetensors.torch.save_file({"x": torch.zeros(3)}, tmp_path / "a")
    with refused("checkpoint"):
        read_header(tmp_path / "a")

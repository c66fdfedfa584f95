"""The loop: what it records, and that an interrupted run goes on as if it had not been."""

import json
import resource
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from scansnap.checks import InputError
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.corpus.windows import Windows
from scansnap.interrupt import Stopped
from scansnap.storage import WriteError
from scansnap.text import model_files
from scansnap.text.evaluate import attention_measure, perplexity
from scansnap.text.model_files import Header, build_model, load_checkpoint, open_model, read_header, save_checkpoint
from scansnap.text.train import TrainingSettings, log_spaced, train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

M = 20


def stream(n=400, seed=0):
    """A noisy cycle: the next token is mostly the one above."""
    rng = np.random.default_rng(seed)
    tokens = np.zeros(n, np.int32)
    for t in range(1, n):
        tokens[t] = (tokens[t - 1] + 1) % M if rng.random() < 0.8 else rng.integers(M)
    return tokens


def transformer(**options):
    given = {"width": 16, "feed_forward": 8, "eta": 1.0, "dropout": 0.2}
    return Transformer(TransformerSettings(M, **(given | options)))


def yz(**options):
    return YZTransformer(YZSettings(M, **({"eta_y": 20.0, "eta_z": 2.0} | options)))


MODELS = {
    "transformer": transformer,
    "adam": lambda: transformer(optimizer="adam", eta=0.01, layers=2),
    "masked": lambda: transformer(objective="masked", optimizer="adam", eta=0.01, positions="rope", dropout=0.0),
    "yz": yz,
    "yz adam": lambda: yz(optimizer="adam", init="uniform", eta_y=0.05, eta_z=0.01),
}


@pytest.mark.parametrize("kind", MODELS)
def test_learns(kind):
    result = train(MODELS[kind](), stream(2000), steps=150, batch=5, length=10)
    assert result.complete
    assert result.losses.shape == (150,)
    assert result.losses[-10:].mean() < result.losses[:3].mean() - 0.4
    assert result.tokens == 150 * 50 - 5 * (150 // 40) * (10 - (399 % 10))


def test_the_loop_is_the_plain_one():
    """Epoch by epoch, window by window, in order or shuffled."""
    for shuffle in (None, 3):
        by_hand, losses = transformer(), []
        windows = Windows(stream(), 4, 10)
        for epoch in range(2):
            losses += [float(by_hand.train_step(*windows[i])) for i in windows.order(shuffle, epoch)]
        result = train(transformer(), stream(), epochs=2, batch=4, length=10, shuffle=shuffle)
        assert result.losses.tolist() == losses


def test_measures_and_validates_when_asked():
    seen = []

    def measure(model, step):
        seen.append(step)
        return {
            "entropy": model.attention(torch.zeros(1, 3, dtype=torch.int64))[0].sum(),
            "map": torch.full((2, 2), step),
        }

    model = transformer()
    result = train(
        model,
        stream(),
        steps=25,
        batch=4,
        length=10,
        valid=stream(90, 1),
        validate_every=10,
        measure=measure,
        snapshots=[0, 3, 25],
    )
    assert seen == [0, 3, 25] == list(result.measured)
    assert isinstance(result.measured[3]["entropy"], float)
    assert result.measured[3]["map"].tolist() == [[3, 3], [3, 3]]
    assert list(result.valid) == [10, 20, 25]
    assert result.valid[25] == perplexity(model, stream(90, 1), length=10, batch=4)


def test_log_spaced_steps():
    assert log_spaced(0) == [0]
    assert log_spaced(1) == [0, 1]
    found = log_spaced(10_000, 4)
    assert found[:4] == [0, 1, 2, 3]
    assert found[-1] == 10_000
    assert sum(1 for s in found if 100 <= s < 1000) == 4


def tensors(model):
    return {name: tensor.clone() for name, tensor in model.tensors().items()}


@pytest.mark.parametrize("kind", MODELS)
def test_resumed_is_bit_for_bit_the_uninterrupted_run(kind, tmp_path):
    options = {"batch": 4, "length": 10, "shuffle": 1, "valid": stream(60, 1), "validate_every": 7}
    options["measure"] = lambda model, step: {
        "mean": model.attention(torch.arange(5)[None])[0].mean(),
        "at": np.arange(step),
    }
    whole_model = MODELS[kind]()
    whole = train(whole_model, stream(), steps=30, **options)
    file = tmp_path / "run.safetensors"
    train(MODELS[kind](), stream(), steps=13, checkpoint=file, **options | {"snapshots": log_spaced(30)[:8]})
    again = MODELS[kind]()
    result = train(again, stream(), steps=30, checkpoint=file, resume=True, **options)
    assert np.array_equal(result.losses, whole.losses)
    for name, tensor in whole_model.tensors().items():
        assert torch.equal(tensor, again.tensors()[name]), name
    for step, value in whole.valid.items():
        assert result.valid[step] == value
    for step, found in whole.measured.items():
        assert found["mean"] == result.measured[step]["mean"]
        assert np.array_equal(found["at"], result.measured[step]["at"])
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]


def test_dropout_depends_on_seed_and_step_alone():
    inputs, targets = Windows(stream(), 4, 10)[0]
    torch.manual_seed(0)
    first = transformer()
    losses = [float(first.train_step(inputs, targets)) for _ in range(3)]
    torch.manual_seed(1)
    untouched = torch.get_rng_state()
    second = transformer()
    assert [float(second.train_step(inputs, targets)) for _ in range(3)] == losses
    assert torch.equal(torch.get_rng_state(), untouched)
    other = transformer(seed=1)
    other.weights["embedding"].copy_(transformer().weights["embedding"])
    assert float(other.train_step(inputs, targets)) != losses[0]
    same_state = transformer()  # the masks of two steps differ: so do losses without any update
    same_state.update = type("Still", (), {"prepare": lambda s, n: None, "__call__": lambda s, w, g: None})()
    a, b = (float(same_state.train_step(inputs, targets)) for _ in range(2))
    assert a != b


def test_dropout_keeps_the_mean():
    from scansnap.text.transformer.draws import Dropout

    settings = TransformerSettings(M, width=16, feed_forward=0, dropout=0.2)
    drop = Dropout(settings, torch.Size([50, 20]), torch.Generator().manual_seed(0), torch.device("cpu"))
    dropped = drop(torch.ones(50, 20, 16))
    assert set(dropped.unique().tolist()) == {0.0, 1.25}
    share = float((dropped == 0).double().mean())
    assert abs(share - 0.2) < 5 * np.sqrt(0.16 / 16000), share


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path):
    file = tmp_path / "run.safetensors"
    whole = train(transformer(), stream(), steps=20, batch=4, length=10)

    def press(model, step):
        signal.raise_signal(signal.SIGINT)
        return {}

    before = signal.getsignal(signal.SIGINT)
    with pytest.warns(
        UserWarning, match="stopped after 6 of 20 steps; its state is in .*run.safetensors; go on with resume"
    ):
        first = train(
            transformer(), stream(), steps=20, batch=4, length=10, checkpoint=file, measure=press, snapshots=[6]
        )
    assert signal.getsignal(signal.SIGINT) is before
    assert not first.complete
    assert first.step == 6 == read_header(file).step
    second = train(transformer(), stream(), steps=20, batch=4, length=10, checkpoint=file, resume=True)
    assert second.complete
    assert np.array_equal(second.losses, whole.losses)


def test_an_interrupt_raised_by_a_callback_loses_nothing(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    file = tmp_path / "a"
    with pytest.warns(UserWarning, match="stopped after 1 of 9 steps"):
        result = train(transformer(), stream(), steps=9, batch=4, length=10, progress=stop, checkpoint=file)
    assert result.step == 1 == read_header(file).step


def test_an_interrupt_in_the_last_step_is_not_swallowed():
    def stop(done, total):
        if done == total:
            raise KeyboardInterrupt

    with pytest.warns(Stopped, match="asked to stop in its last steps: the training is complete"):
        done = train(yz(), stream(), steps=3, batch=4, length=10, progress=stop)
    assert done.complete


def test_a_second_ctrl_c_ends_the_program(tmp_path):
    def press(model, step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return {}

    file = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(transformer(), stream(), steps=20, batch=4, length=10, checkpoint=file, measure=press, snapshots=[6])
    assert not file.exists()  # perhaps amid an update: nothing that is not whole is written


def test_a_checkpoint_in_the_way_stays(tmp_path):
    file = tmp_path / "run.safetensors"
    train(transformer(), stream(), steps=3, batch=4, length=10, checkpoint=file)
    for path in (file, tmp_path):
        with pytest.raises(InputError, match=r"not there yet|that is a folder"):
            train(transformer(), stream(), steps=2, batch=4, length=10, checkpoint=path)
    assert read_header(file).step == 3
    train(transformer(), stream(), steps=2, batch=4, length=10, checkpoint=file, overwrite=True)
    assert read_header(file).step == 2


def test_measures_attention_while_training():
    inputs = torch.from_numpy(stream(22)).long().view(2, 11)
    model = transformer(layers=2)
    measure = attention_measure(inputs, groups=np.arange(M) % 3, maps=True)
    result = train(model, stream(), steps=5, batch=4, length=10, measure=measure, snapshots=[0, 5])
    last = result.measured[5]
    assert last["layer1.map"].shape == (1, 11, 11)
    np.testing.assert_array_equal(last["layer0.map"], model.attention(inputs)[0][0].numpy())
    assert last["layer0.entropy"] != result.measured[0]["layer0.entropy"]
    assert abs(last["layer0.group_mass"].sum() - 1) < 1e-6


def test_a_run_that_diverges_stops_and_says_where(tmp_path):
    model = transformer(clip=None, dropout=0.0)
    model.tensors()["decoder"][5, 0] = torch.nan
    result = train(model, stream(), steps=20, batch=4, length=10, checkpoint=tmp_path / "a")
    assert result.failed_step == 1
    assert not (tmp_path / "a").exists()  # a state to go on from would be overwritten
    assert not result.complete


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
    cases = {
        "same data": {"tokens": stream(seed=5)},
        "its length is 10": {"length": 5},
        "same vocabulary": {"vocabulary": None},
        "steps": {"steps": 2},
        "its eta is 1.0": {"model": transformer(eta=2.0)},
    }
    for said, change in cases.items():
        given = {"model": transformer(), "tokens": stream(), "steps": 50, "batch": 4, "length": 10, "vocabulary": words}
        with pytest.raises(InputError, match=said):
            train(**given | change, checkpoint=file, resume=True)
        assert torch.equal(given["model"].tensors()["embedding"], transformer().tensors()["embedding"])
    with pytest.raises(InputError, match="kind"):
        build_model({"kind": "rnn"})


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_a_file_of_format_2_goes_on(name, tmp_path, monkeypatch):
    """It says a momentum of 0.9 to every optimiser, no weight decay, and has moments of the gradient."""
    options = {"batch": 4, "length": 10}
    rate = {"optimizer": name, "eta": 0.01 if name == "adam" else 0.5}
    whole, model = transformer(**rate), transformer(**rate)
    losses = train(whole, stream(), steps=9, **options).losses
    record = train(model, stream(), steps=5, checkpoint=tmp_path / "new", **options).tensors()
    header = read_header(tmp_path / "new")
    told = {key: value for key, value in header.model.items() if key != "weight_decay"} | {"momentum": 0.9}
    old = {}
    for key, tensor in model.tensors().items():
        turned = key.endswith((".velocity", ".mean"))
        old[key.replace(".velocity", ".momentum")] = -tensor if turned else tensor
    monkeypatch.setattr(model_files, "FORMAT", 2)
    earlier = type("Earlier", (), {"tensors": lambda self: old})()
    save_checkpoint(tmp_path / "old", earlier, replace(header, model=told), record)
    monkeypatch.undo()
    assert open_model(tmp_path / "old")[0].describe() == model.describe()
    again = transformer(**rate)
    done = train(again, stream(), steps=9, checkpoint=tmp_path / "old", resume=True, **options)
    assert np.array_equal(done.losses, losses)
    for key, tensor in whole.tensors().items():
        assert torch.equal(tensor, again.tensors()[key]), key


def test_settings_and_keywords_are_the_same():
    by_keywords = train(transformer(), stream(), steps=7, batch=4, length=10, shuffle=2)
    settings = TrainingSettings(steps=7, batch=4, length=5, shuffle=2)
    by_object = train(transformer(), stream(), replace(settings, length=10))
    of_both = train(transformer(), stream(), settings, length=10)
    assert by_keywords.losses.tolist() == by_object.losses.tolist() == of_both.losses.tolist()
    with pytest.raises(InputError, match="epochs instead"):
        train(transformer(), stream(), settings, epochs=2)
    with pytest.raises(TypeError, match="lenght"):
        train(transformer(), stream(), steps=3, lenght=10)
    with pytest.raises(InputError, match="checkpoint_seconds"):
        TrainingSettings(steps=3, checkpoint_seconds=-1)


def test_files_that_are_no_checkpoints(tmp_path):
    with pytest.raises(InputError, match="a file that is there"):
        read_header(tmp_path / "none.safetensors")
    (tmp_path / "text").write_text("no checkpoint at all")
    with pytest.raises(InputError, match="written by scansnap"):
        read_header(tmp_path / "text")
    with pytest.raises(InputError, match="resume"):
        train(transformer(), stream(), steps=2, batch=4, length=10, resume=True)
    model = transformer()
    lacking = type("Lacking", (), {"tensors": lambda s: {"step": model.step}, "describe": lambda s: model.describe()})()
    save_checkpoint(tmp_path / "part", lacking, Header(model.describe(), 0), {})
    with pytest.raises(InputError, match="all tensors"):
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "epochs instead"),
        ({"steps": 3, "epochs": 1}, "epochs instead"),
        ({"steps": 3, "snapshots": [4], "measure": lambda m, s: {}}, "snapshots"),
        ({"steps": 3, "tokens": np.full(400, M)}, "token ids from 0 and below 20"),
        ({"steps": 3, "measure": lambda m, s: {"name": "text"}}, "a number or an array"),
    ],
    ids=["neither", "both", "late snapshot", "unknown token", "text measured"],
)
def test_bad_input_is_named(options, said):
    with pytest.raises(InputError, match=said):
        train(transformer(), **{"tokens": stream(), "batch": 4, "length": 10} | options)


@pytest.mark.parametrize(
    ("package", "option"), [("safetensors", "checkpoint"), ("torch.utils.tensorboard", "tensorboard")]
)
def test_a_missing_package_is_named(package, option, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match="pip install"):
        train(transformer(), stream(), steps=1, batch=4, length=10, **{option: tmp_path / "x"})
    assert not list(tmp_path.iterdir())


def test_event_files(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(
        transformer(),
        stream(),
        steps=5,
        batch=4,
        length=10,
        valid=stream(50),
        tensorboard=tmp_path,
        measure=lambda m, s: {"step": s},
    )
    events = EventAccumulator(str(tmp_path)).Reload()
    np.testing.assert_allclose([e.value for e in events.Scalars("loss")], result.losses, rtol=1e-6)
    assert [e.step for e in events.Scalars("valid_perplexity")] == [5]


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
    with pytest.raises(InputError, match="from an earlier version, without checksums"):
        read_header(tmp_path / "a")
    safetensors.torch.save_file({"x": torch.zeros(3)}, tmp_path / "a")
    with pytest.raises(InputError, match="written by scansnap"):
        read_header(tmp_path / "a")

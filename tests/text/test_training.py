"""The loop: what it records, and that an interrupted run goes on as if it had not been."""

import gc
import signal
import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_text import M, stream, transformer, yz

from refusals import refused
from scansnap.corpus.windows import Windows
from scansnap.interrupt import Interrupted
from scansnap.kernels.cpu import library
from scansnap.text.evaluation import perplexity
from scansnap.text.model_files import read_header
from scansnap.text.settings import TrainingSettings
from scansnap.text.training import log_spaced, train
from scansnap.text.transformer.draws import masks
from scansnap.text.transformer.settings import TransformerSettings

training = sys.modules[train.__module__]
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
    assert result.is_complete
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
    reference = []

    def measure(model, step):
        reference.append(step)
        entropy = model.attention(torch.zeros(1, 3, dtype=torch.int64))[0].sum()
        return {"entropy": entropy, "map": torch.full((2, 2), step)}

    model = transformer()
    result = train(model, stream(), steps=25, batch=4, length=10, valid=stream(90, 1), validate_every=10,
                   measure=measure, snapshots=[0, 3, 25])  # fmt: skip
    assert reference == [0, 3, 25] == list(result.measured)
    assert isinstance(result.measured[3]["entropy"], float)
    assert result.measured[3]["map"].tolist() == [[3, 3], [3, 3]]
    assert list(result.valid) == [10, 20, 25]
    assert result.valid[25] == perplexity(model, stream(90, 1), length=10, batch=4)


def test_the_time_of_updates_is_told_apart(tmp_path, monkeypatch):
    """An update takes 1 s, a measurement 100, a validation 1,000 and a file 10,000; the first updates count apart."""
    clock = [0.0]

    def takes(seconds, result):
        def call(*_, **__):
            clock[0] += seconds
            return result

        return call

    monkeypatch.setattr(training.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(training, "perplexity", takes(1000, 5.0))
    monkeypatch.setattr(training, "save_checkpoint", takes(10_000, None))
    model = yz()
    step = model.train_step
    model.train_step = lambda x, n: (takes(1, None)(), step(x, n))[1]
    done = train(model, stream(), steps=8, batch=4, length=10, valid=stream(50), validate_every=4, snapshots=[0, 5],
                 measure=takes(100, {"a": 1}), checkpoint=tmp_path / "a", checkpoint_seconds=1e9)  # fmt: skip
    assert (done.seconds, done.overhead) == (12_208, 12_203)
    assert (done.updates, done.tokens, done.first_tokens) == (8, 8 * 40, 3 * 40)
    assert done.tokens_per_second_of_updates == 40
    assert done.tokens_per_second == pytest.approx(320 / 12_208)


@pytest.mark.parametrize("kind", ["transformer", "yz"])
def test_a_model_is_gone_with_its_last_name(kind):
    """Its tables may be all the memory there is: no cycle may keep them until Python looks for one."""
    model = MODELS[kind]()
    train(model, stream(), steps=2, batch=4, length=10)
    reference = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert reference() is None
    finally:
        gc.enable()


def test_log_spaced_steps():
    assert log_spaced(0) == [0]
    assert log_spaced(1) == [0, 1]
    values = log_spaced(10_000, 4)
    assert values[:4] == [0, 1, 2, 3]
    assert values[-1] == 10_000
    assert sum(1 for s in values if 100 <= s < 1000) == 4


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
    for step, values in whole.measured.items():
        assert values["mean"] == result.measured[step]["mean"]
        assert np.array_equal(values["at"], result.measured[step]["at"])
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
    same_state.optimizer = type("Still", (), {"prepare": lambda s, n: None, "__call__": lambda s, w, g: None})()
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


@pytest.mark.skipif(library.find("dropout") is None, reason="the compiled masks are not built here")
@pytest.mark.parametrize(("skip", "n"), [(0, 0), (0, 1), (1, 311), (1, 312), (623, 5), (624, 313), (700, 4000)])
def test_compiled_masks_are_draws_of_the_generator(skip, n):
    """Draw by draw those of NumPy's generator of the same kind, and the generator goes on after them."""
    generator = torch.Generator().manual_seed(2**40 + 7)
    torch.rand(skip, generator=generator)  # a word each
    drawn = masks(torch.empty(n), 0.8, generator)
    after = torch.rand(1, generator=generator)
    words = np.random.MT19937()
    words._legacy_seeding(7)
    high, low = words.random_raw(skip + 2 * n)[skip:].reshape(n, 2).astype(np.uint64).T
    share = (high % 2**21 * 2.0**32 + low) / 2**53
    np.testing.assert_array_equal(drawn, np.where(share < 0.8, np.float32(1.25), 0))
    assert float(after) == (words.random_raw() % 2**24) / 2**24


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path):
    file = tmp_path / "run.safetensors"
    whole = train(transformer(), stream(), steps=20, batch=4, length=10)

    def press(model, step):
        signal.raise_signal(signal.SIGINT)
        return {}

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match=r"run\.safetensors") as interrupted:
        train(transformer(), stream(), steps=20, batch=4, length=10, checkpoint=file, measure=press, snapshots=[6])
    first = interrupted.value.partial
    assert signal.getsignal(signal.SIGINT) is before
    assert not first.is_complete
    assert first.step == 6 == read_header(file).step
    second = train(transformer(), stream(), steps=20, batch=4, length=10, checkpoint=file, resume=True)
    assert second.is_complete
    assert np.array_equal(second.losses, whole.losses)


def test_an_interrupt_raised_by_a_callback_loses_nothing(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    file = tmp_path / "a"
    with pytest.raises(Interrupted) as interrupted:
        train(transformer(), stream(), steps=9, batch=4, length=10, progress=stop, checkpoint=file)
    assert interrupted.value.partial.step == 1 == read_header(file).step


def test_an_interrupt_in_the_last_step_is_not_swallowed():
    def stop(done, total):
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as interrupted:
        train(yz(), stream(), steps=3, batch=4, length=10, progress=stop)
    assert interrupted.value.partial.is_complete


def test_a_second_ctrl_c_ends_the_program(tmp_path):
    def press(model, step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return {}

    file = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(transformer(), stream(), steps=20, batch=4, length=10, checkpoint=file, measure=press, snapshots=[6])
    assert not file.exists()  # perhaps amid an update: nothing that is not whole is written


def test_a_run_that_diverges_stops_and_says_where(tmp_path):
    model = transformer(clip=None, dropout=0.0)
    model.tensors()["decoder"][5, 0] = torch.nan
    result = train(model, stream(), steps=20, batch=4, length=10, checkpoint=tmp_path / "a")
    assert result.failed_step == 1
    assert not (tmp_path / "a").exists()  # a state to go on from would be overwritten
    assert not result.is_complete


def test_settings_and_keywords_are_the_same():
    by_keywords = train(transformer(), stream(), steps=7, batch=4, length=10, shuffle=2)
    settings = TrainingSettings(steps=7, batch=4, length=5, shuffle=2)
    by_object = train(transformer(), stream(), replace(settings, length=10))
    of_both = train(transformer(), stream(), settings, length=10)
    assert by_keywords.losses.tolist() == by_object.losses.tolist() == of_both.losses.tolist()
    with refused("steps", 7, names="epochs"):
        train(transformer(), stream(), settings, epochs=2)
    with pytest.raises(TypeError, match="lenght"):
        train(transformer(), stream(), steps=3, lenght=10)
    with refused("checkpoint_seconds"):
        TrainingSettings(steps=3, checkpoint_seconds=-1)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "steps"),
        ({"steps": 3, "epochs": 1}, "steps"),
        ({"steps": 3, "snapshots": [4], "measure": lambda m, s: {}}, "snapshots"),
        ({"steps": 3, "tokens": np.full(400, M)}, "tokens"),
        ({"steps": 3, "measure": lambda m, s: {"name": "text"}}, "name"),
    ],
    ids=["neither", "both", "late snapshot", "unknown token", "text measured"],
)
def test_bad_input_is_named(options, field):
    with refused(field):
        train(transformer(), **{"tokens": stream(), "batch": 4, "length": 10} | options)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with refused("tensorboard", names="scansnap[text]"):
        train(transformer(), stream(), steps=1, batch=4, length=10, tensorboard=tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_event_files(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(transformer(), stream(), steps=5, batch=4, length=10, valid=stream(50), tensorboard=tmp_path,
                   measure=lambda m, s: {"step": s})  # fmt: skip
    events = EventAccumulator(str(tmp_path)).Reload()
    np.testing.assert_allclose([e.value for e in events.Scalars("loss")], result.losses, rtol=1e-6)
    assert [e.step for e in events.Scalars("valid_perplexity")] == [5]

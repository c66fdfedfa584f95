"""Rates that change: what they are, that both kinds of model follow them, and that they go on where they stopped."""

import math

import numpy as np
import pytest
import torch
from small_text import stream, transformer, yz

from refusals import refused
from scansnap.corpus.windows import Windows
from scansnap.text.model_files import read_header
from scansnap.text.schedules import Schedule
from scansnap.text.settings import TrainingSettings
from scansnap.text.train import train

MODELS = {
    "transformer": transformer,
    "transformer, adamw": lambda: transformer(optimizer="adamw", eta=0.01, weight_decay=0.1),
    "yz": yz,
    "yz, adam": lambda: yz(optimizer="adam", init="uniform", eta_y=0.05, eta_z=0.01),
}
GIVEN = {
    "cosine": {"schedule": "cosine", "warmup": 3, "rate_floor": 0.1},
    "linear": {"schedule": "linear"},
    "step": {"schedule": "step", "decay_every": 4, "decay_by": 0.3, "warmup": 2},
    "warm-up alone": {"warmup": 5},
}


def test_factors():
    cosine = Schedule("cosine", 110, warmup=10, floor=0.2)
    assert [cosine.factor(s) for s in (0, 4, 9)] == [0.1, 0.5, 1.0]
    assert cosine.factor(10) == 1.0
    assert cosine.factor(60) == pytest.approx(0.6)
    assert cosine.factor(35) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert cosine.factor(110) == cosine.factor(500) == pytest.approx(0.2)
    linear = Schedule("linear", 100)
    assert [linear.factor(s) for s in (0, 25, 99, 100, 200)] == pytest.approx([1, 0.75, 0.01, 0, 0])
    step = Schedule("step", 0, warmup=2, every=10, by=0.5, floor=0.2)
    assert [step.factor(s) for s in (0, 1, 2, 11, 12, 22, 32, 99)] == [0.5, 1, 1, 1, 0.5, 0.25, 0.2, 0.2]
    assert Schedule("constant", 10).still
    assert not Schedule("constant", 10, warmup=1).still


@pytest.mark.parametrize("schedule", GIVEN)
@pytest.mark.parametrize("kind", MODELS)
def test_a_training_follows_its_schedule(kind, schedule):
    by_hand, losses = MODELS[kind](), []
    windows, rates = Windows(stream(), 4, 10), TrainingSettings(steps=12, **GIVEN[schedule]).rates(12)
    for step in range(12):
        by_hand.scale_rates(rates.factor(step))
        losses.append(float(by_hand.train_step(*windows[step % len(windows)])))
    model = MODELS[kind]()
    done = train(model, stream(), steps=12, batch=4, length=10, **GIVEN[schedule])
    assert done.losses.tolist() == losses
    plain = train(MODELS[kind](), stream(), steps=12, batch=4, length=10)
    assert plain.losses[0] == losses[0]
    assert plain.losses[-1] != losses[-1]
    by_hand.scale_rates(1.0)  # a training leaves the rates as they were given
    assert float(model.train_step(*windows[2])) == float(by_hand.train_step(*windows[2]))
    assert float(model.train_step(*windows[3])) == float(by_hand.train_step(*windows[3]))


@pytest.mark.parametrize("kind", MODELS)
def test_half_the_rate_moves_half_as_far(kind):
    ways = []
    for factor in (1.0, 0.5):
        model = MODELS[kind]()
        before = {name: tensor.clone() for name, tensor in model.tensors().items()}
        model.scale_rates(factor)
        model.train_step(*Windows(stream(), 4, 10)[0])
        names = [name for name in before if name != "step" and not name.endswith(("mean", "square", "velocity"))]
        ways.append([model.tensors()[name] - before[name] for name in names])
    for whole, half in zip(*ways, strict=True):
        torch.testing.assert_close(half, whole / 2, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("schedule", GIVEN)
@pytest.mark.parametrize("kind", MODELS)
def test_resumed_with_the_same_rates(kind, schedule, tmp_path):
    options = {"batch": 4, "length": 10, **GIVEN[schedule]}
    whole = train(MODELS[kind](), stream(), steps=15, **options)
    file = tmp_path / "run.safetensors"

    def stop(model, step):
        raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="stopped after 6 of 15"):
        train(MODELS[kind](), stream(), steps=15, checkpoint=file, measure=stop, snapshots=[6], **options)
    assert read_header(file).data["schedule"]["name"] == options.get("schedule", "constant")
    rest = train(MODELS[kind](), stream(), steps=15, checkpoint=file, resume=True, **options)
    assert np.array_equal(rest.losses, whole.losses)


def test_another_schedule_is_no_continuation(tmp_path):
    file, options = tmp_path / "run.safetensors", {"batch": 4, "length": 10, "checkpoint": file_of(tmp_path)}
    train(yz(), stream(), steps=5, schedule="cosine", **options)
    for other in ({"steps": 5}, {"steps": 9, "schedule": "cosine"}, {"steps": 9, "schedule": "linear"}):
        with refused("checkpoint", names="schedule"):
            train(yz(), stream(), resume=True, **options | other)
    assert train(yz(), stream(), steps=9, schedule="cosine", schedule_steps=5, resume=True, **options).complete
    train(yz(), stream(), steps=5, overwrite=True, **options)
    with refused("checkpoint", names=("schedule", "constant")):
        train(yz(), stream(), steps=9, warmup=2, resume=True, **options)
    train(yz(), stream(), steps=5, schedule="step", decay_every=2, overwrite=True, **options)
    assert train(yz(), stream(), steps=9, schedule="step", decay_every=2, resume=True, **options).complete
    assert file.exists()


def file_of(folder):
    return folder / "run.safetensors"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"schedule": "sine"}, "schedule"),
        ({"schedule": "step"}, ("decay_every", None)),
        ({"decay_every": 3}, "decay_every"),
        ({"schedule": "cosine", "warmup": 10}, "warmup"),
        ({"warmup": -1}, "warmup"),
        (
            {"schedule": "linear", "rate_floor": 1.5},
            "rate_floor",
        ),
        ({"rate_floor": 0.5}, "rate_floor"),
        ({"schedule_steps": 5}, "schedule_steps"),
        ({"schedule": "step", "decay_every": 3, "decay_by": 0}, "decay_by"),
        ({"accumulate": 0}, "accumulate"),
    ],
)
def test_a_bad_schedule_is_named(options, field):
    with refused(field):
        TrainingSettings(steps=10, **options)


def test_a_warm_up_longer_than_the_epochs_is_named():
    with refused("warmup", 500, names="20"):
        train(yz(), stream(), epochs=2, batch=4, length=10, schedule="cosine", warmup=500)

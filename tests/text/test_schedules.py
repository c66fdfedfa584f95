"""Schedules of rates: both kinds of model follow them, and a continued training does too."""

import numpy as np
import pytest
import torch
from small_text import stream, transformer, yz

from refusals import refused
from scansnap.corpus.windows import Windows
from scansnap.dynamics.schedules import Schedule
from scansnap.interrupt import Interrupted
from scansnap.text.model_files import read_header
from scansnap.text.settings import TrainingSettings
from scansnap.text.training import train

MODELS = {
    "transformer": transformer,
    "transformer, adamw": lambda: transformer(optimizer="adamw", eta=0.01, weight_decay=0.1),
    "yz": yz,
    "yz, adam": lambda: yz(optimizer="adam", init="uniform", eta_y=0.05, eta_z=0.01),
}
SCHEDULES = ["warmup(3) cosine(0.1)", "linear", "warmup(2) step(4, 0.3)", "warmup(5) constant"]
OPTIONS = {"batch": 4, "length": 10}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_training_follows_its_schedule(kind, schedule):
    by_hand, losses = MODELS[kind](), []
    windows, factors = Windows(stream(), 4, 10), Schedule.parse(schedule)
    for step in range(12):
        by_hand.scale_rates(factors.factor(step, 12))
        losses.append(float(by_hand.train_step(*windows[step % len(windows)])))
    model = MODELS[kind]()
    assert train(model, stream(), steps=12, schedule=schedule, **OPTIONS).losses.tolist() == losses
    plain = train(MODELS[kind](), stream(), steps=12, **OPTIONS).losses
    assert plain[0] == losses[0]
    assert plain[-1] != losses[-1]
    by_hand.scale_rates(1.0)  # a training leaves the rates of the settings
    for i in (2, 3):
        assert float(model.train_step(*windows[i])) == float(by_hand.train_step(*windows[i]))


@pytest.mark.parametrize("kind", MODELS)
def test_half_the_rate_moves_half_as_far(kind):
    changes = []
    for factor in (1.0, 0.5):
        model = MODELS[kind]()
        before = {name: tensor.clone() for name, tensor in model.tensors().items()}
        model.scale_rates(factor)
        model.train_step(*Windows(stream(), 4, 10)[0])
        names = [name for name in before if name != "step" and not name.endswith(("mean", "square", "velocity"))]
        changes.append([model.tensors()[name] - before[name] for name in names])
    for whole, half in zip(*changes, strict=True):
        torch.testing.assert_close(half, whole / 2, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_resumed_training_has_the_same_rates(kind, schedule, tmp_path):
    options = OPTIONS | {"schedule": schedule, "checkpoint": tmp_path / "run.safetensors"}

    def stop(model, step):
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        train(MODELS[kind](), stream(), steps=15, measure=stop, snapshots=[6], **options)
    assert read_header(options["checkpoint"]).data["schedule"] == str(Schedule.parse(schedule).resolve(15))
    resumed = train(MODELS[kind](), stream(), steps=15, resume=True, **options)
    whole = train(MODELS[kind](), stream(), steps=15, schedule=schedule, **OPTIONS)
    assert np.array_equal(resumed.losses, whole.losses)


def test_another_schedule_is_no_continuation(tmp_path):
    options = OPTIONS | {"checkpoint": tmp_path / "run.safetensors"}
    train(yz(), stream(), steps=5, schedule="cosine", **options)
    for other in ({"steps": 5}, {"steps": 9, "schedule": "cosine"}, {"steps": 9, "schedule": "linear"}):
        with refused("checkpoint", names="schedule"):
            train(yz(), stream(), resume=True, **options | other)
    assert train(yz(), stream(), steps=9, schedule="cosine(0, 5)", resume=True, **options).is_complete
    train(yz(), stream(), steps=5, overwrite=True, **options)
    with refused("checkpoint", names=("schedule", "constant")):
        train(yz(), stream(), steps=9, schedule="warmup(2) constant", resume=True, **options)
    train(yz(), stream(), steps=5, schedule="step(2, 0.5)", overwrite=True, **options)
    assert train(yz(), stream(), steps=9, schedule="step(2, 0.5)", resume=True, **options).is_complete


@pytest.mark.parametrize("schedule", ["sine", "step", "warmup(10) cosine", "warmup(10) linear"])
def test_a_bad_schedule_is_refused(schedule):
    with refused(("schedule", schedule)):
        TrainingSettings(steps=10, schedule=schedule)


def test_a_warm_up_longer_than_the_epochs_is_refused():
    with refused("schedule", names="20"):
        train(yz(), stream(), epochs=2, schedule="warmup(500) cosine", **OPTIONS)

"""An update from a batch in parts is that of the whole batch: in one process, and in two that share it by Gloo."""

import pickle

import divided
import numpy as np
import pytest
import torch
from divided import MODELS, made, start, transformer, yz
from small_text import M, stream

from refusals import refused
from scansnap.text.model_files import read_header
from scansnap.text.parallel import directions
from scansnap.text.parallel.directions import Portion, Touched
from scansnap.text.parallel.replicas import checksum
from scansnap.text.parallel.step import bounds, divided_step
from scansnap.text.train import train

# Float64: sums over parts are rounded otherwise, a few 1e-16 in each step. Adam divides by the root of a mean square,
# which is tiny where a gradient is, so there weights differ by 1e-12; losses never by more than 1e-15.
LOSS, WEIGHT = 1e-13, 1e-10


def assert_same(one, other):
    np.testing.assert_allclose(one["losses"], other["losses"], rtol=0, atol=LOSS)
    assert np.abs(np.diff(one["losses"])).min() > 1e-6  # it does not stand still
    assert one["tokens"] == other["tokens"]
    for name, tensor in one["tensors"].items():
        torch.testing.assert_close(tensor, other["tensors"][name], rtol=0, atol=WEIGHT, msg=name)


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_gathered_are_those_of_the_larger_batch(kind):
    assert_same(made(kind, batch=6), made(kind, batch=2, accumulate=3))
    assert_same(made(kind, batch=5), made(kind, batch=1, accumulate=5))


@pytest.mark.parametrize("kind", ["transformer", "yz"])
def test_in_float32_the_first_steps_are_the_same_to_its_rounding(kind):
    build = {"transformer": transformer, "yz": yz}[kind]
    one, other = (build(dtype="float32") for _ in range(2))
    losses = [train(model, stream(), steps=3, batch=batch, accumulate=n, length=7).losses
              for model, batch, n in ((one, 6, 1), (other, 2, 3))]  # fmt: skip
    np.testing.assert_allclose(*losses, rtol=2e-6)


@pytest.fixture(scope="module")
def by_two(tmp_path_factory):
    """All kinds of models, trained by two processes."""
    folder = tmp_path_factory.mktemp("two")
    ends = [(process.communicate(timeout=300), process.returncode) for process in start([divided.__file__, folder])]
    assert [code for _, code in ends] == [0, 0], ends
    assert [out for (out, _), _ in ends] == ["", ""]
    return pickle.loads((folder / "found.pickle").read_bytes())


@pytest.mark.parametrize("kind", MODELS)
def test_two_processes_do_what_one_does(by_two, kind):
    """Five windows, of which they have two and three; then six in three parts. That both end with the same bits is
    looked at by the training itself."""
    assert_same(made(kind), by_two[kind])
    assert_same(made(kind, batch=6), by_two[f"{kind}, in parts"])


def test_processes_that_differ_are_told_so(by_two):
    refused = by_two["refused"]
    assert refused["other seeds"].startswith("InputError: the training")
    assert refused["other weights"].startswith("Parted: layer0.z")
    assert all("process 0" in text or "in 0" in text for text in refused.values())
    assert all("process 1" in text for text in refused.values())
    assert set(refused) == {"other seeds", "other weights"}


def test_of_yz_tables_rows_are_exchanged(by_two):
    """Full tables never, factors whole; what is counted is what a batch touches, and the losses."""
    tokens = 3 * divided.COMMON["length"]  # of the larger part
    pairs = tokens * (divided.COMMON["length"] - 1) // 2
    most = tokens * (8 * M + 8) + pairs * 16 + 8
    wide = by_two["yz, 400 words"]["received"] / divided.COMMON["steps"]
    small = by_two["yz"]["received"] / divided.COMMON["steps"]
    assert small <= most
    assert most < wide <= tokens * (8 * 400 + 8) + pairs * 16 + 8
    assert wide < 2 * 400 * 400 * 8 / 20  # a twentieth of both tables


def test_what_a_part_is_does_not_depend_on_the_others():
    """Dropout and masks belong to windows: a part has the loss of its windows within the whole."""
    inputs = torch.from_numpy(stream(42)).long().view(6, 7)
    targets = inputs.roll(-1, 1)
    for model in (transformer(), transformer(objective="masked")):
        whole, _ = model.directions(inputs, targets, Portion(0, 6))
        parts = [
            float(model.directions(inputs[a:b], targets[a:b], Portion(a, 6))[0]) for a, b in ((0, 1), (1, 4), (4, 6))
        ]
        assert np.dot(parts, [1, 3, 2]) / 6 == pytest.approx(float(whole), abs=1e-14)
        alone = float(model.directions(inputs[1:4], targets[1:4], Portion(0, 3))[0])
        assert alone != pytest.approx(parts[1], abs=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_directions_alone_move_nothing(kind):
    model = MODELS[kind]()
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    inputs = torch.from_numpy(stream(14)).long().view(2, 7)
    model.directions(inputs, inputs.roll(-1, 1), Portion(0, 2))
    for name, tensor in model.tensors().items():
        assert torch.equal(tensor, before[name]), name
    divided_step(model, inputs, inputs.roll(-1, 1))
    assert int(model.step) == 1
    model.train_step(inputs, inputs.roll(-1, 1))  # goes on as ever
    assert int(model.step) == 2


def test_rows_of_equal_ids_are_summed(monkeypatch):
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    found = Touched(torch.tensor([7, 2, 7]), rows, distinct=False).summed()
    assert found.ids.tolist() == [2, 7]
    assert found.rows.tolist() == [[3, 4], [6, 8]]
    whole, other = torch.ones(2), Touched(torch.tensor([2, 5]), torch.ones(2, 2), distinct=True)
    for most in (directions.MOST_ROWS, 1):  # also where memory bounds what is kept
        monkeypatch.setattr(directions, "MOST_ROWS", most)
        parts = directions.Sum()
        parts.add({"a": found, "b": whole}, 0.5)
        parts.add({"a": other, "b": whole}, 2.0)
        total = parts.result(summed=True)
        assert total["a"].ids.tolist() == [2, 5, 7]
        assert total["a"].rows.tolist() == [[3.5, 4], [2, 2], [3, 4]]
        assert total["b"].tolist() == [2.5, 2.5]
    assert whole.tolist() == [1, 1]


def test_every_window_is_in_one_part():
    for n in range(1, 20):
        for parts in range(1, 9):
            sizes = np.diff(bounds(n, parts))
            assert sizes.sum() == n
            assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (3, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_one_other_bit_or_place_is_another_checksum(shape, dtype):
    tensor = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    one = checksum(tensor)
    assert checksum(tensor.clone()) == one
    other = tensor.clone()
    last = other.view(-1)[-1:]
    last.copy_(torch.nextafter(last, last + 1) if dtype.is_floating_point else last + 1)
    assert checksum(other) != one
    if tensor.ndim == 2:
        assert checksum(tensor.T.contiguous().T) == one  # whatever the layout
        assert checksum(tensor.flip(0)) != one
        assert checksum(tensor.flip(1)) != one


@pytest.mark.parametrize("kind", ["transformer", "yz, adam"])
def test_gathering_is_resumed_to_the_bit_and_may_change(kind, tmp_path):
    options = {"length": 7, "shuffle": 1, "batch": 2, "accumulate": 3}
    whole, halves = MODELS[kind](), MODELS[kind]()
    train(whole, stream(), steps=8, **options)
    file = tmp_path / "run.safetensors"
    train(MODELS[kind](), stream(), steps=5, checkpoint=file, **options)
    train(halves, stream(), steps=8, checkpoint=file, resume=True, **options)
    for name, tensor in whole.tensors().items():
        assert torch.equal(tensor, halves.tensors()[name]), name
    assert read_header(file).data["batch"] == 6
    again = train(MODELS[kind](), stream(), steps=9, checkpoint=file, resume=True, length=7, shuffle=1, batch=6)
    assert again.step == 9
    with refused("checkpoint", names="data"):
        train(MODELS[kind](), stream(), steps=9, checkpoint=file, resume=True, **options | {"accumulate": 2})

"""A prediction against a plain loop of autograd at uniform attention, and against the training that it predicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import yz_reference as reference

import scansnap as ss
from refusals import refused
from scansnap.corpus.windows import Windows
from scansnap.text.model_files import load_model
from scansnap.text.prediction import count_before, predict
from scansnap.text.training import train
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

M = 9
PLAN = {"batch": 2, "length": 5, "shuffle": 3}


def stream(n: int = 160) -> np.ndarray:
    """Zipf-like, with a word that follows another one often."""
    rng = np.random.default_rng(0)
    tokens = np.minimum(rng.geometric(0.3, n) - 1, M - 1)
    tokens[1::4] = (tokens[::4] + 2) % M
    return tokens


def settings(**options) -> YZSettings:
    return YZSettings(**{"vocab_size": M, "dtype": "float64", "eta_y": 10.0, "eta_z": 2.0, **options})


def dense_loop(s: YZSettings, steps: int) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """Y by its gradient, Z a sum of its gradients, all of them at Z = 0."""
    windows = Windows(stream(), PLAN["batch"], PLAN["length"])
    eta_y, eta_z = s.rates[0]
    y, heard, losses = torch.zeros(M, M, dtype=torch.float64), torch.zeros(M, M, dtype=torch.float64), []
    for step in range(steps):
        epoch, at = divmod(step, len(windows))
        inputs, targets = windows[windows.order(PLAN["shuffle"], epoch)[at]]
        tables = {"layer0.y": y.clone().requires_grad_(), "layer0.z": torch.zeros_like(y).requires_grad_()}
        flat = reference.logits(tables, inputs, s).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(flat, targets.flatten())
        dy, dz = torch.autograd.grad(loss, tuple(tables.values()))
        y, heard = y - eta_y * dy, heard - eta_z * dz
        losses.append(float(loss.detach()))
    return y, heard, losses


@pytest.mark.parametrize(
    "options", [{}, {"residual": "normed"}, {"query_in_keys": True}, {"norm": "none", "residual": "plain"}], ids=str
)
def test_a_prediction_is_the_sum_of_gradients_at_uniform_attention(options):
    arguments = settings(**options)
    y, z, losses = dense_loop(arguments, 20)
    prediction = predict(arguments, stream(), steps=20, queries=list(range(M)), **PLAN)
    assert z.abs().max() > 0.1
    torch.testing.assert_close(prediction.model.y[0].matrix(), y, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(prediction.model.z[0].matrix(), z, rtol=1e-9, atol=1e-11)
    assert prediction.training.losses.tolist() == pytest.approx(losses, rel=1e-12)
    np.testing.assert_allclose(prediction.z[20], z.numpy(), rtol=1e-6, atol=1e-7)  # kept in float32


def test_training_with_attention_is_another_run():
    """The first two steps are the same (the first has no Z yet to move by); then attention has an effect of its own."""
    tables = {}
    for steps in (2, 20):
        attends = YZTransformer(settings())
        train(attends, stream(), steps=steps, **PLAN)
        heard = predict(settings(), stream(), steps=steps, **PLAN).model
        tables[steps] = [model.tensors()[name] for model in (attends, heard) for name in ("layer0.y", "layer0.z")]
    y, z, y_heard, z_heard = tables[2]
    assert z.abs().max() > 0
    assert torch.equal(z, z_heard)
    assert torch.equal(y, y_heard)
    y, z, y_heard, z_heard = tables[20]
    assert (z - z_heard).abs().max() > 0.01 * z.abs().max()
    assert (y - y_heard).abs().max() > 1e-4 * y.abs().max()
    assert float(torch.corrcoef(torch.stack([z.flatten(), z_heard.flatten()]))[0, 1]) > 0.9


def test_one_run_predicts_for_every_rate_of_z_and_every_step():
    slow = predict(settings(eta_z=0.5), stream(), steps=12, snapshots=[4], queries=[0, 1], **PLAN)
    fast = predict(settings(eta_z=5.0), stream(), steps=12, snapshots=[4], queries=[0, 1], **PLAN)
    short = predict(settings(eta_z=0.5), stream(), steps=4, queries=[0, 1], **PLAN)
    assert list(slow.z) == [4, 12]
    np.testing.assert_allclose(10 * slow.z[12], fast.z[12], rtol=1e-5)
    np.testing.assert_array_equal(slow.z[4], short.z[4])


def test_the_words_are_those_that_stand_before_a_query():
    tokens, queries = stream(), [3, 0]
    counts = count_before(tokens, np.array(queries), M, length=5)
    by_hand = np.zeros((2, M), dtype=int)
    for row, query in enumerate(queries):
        for place, token in enumerate(tokens):
            if token == query:
                np.add.at(by_hand[row], tokens[max(0, place - 4) : place], 1)
    assert counts.tolist() == by_hand.tolist()
    prediction = predict(settings(), tokens, steps=8, queries=queries, **PLAN)
    assert prediction.counts.tolist() == counts.tolist()
    named = prediction.words(3, top=2, least=10)
    observed = [key for key in range(M) if counts[0, key] >= 10]
    assert len(observed) > 2
    assert named.tolist() == sorted(observed, key=lambda key: -prediction.z[8][0, key])[:2]


def test_a_stopped_prediction_goes_on_to_the_same_numbers(tmp_path):
    file = tmp_path / "p.safetensors"
    whole = predict(settings(), stream(), steps=15, **PLAN)
    predict(settings(), stream(), steps=6, checkpoint=file, **PLAN)
    prediction = predict(settings(), stream(), steps=15, checkpoint=file, resume=True, **PLAN)
    for name, tensor in whole.model.tensors().items():
        assert torch.equal(prediction.model.tensors()[name], tensor), name
    with refused("checkpoint", names="uniform_attention"):  # it is no training, and none can go on as one
        train(YZTransformer(settings()), stream(), steps=20, checkpoint=file, resume=True, **PLAN)


def test_the_file_opens_as_a_model_that_attends_by_the_prediction(tmp_path):
    from scansnap.corpus.vocabulary import Vocabulary

    words = Vocabulary(("<unk>", "<eos>", *"abcdefg"), np.arange(M, 0, -1))
    file = tmp_path / "p.safetensors"
    prediction = predict(settings(), stream(), steps=10, checkpoint=file, vocabulary=words, **PLAN)
    opened = load_model(file)
    assert opened.title.startswith("Prediction of a YZ model")
    assert isinstance(opened.model, YZTransformer)
    assert opened.model.uniform_attention
    assert torch.equal(opened.model.z[0].matrix(), prediction.model.z[0].matrix())
    shown = opened.model.attention(torch.tensor([[0, 1, 2, 3]]))[0][0, 0, 3]
    expected = torch.softmax(prediction.model.z[0].matrix()[3, :3], 0)
    torch.testing.assert_close(shown[:3], expected)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"layers": 2, "residual": "normed"}, "layers"),
        ({"rank": 1, "init": "uniform"}, "rank"),
        ({"init": "uniform"}, "init"),
    ],
)
def test_unpredictable_settings_are_refused(options, field):
    with refused(field):
        predict(settings(**options), stream(), steps=1, **PLAN)


def test_bad_questions_are_refused():
    with refused("model", "a model that attends", names="uniform_attention=True"):
        predict(YZTransformer(settings()), stream(), steps=1, **PLAN)
    with refused("queries", 9):
        predict(settings(), stream(), steps=1, queries=[M], **PLAN)
    prediction = ss.text.predict(settings(), stream(), steps=1, queries=1, **PLAN)
    with refused("query", 8):
        prediction.words(8)
    with refused("step", 5):
        prediction.words(int(prediction.queries[0]), 5)

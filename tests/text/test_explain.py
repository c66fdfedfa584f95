"""Reading a model: what is told of a query equals what the model computes with."""

import numpy as np
import pytest
import torch

from refusals import refused
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.text.explanation import explain
from scansnap.text.model_files import load_model
from scansnap.text.training import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

WORDS = ("the", "of", "river", "bank", "money", "water", "<unk>", "<eos>")
VOCABULARY = Vocabulary(WORDS, [50, 30, 10, 8, 6, 5, 4, 3])
PLAIN = {"norm": "none", "residual": False, "feed_forward": 0, "positions": "none", "dropout": 0.0, "width": 8}


def yz(**changes):
    options = {"init": "normal(0.5)", "dtype": "float64", **changes}
    return YZTransformer(YZSettings(vocab_size=len(WORDS), **options))


@pytest.mark.parametrize("residual", ["none", "normed", "plain"])
@pytest.mark.parametrize("rank", [None, 3])
def test_with_a_context_it_is_what_the_model_does(residual, rank):
    model = yz(residual=residual, rank=rank)
    explanation = explain(model, VOCABULARY, "bank", "the river of the", top=8)
    inputs = torch.tensor([[0, 2, 1, 0, 3]])
    b = model.attention(inputs)[0][0, 0, -1]
    by_word = {"the": b[0] + b[3], "river": b[1], "of": b[2]}
    assert {token.word: token.attention for token in explanation.attended} == pytest.approx(
        {word: float(weight) for word, weight in by_word.items()}, abs=1e-12
    )
    p = torch.softmax(model.logits(inputs)[0, -1], 0)
    assert dict(explanation.predicted) == pytest.approx({w: float(p[i]) for i, w in enumerate(WORDS)}, abs=1e-12)
    assert [token.attention for token in explanation.attended] == sorted(
        (token.attention for token in explanation.attended), reverse=True
    )
    assert explanation.exact


@pytest.mark.parametrize("residual", ["none", "normed", "plain"])
def test_without_a_context_it_is_the_limit_of_a_long_one(residual):
    """A context with the vocabulary's own frequencies predicts the same."""
    model = yz(residual=residual)
    alone = explain(model, VOCABULARY, "bank", top=8)
    text = " ".join(" ".join([w] * n) for w, n in zip(WORDS, VOCABULARY.counts, strict=True))
    long = explain(model, VOCABULARY, "bank", text, top=8)
    assert dict(alone.predicted) == pytest.approx(dict(long.predicted), abs=1e-9)
    assert {a.word: a.attention for a in alone.attended} == pytest.approx({a.word: a.attention for a in long.attended})
    assert alone.entropy == pytest.approx(long.entropy)


def test_words_are_ranked_by_z_and_votes_are_rows_of_y():
    model = yz()
    explanation = explain(model, VOCABULARY, "river", top=4, votes=3)
    z, y = model.z[0].matrix(), model.y[0].matrix()
    order = torch.argsort(-z[2])[:4].tolist()
    assert [word.word for word in explanation.attended] == [WORDS[i] for i in order]
    for word, i in zip(explanation.attended, order, strict=True):
        assert word.z == pytest.approx(float(z[2, i]))
        best = torch.argsort(-y[i])[:3].tolist()
        assert word.votes == tuple((WORDS[j], pytest.approx(float(y[i, j]))) for j in best)


def test_with_a_residual_connection_the_query_votes_too():
    model = yz(residual="normed")
    explanation = explain(model, VOCABULARY, "bank", votes=2)
    row = model.y[0].matrix()[3]
    best = torch.argsort(-row)[:2].tolist()
    assert explanation.own == tuple((WORDS[j], pytest.approx(float(row[j]))) for j in best)
    assert explain(yz(), VOCABULARY, "bank").own == ()


def test_an_untrained_model_attends_as_often_as_words_occur():
    explanation = explain(yz(init="zero"), VOCABULARY, "river", top=8)
    assert explanation.entropy == pytest.approx(explanation.uniform_entropy)
    assert [p for _, p in explanation.predicted] == pytest.approx([1 / 8] * 8)


def test_a_plain_transformer_is_read_exactly():
    model = Transformer(TransformerSettings(vocab_size=len(WORDS), dtype="float64", **PLAIN))
    explanation = explain(model, VOCABULARY, "bank", "the river of bank", top=8)
    assert explanation.exact
    b = model.attention(torch.tensor([[0, 2, 1, 3, 3]]))[0][0, 0, -1]
    # the transformer's query is among its keys: the context ends with a copy of it, which makes counts comparable
    attention = {word.word: word.attention for word in explanation.attended}
    own = b[:3] / b[:4].sum()
    assert [attention["the"], attention["river"], attention["of"]] == pytest.approx(own.tolist(), abs=1e-9)


def test_other_transformers_say_that_something_is_left_out():
    model = Transformer(TransformerSettings(vocab_size=len(WORDS), width=8, feed_forward=8))
    assert not explain(model, VOCABULARY, "bank").exact


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"query": "ocean"}, "word"),
        ({"context": "  "}, "context"),
        ({"top": 0}, "top"),
        ({"model": yz(layers=2)}, "model"),
        ({"model": Transformer(TransformerSettings(vocab_size=8, width=8, heads=2))}, "model"),
    ],
)
def test_what_cannot_be_explained_is_refused(change, field):
    options = {"model": yz(), "query": "bank", "context": None, "top": 5, **change}
    with refused(field):
        explain(options["model"], VOCABULARY, options["query"], options["context"], top=options["top"])


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "small.safetensors"
    tokens = np.tile([0, 2, 1, 3, 4, 5], 60)
    model = yz(init="zero", dtype="float32", eta_y=5.0, eta_z=1.0)
    train(model, tokens, steps=6, batch=2, length=5, measure=lambda m, step: {"entropy": 1.0 * step}, checkpoint=path,
          valid=tokens[:50], vocabulary=VOCABULARY)  # fmt: skip
    return path, model


def test_a_saved_model_comes_back_with_its_words_and_history(saved):
    path, model = saved
    explanation = load_model(path)
    assert explanation.vocabulary == VOCABULARY
    assert explanation.title == "YZ model, 1 layer, 8 words, 6 steps"
    assert explanation.measured["entropy"][6] == 6.0
    assert list(explanation.measured["perplexity"]) == [6]
    assert torch.equal(explanation.model.tensors()["layer0.y"], model.tensors()["layer0.y"])


def test_a_model_and_its_words_are_one_file(saved):
    path, _ = saved
    assert [place.name for place in path.parent.iterdir()] == [path.name]
    path.rename(path.with_name("moved.safetensors"))
    assert load_model(path.with_name("moved.safetensors")).vocabulary == VOCABULARY


def test_a_model_without_words_is_refused(tmp_path):
    path = tmp_path / "numbers.safetensors"
    train(yz(init="zero"), np.tile([0, 2, 1, 3], 60), steps=1, batch=2, length=5, checkpoint=path)
    with refused("checkpoint"):
        load_model(path)

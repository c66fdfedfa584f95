"""Perplexity against counting token by token; attention statistics against their definitions; samples."""

import math

import numpy as np
import pytest
import torch

from refusals import bad_values, refused
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.text.evaluation import AttentionStatistics, attention_statistics, evaluate, perplexity, stream_batches
from scansnap.text.model import sparsify_attention, top_mass_mask
from scansnap.text.sample import sample_text, sample_tokens
from scansnap.text.transformer.draws import mask_every_token, mask_tokens, n_masked
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

M = 15


@pytest.fixture(scope="module")
def model():
    transformer = Transformer(
        TransformerSettings(M, width=8, feed_forward=8, layers=2, init=0.8, dropout=0.1, dtype="float64")
    )
    tokens = torch.from_numpy(np.random.default_rng(1).integers(0, M, 200))
    for i in range(0, 150, 15):
        transformer.train_step(tokens[None, i : i + 15], tokens[None, i + 1 : i + 16])
    return transformer


def tokens(n=53):
    return np.random.default_rng(0).integers(0, M, n).astype(np.int32)


@pytest.mark.parametrize("stride", [None, 3, 1])
@pytest.mark.parametrize("n", [2, 7, 8, 53])
def test_perplexity_is_that_of_every_token_but_the_first(model, stride, n):
    stream, length = torch.from_numpy(tokens(n)).long(), 7
    step = stride or length
    nats = []
    for t in range(1, n):  # predict token t from the window that has it among its new targets
        end = min(math.ceil(t / step) * step, n - 1)
        first = max(0, end - length) if stride else (t - 1) // length * length
        logits = model.logits(stream[None, first:end])[0, t - 1 - first]
        nats.append(-float(torch.log_softmax(logits, 0)[stream[t]]))
    means = perplexity(model, tokens(n), length=length, batch=3, stride=stride)
    assert math.isclose(means, math.exp(np.mean(nats)), rel_tol=1e-10)


@pytest.mark.parametrize(("length", "stride"), [(35, None), (5, None), (5, 2), (4, 1)])
def test_every_token_but_the_first_is_a_new_target_once(length, stride):
    stream = torch.arange(100, 153)
    targets = [
        b.targets[:, -b.n_new :].flatten() for b in stream_batches(stream, length, 4, stride, torch.device("cpu"))
    ]
    assert torch.cat(targets).tolist() == list(range(101, 153))


def test_a_model_that_knows_nothing_has_the_perplexity_of_the_vocabulary():
    model = Transformer(TransformerSettings(M, width=8, feed_forward=8))
    model.tensors()["decoder"].zero_()
    assert math.isclose(perplexity(model, tokens()), M, rel_tol=1e-6)


def test_a_masked_model_has_every_token_masked_once():
    model = Transformer(TransformerSettings(M, width=8, feed_forward=8, objective="masked", dtype="float64"))
    stream, nats = torch.from_numpy(tokens(11)).long(), []
    for start in (0, 5):  # targets are tokens 1 … 5 and 6 … 10
        window = stream[start + 1 : start + 6]
        for place in range(5):
            hidden = window.clone()
            hidden[place] = M
            nats.append(-float(torch.log_softmax(model.logits(hidden[None])[0, place], 0)[window[place]]))
    assert math.isclose(perplexity(model, stream, length=5), math.exp(np.mean(nats)), rel_tol=1e-10)


def test_hidden_tokens():
    inputs = torch.randint(0, M, (4, 20), generator=torch.Generator().manual_seed(0))
    hidden = mask_tokens(inputs, torch.rand(4, 20, generator=torch.Generator().manual_seed(1)), 0.15, M)
    assert hidden.positions.shape == (4, 3)
    assert ((hidden.inputs == M).sum(1) == 3).all()
    assert torch.equal(hidden.inputs.scatter(1, hidden.positions, hidden.tokens), inputs)
    places = torch.cat([h.positions for h in mask_every_token(inputs, 0.15, M)], 1).sort(1).values
    assert torch.equal(places, torch.arange(20).expand(4, 20))
    assert [n_masked(t, 0.15) for t in (1, 2, 7, 100)] == [1, 1, 1, 15]


def test_the_top_mass_mask_of_keys():
    b = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    assert top_mass_mask(b, 0.7).tolist() == [
        [True, True, False, False],
        [True, True, True, False],
        [False, True, False, False],
    ]
    torch.testing.assert_close(sparsify_attention(b, 0.7)[0], torch.tensor([0.625, 0.375, 0.0, 0.0]))
    torch.testing.assert_close(sparsify_attention(b, 1.0), b)


def test_statistics_are_means_over_rows_with_a_choice():
    """Row by row, over windows of two lengths."""
    gathered = AttentionStatistics(groups=[0, 1, 1, -1], mass=0.9)
    generator = torch.Generator().manual_seed(0)
    rows, mass, uniform = [], [], []
    for length in (5, 3):
        z = torch.randn(2, 1, length, length, generator=generator, dtype=torch.float64) * 2
        b = torch.softmax(z.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf), -1)
        x = torch.randint(0, 4, (2, length), generator=generator)
        gathered.add([b], x, torch.ones(length, length, dtype=torch.bool).tril())
        for i in range(2):
            for t in range(1, length):
                row = b[i, 0, t, : t + 1].numpy()
                ordered = np.sort(row)[::-1]
                needed = int(np.searchsorted(np.cumsum(ordered), 0.9)) + 1
                rows.append((-(row * np.log(row)).sum(), row.max(), needed, needed / (t + 1), np.log(t + 1), t))
                group = np.array([0, 1, 1, -1])[x[i, : t + 1].numpy()]
                mass.append([row[group == g].sum() for g in (0, 1)])
                uniform.append([(group == g).mean() for g in (0, 1)])
    expected, means = np.array(rows), gathered.means()
    names = ("entropy", "max", "keys_needed", "share_needed")
    np.testing.assert_allclose([means[name] for name in names], expected[:, :4].mean(0), rtol=1e-12)
    assert math.isclose(means["entropy_share"], expected[:, 0].sum() / expected[:, 4].sum(), rel_tol=1e-12)
    by_position = [expected[expected[:, 5] == t, 0].mean() if t else np.nan for t in range(5)]
    np.testing.assert_allclose(means["entropy_by_position"], by_position, rtol=1e-12)
    np.testing.assert_allclose(means["group_mass"], np.mean(mass, 0), rtol=1e-12)
    np.testing.assert_allclose(means["group_uniform"], np.mean(uniform, 0), rtol=1e-12)


def test_a_row_that_snapped_still_has_its_keys():
    """e^−200 is 0 in float32: the last position of every window gives all but one of its keys exactly nothing."""
    length = 4
    z = torch.zeros(3, 1, length, length)
    z[:, :, -1, 1:] = -200
    keys = torch.ones(length, length, dtype=torch.bool).tril()
    b = torch.softmax(z.masked_fill(~keys, -torch.inf), -1)
    assert (b[:, :, -1, 1:] == 0).all()
    gathered = AttentionStatistics(groups=[0, 1], mass=0.9)
    gathered.add([b], torch.tensor([[0, 1, 1, 1]]).expand(3, length), keys)
    means = gathered.means()
    assert means["entropy"] == pytest.approx((np.log(2) + np.log(3)) / 3)  # rows 1, 2 and 3; row 3 has none
    assert means["max"] == pytest.approx((1 / 2 + 1 / 3 + 1) / 3)
    assert means["share_needed"] == pytest.approx((1 + 1 + 1 / 4) / 3)
    assert means["entropy_share"] == pytest.approx((np.log(2) + np.log(3)) / np.log(24))
    np.testing.assert_allclose(means["group_uniform"], [(1 / 2 + 1 / 3 + 1 / 4) / 3, (1 / 2 + 2 / 3 + 3 / 4) / 3])


def test_a_model_that_snapped_is_measured_over_all_its_rows():
    yz = YZTransformer(YZSettings(M))
    yz.tensors()["layer0.z"][:, 0] = 200.0  # every query looks at token 0, where there is one
    stream = np.array([*range(8)] * 4 + [0])
    (means,) = attention_statistics(yz, stream, length=8)
    assert means["entropy"] == pytest.approx(0, abs=1e-6)
    assert means["entropy_by_position"][2:] == pytest.approx(np.zeros(6), abs=1e-6)
    assert means["share_needed"] == pytest.approx(np.mean(1 / np.arange(2, 8)), rel=1e-6)


@pytest.mark.parametrize(
    "transformer",
    [
        Transformer(TransformerSettings(M, width=8, feed_forward=8)),
        Transformer(TransformerSettings(M, width=8, feed_forward=8, objective="masked")),
        YZTransformer(YZSettings(M, layers=2, init="uniform")),
        YZTransformer(YZSettings(M, query_in_keys=True)),
    ],
    ids=["causal", "masked", "before itself", "up to itself"],
)
def test_the_keys_are_those_that_get_attention(transformer):
    """At their initial values no weight underflows."""
    keys = transformer.key_mask(6)
    for b in transformer.attention(torch.tensor([[1, 2, 3, 4, 5, 6]])):
        assert torch.equal(b[0, 0] > 0, keys)


def test_attention_that_is_not_a_number_is_not_sparse():
    gathered = AttentionStatistics()
    gathered.add([torch.full((1, 1, 3, 3), torch.nan)], torch.zeros(1, 3, dtype=torch.int64), torch.ones(3, 3).bool())
    assert all(math.isnan(gathered.means()[name]) for name in ("entropy", "max", "keys_needed", "share_needed"))


def test_uniform_attention_has_all_the_entropy_there_is():
    model = Transformer(TransformerSettings(M, width=8, feed_forward=8))
    model.tensors()["layer0.w_qkv"].zero_()
    (means,) = attention_statistics(model, tokens(71), length=35, mass=0.5)
    assert math.isclose(means["entropy"], np.log(np.arange(2, 36)).mean(), rel_tol=1e-6)
    assert math.isclose(means["entropy_share"], 1, rel_tol=1e-6)
    assert 0.5 <= means["share_needed"] < 0.55


def test_evaluate(model):
    means = evaluate(model, tokens(), mass=0.8, length=10)
    assert len(means["share_needed"]) == 2
    assert all(0 < share < 1 for share in means["share_needed"])
    assert means["perplexity"] == perplexity(model, tokens(), length=10)
    assert (
        means["perplexity_sparse"] == perplexity(model, tokens(), length=10, attention_mass=0.8) != means["perplexity"]
    )
    everything = evaluate(model, tokens(), mass=1.0, length=10)
    assert math.isclose(everything["perplexity_sparse"], means["perplexity"], rel_tol=1e-9)


def test_a_yz_model_is_evaluated_by_the_same_code():
    yz = YZTransformer(YZSettings(M, init="normal(1.0)", norm="none", query_in_keys=True, dtype="float64"))
    means = evaluate(yz, tokens(), mass=0.6, length=10)
    stream, tables, nats = torch.from_numpy(tokens()).long(), yz.tensors(), []
    for t in range(52):
        x = stream[t // 10 * 10 : t + 1]  # the window up to its query
        b = sparsify_attention(torch.softmax(tables["layer0.z"][x[-1], x], 0), 0.6)
        nats.append(-float(torch.log_softmax(b @ tables["layer0.y"][x], 0)[stream[t + 1]]))
    assert math.isclose(means["perplexity_sparse"], math.exp(np.mean(nats)), rel_tol=1e-9)


def test_bad_input_is_refused(model):
    b, x = torch.full((1, 1, 3, 3), 1 / 3), torch.zeros(1, 3, dtype=torch.int64)
    calls = [
        (lambda bad=bad: AttentionStatistics(groups=bad), "groups") for bad in ([0.5, 1], [[0]], [-2, 0], [-1, -1], [])
    ]
    calls += [
        (lambda: AttentionStatistics().add([b], x, torch.ones(2, 2).bool()), "key_mask"),
        (lambda: AttentionStatistics().means(), "layer"),
        (lambda: attention_statistics(model, [3, 4, 5], groups=[0, 1]), "groups"),
        (lambda: perplexity(model, [1]), "tokens"),
        (lambda: perplexity(model, [1, 2, 3], stride=9, length=5), "stride"),
        (lambda: perplexity(model, [1, 2], attention_mass=2.0), "attention_mass"),
    ]
    for call, field in calls:
        with refused(field):
            call()


def test_samples_are_the_same_for_the_same_seed(model):
    first = sample_tokens(model, [1, 2, 3], 20, seed=4)
    assert first == sample_tokens(model, [1, 2, 3], 20, seed=4)
    assert first != sample_tokens(model, [1, 2, 3], 20, seed=5)
    assert len(first) == 20
    assert set(sample_tokens(model, [1], 30, avoid=range(1, M))) == {0}


def test_samples_follow_the_models_distribution(model):
    """χ² of the first token, temperature 2, among the five likeliest."""
    logits = model.logits(torch.tensor([[1, 2]]))[0, -1] / 2
    best, place = logits.topk(5)
    p = torch.softmax(best, 0).numpy()
    drawn = [sample_tokens(model, [1, 2], 1, temperature=2.0, top_k=5, seed=k)[0] for k in range(500)]
    counts = np.array([drawn.count(int(token)) for token in place])
    assert counts.sum() == 500
    chi2 = ((counts - 500 * p) ** 2 / (500 * p)).sum()
    assert chi2 < 23.5, chi2  # 4 degrees of freedom, one in 10,000


def test_no_temperature_takes_the_likeliest_of_the_window(model):
    drawn = sample_tokens(model, [5, 6, 7], 3, temperature=0, window=2)
    targets = [5, 6, 7]
    for token in drawn:
        assert token == int(model.logits(torch.tensor([targets[-2:]]))[0, -1].argmax())
        targets.append(token)


def test_text(model):
    words = Vocabulary(["<unk>", "<eos>", *(f"w{i}" for i in range(M - 2))], np.arange(M, 0, -1))
    text = sample_text(model, words, "w3 w4", 12, seed=1)
    assert text.startswith("w3 w4 ")
    assert "<unk>" not in text
    assert len(words.encode(text)) >= 12
    assert sample_text(model, words, "", 5)
    with refused("vocabulary"):
        sample_text(model, Vocabulary(["<unk>", "<eos>"], [2, 1]), "", 5)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *bad_values(prompt=[[], [M]], temperature=[-1], top_k=[0], avoid=[range(M)]),
    ],
    ids=str,
)  # fmt: skip
def test_bad_sampling_input_is_named(model, options, field):
    with refused(field):
        sample_tokens(model, **{"prompt": [1], "n": 1} | options)

"""What a corpus says of tokens, against plain loops, in every form a corpus may come in."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from refusals import refused
from scansnap.corpus import Corpus
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.probe import corpus as corpus_module
from scansnap.probe.corpus import count_preceding, to_documents, token_facts
from scansnap.probe.schema import AGAINST

M, T = 12, 7
STREAM = np.random.default_rng(0).choice(M, size=200, p=np.arange(M, 0, -1) / (M * (M + 1) / 2))
BATCH = torch.from_numpy(np.random.default_rng(1).integers(0, M, (3, T)))


def by_hand(parts: list[np.ndarray]) -> tuple[dict[int, float], dict[int, float]]:
    """IDF and percentile of every token, one after the other."""
    occurrences = Counter(token for part in parts for token in part.tolist())
    idf = {token: math.log(len(parts) / sum(token in part for part in parts)) for token in occurrences}
    total = sum(occurrences.values())
    percentile = {
        token: sum(n * (1.0 if idf[other] < own - 1e-12 else 0.5 if abs(idf[other] - own) < 1e-12 else 0.0)
                   for other, n in occurrences.items()) / total
        for token, own in idf.items()
    }  # fmt: skip
    return idf, percentile


def expected(parts: list[np.ndarray], tokens: torch.Tensor) -> np.ndarray:
    _, percentile = by_hand(parts)
    return np.array([[percentile.get(token, math.nan) for token in row] for row in tokens.tolist()])


WINDOWS = [STREAM[i : i + T] for i in range(0, len(STREAM), T)]
FORMS = {
    "array": STREAM,
    "int32": STREAM.astype(np.int32),
    "tensor": torch.from_numpy(STREAM),
    "list": STREAM.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_is_cut_into_windows_of_the_batchs_length(form: str) -> None:
    found = token_facts(FORMS[form], BATCH)
    np.testing.assert_allclose(found.distinctness(BATCH), expected(WINDOWS, BATCH), rtol=1e-6)
    assert found.distinctness(BATCH).dtype == torch.float32
    assert found.attrs == {
        "corpus": "the corpus given",
        "corpus_hash": token_facts(STREAM, BATCH).attrs["corpus_hash"],  # the same in every form
        "corpus_tokens": 200,
        "corpus_documents": 29,
        "tokens_known": 1,
    }


def test_another_corpus_has_another_hash() -> None:
    hashes = {token_facts(one, BATCH).attrs["corpus_hash"] for one in (STREAM, STREAM[::-1], STREAM.reshape(20, 10))}
    assert len(hashes) == 3


def test_documents_stay_what_they_are() -> None:
    ragged = [STREAM[:50], STREAM[50:53], STREAM[53:]]
    for given in (ragged, [part.tolist() for part in ragged], [torch.from_numpy(part) for part in ragged]):
        np.testing.assert_allclose(token_facts(given, BATCH).distinctness(BATCH), expected(ragged, BATCH), rtol=1e-6)
    table = STREAM.reshape(20, 10)
    np.testing.assert_allclose(token_facts(table, BATCH).distinctness(BATCH), expected(list(table), BATCH), rtol=1e-6)
    assert not np.allclose(token_facts(table, BATCH).idf[:M], token_facts(STREAM, BATCH).idf[:M]), "control"


def test_a_corpus_of_ours_is_its_training_split() -> None:
    words = tuple(f"w{i}" for i in range(M - 2))
    vocabulary = Vocabulary(("<unk>", "<eos>", *words), np.ones(M))
    corpus = Corpus("small", "Small", vocabulary, STREAM.astype(np.int32), STREAM[:5], STREAM[:5])
    found = token_facts(corpus, BATCH)
    np.testing.assert_allclose(found.distinctness(BATCH), expected(WINDOWS, BATCH), rtol=1e-6)
    assert found.attrs["corpus"] == "the corpus small"
    with refused("batch", names="12"):
        token_facts(corpus, torch.full((2, T), M))


def test_without_one_the_batch_is_it_and_says_so() -> None:
    found = token_facts(None, BATCH)
    np.testing.assert_allclose(found.distinctness(BATCH), expected(list(BATCH.numpy()), BATCH), rtol=1e-6)
    assert found.attrs["corpus"] == "the batch itself"


def test_padding_counts_nowhere() -> None:
    """Neither that of the mask nor −100, though the padding id is a word elsewhere."""
    short, mask = BATCH.clone(), torch.ones_like(BATCH)
    short[0, 4:], mask[0, 4:] = 99, 0
    short[1, 5:] = -100
    parts = [BATCH[0, :4].numpy(), BATCH[1, :5].numpy(), BATCH[2].numpy()]
    found = token_facts(None, short, mask)
    real = short.clone()
    real[0, 4:] = -100
    np.testing.assert_allclose(found.distinctness(short), expected(parts, real), rtol=1e-6)
    assert (found.decile(short)[0, 4:] == -1).all()
    assert (found.decile(short)[1, 5:] == -1).all()
    careless = token_facts(None, torch.where(short == -100, 99, short))
    assert not np.allclose(careless.percentile[:M], found.percentile[:M], equal_nan=True), (
        "the control: padding taken for a word"
    )
    padded = np.where(np.arange(10) < 8, STREAM[:10], -100)
    np.testing.assert_array_equal(to_documents(padded, T).ids, STREAM[:8])


def test_deciles_hold_a_tenth_of_the_text_each() -> None:
    rng = np.random.default_rng(3)
    stream = rng.choice(2000, size=40_000, p=(p := 1 / np.arange(3, 2003)) / p.sum())
    found = token_facts(stream, torch.from_numpy(stream[:100]).reshape(2, 50))
    decile = found.decile(torch.from_numpy(stream)[None])[0]
    np.testing.assert_allclose(np.bincount(decile, minlength=10) / len(stream), 0.1, atol=0.02)
    assert float(found.distinctness(torch.from_numpy(stream)[None]).mean()) == pytest.approx(0.5, abs=1e-6)
    common, rare = np.bincount(stream).argmax(), np.flatnonzero(np.bincount(stream, minlength=2000) == 1)[0]
    assert found.decile(torch.tensor([[common, rare, 5000]])).tolist() == [[0, 9, -1]]


def test_the_same_tokens_are_answered_once() -> None:
    found = token_facts(STREAM, BATCH)
    assert found.distinctness(BATCH) is found.distinctness(BATCH)
    other = BATCH.flip(1)
    torch.testing.assert_close(found.distinctness(other), found.distinctness(BATCH).flip(1))


@pytest.mark.parametrize(
    ("corpus", "batch", "field"),
    [
        (STREAM + 100, BATCH, "corpus"),
        (STREAM, -1 - BATCH, "batch"),
        (STREAM / 2, BATCH, "corpus"),
        ("a text", BATCH, "corpus"),
        (["a", "text"], BATCH, "corpus"),
        (np.zeros((2, 2, 2), int), BATCH, "corpus"),
        (np.array([1 << 40]), BATCH, "corpus"),
        (np.zeros(0, int), BATCH, "corpus"),
        (STREAM, torch.full((2, 3), -100), "batch"),
    ],
)
def test_what_cannot_be_a_corpus(corpus: object, batch: torch.Tensor, field: str) -> None:
    with refused(field):
        token_facts(corpus, batch)


def pairs_by_hand(parts: list[np.ndarray], window: int) -> np.ndarray:
    """(M, M) how often l is among the tokens before n."""
    counts = np.zeros((M, M))
    for part in parts:
        for j, n in enumerate(part):
            for token in part[max(0, j - window) : j]:
                counts[n, token] += 1
    return counts


@pytest.mark.parametrize("block", [5, 1 << 14])
@pytest.mark.parametrize("form", ["stream", "documents"])
def test_what_stands_before(monkeypatch: pytest.MonkeyPatch, form: str, block: int) -> None:
    monkeypatch.setattr(corpus_module, "_BLOCK", block)
    parts = [STREAM] if form == "stream" else [STREAM[:50], STREAM[50:53], STREAM[53:]]
    corpus = to_documents(STREAM if form == "stream" else parts, T)
    nexts, keys = np.array([0, 3, 7]), np.array([1, 3, 5, 11])
    found, wanted = count_preceding(corpus, nexts, keys, 4), pairs_by_hand(parts, 4)
    np.testing.assert_array_equal(found.counts, wanted[nexts][:, keys])
    np.testing.assert_array_equal(found.total, wanted.sum(0)[keys])
    with np.errstate(divide="ignore"):
        pmi = np.log(wanted * wanted.sum() / np.outer(wanted.sum(1), wanted.sum(0)))
    np.testing.assert_allclose(found.pmi, pmi[nexts][:, keys], rtol=1e-12)


def test_a_frequent_next_token_is_counted_at_some_of_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer counts, the same shares: PMI stays within their noise."""
    rng = np.random.default_rng(5)
    corpus = to_documents(rng.choice(M, size=40_000, p=np.arange(M, 0, -1) / 78), T)
    nexts, keys = np.array([0, 11]), np.arange(M)
    whole = count_preceding(corpus, nexts, keys, 4)
    monkeypatch.setattr(corpus_module, "_PAIRS", 4 * 2 * 1000)
    some = count_preceding(corpus, nexts, keys, 4)
    assert whole.counts[0].sum() > 20_000
    assert some.counts[0].sum() == pytest.approx(4000, abs=5)
    noise = 1 / np.sqrt(some.counts)  # of ln of a count
    assert (abs(some.pmi - whole.pmi) < 5 * noise).all()


def test_of_a_long_corpus_some_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_PIECE", 50)
    monkeypatch.setattr(corpus_module, "MOST", 1000)
    long = np.tile(np.arange(M), 1000)
    assert len(to_documents(long, T).ids) == 1000
    assert len(to_documents([long[:100]] * 100, T).ids) <= 1000
    some = to_documents(long[:900], T).sample(400)
    assert 300 < len(some.ids) < 450
    assert len(np.unique(some.ids)) == M


def test_scores_are_those_of_the_next_token_and_the_key() -> None:
    batch = torch.tensor([[0, 1, 2, 3, 1, 50], [4, 0, 0, 5, 2, -100]])
    found = token_facts(STREAM, batch)
    idf, _ = by_hand([STREAM[i : i + 6] for i in range(0, len(STREAM), 6)])
    k = pairs_by_hand([STREAM], 6)
    queries = (1, 3, 4, 5)
    scores = dict(zip(AGAINST, found.scores(queries, batch.device).scores, strict=True))
    for b in range(2):
        for i, query in enumerate(queries):
            following = int(batch[b, query + 1]) if query < 5 else -1
            for s, key in enumerate(batch[b].tolist()):
                got = {name: float(one[b, i, s]) for name, one in scores.items()}
                if key not in range(M):
                    assert all(math.isnan(value) for value in got.values()), "a key that the corpus never has"
                    continue
                assert got["idf"] == pytest.approx(idf[key], rel=1e-6)
                if following not in range(M):
                    assert math.isnan(got["pmi"])
                    assert math.isnan(got["cooccurrence"])
                    continue
                n = k[following, key]
                pmi = math.log(n * k.sum() / (k[following].sum() * k[:, key].sum())) if n else -math.inf
                assert got["cooccurrence"] == n
                assert got["pmi"] == pytest.approx(pmi, rel=1e-5)


def test_types_are_counted_once() -> None:
    batch = torch.tensor([[0, 1, 1, 0], [2, 99, 0, -100]])
    found = token_facts(STREAM, batch)
    place, spread = found.by_type(batch.device)
    assert place.tolist() == [0, 1, 1, 0, 2, 8, 0, 8]
    assert float(spread) == pytest.approx(found.percentile[:3].std(ddof=1), rel=1e-6)


def test_names_do_not_matter() -> None:
    """A corpus is known by its type, not by what it is called."""
    with refused("corpus", "SimpleNamespace of object"):
        token_facts(SimpleNamespace(train=STREAM, name="x"), BATCH)

"""The dial on text: classes by counts, windows as they stand there, and a first token that is always the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from refusals import refused
from scansnap.dial.cells import Cell, run_cell
from scansnap.dial.components import Flags
from scansnap.dial.data import Task
from scansnap.dial.observables import OBSERVABLES
from scansnap.dial.rate_matching import StudySettings
from scansnap.dial.sources import TWICE, DataSource, TextSampler, count_classes, parse_source
from scansnap.dial.training import CellRuns
from scansnap.dial.verdicts import judge

CPU, DOUBLE, T = torch.device("cpu"), torch.float64, 12
PAIRS = (("the", "beach"), ("the", "rink"), ("a", "swim"), ("a", "skate"), ("is", "hot"), ("is", "chilly"))
OWN = {after: [f"{after}-{letter}" for letter in "abcdef"] for _, after in PAIRS}
PLAIN = [f"{a}{b}" for a in ("big", "old", "far", "new") for b in ("day", "walk", "house")]
SHORT = StudySettings((1.0, 10.0), seeds=2, loss_step=12, context=T, end=20)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    """Six kinds of parts, one for each pair: its own words among plain ones, its query, its next word."""
    rng, lines = np.random.default_rng(0), []
    for part in range(240):
        query, after = PAIRS[part % 6]
        for _ in range(8):
            own = rng.choice(OWN[after], 2, p=np.arange(3, 9) / 33)
            lines.append(" ".join([*rng.permutation([*own, *rng.choice(PLAIN, 3)]), query, after]))
    path = tmp_path_factory.mktemp("corpus") / "weather.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def task(flags: Flags, corpus: str, **options) -> Task:
    return Task(flags, f"text:{corpus}", CPU, DOUBLE, T, **options)


def test_distinct_and_common_words_are_those_that_were_planted(corpus) -> None:
    counts, _ = count_classes(corpus, T, False)
    classes = task(Flags(), corpus).classes
    assert {counts.words[m] for m in classes.query} == {"the", "a", "is"}
    for n in range(classes.n_classes):
        after = counts.words[classes.next_token[n]]
        own, common = ({counts.words[i] for i in some} for some in (classes.distinct(n), classes.common_of(n)))
        assert own >= set(OWN[after])
        assert not own & {*PLAIN, *(word for other in OWN if other != after for word in OWN[other])}
        assert common >= set(PLAIN)
        assert not common & {word for words in OWN.values() for word in words}  # the other class's are not common
        other = int(np.flatnonzero((classes.query == classes.query[n]) & (np.arange(classes.n_classes) != n))[0])
        p = classes.p_context
        assert (p[n, classes.distinct(n)] >= TWICE * p[other, classes.distinct(n)]).all()


def test_windows_are_the_texts_own_and_have_the_counted_marginals(corpus) -> None:
    counts, stream = count_classes(corpus, T, False)
    sampler = TextSampler(counts, stream, T)
    drawn = sampler(torch.arange(4), torch.arange(50), 32)
    tokens, target = (t.reshape(-1, *t.shape[3:]).numpy() for t in (drawn.tokens, drawn.target))
    text = " ".join(counts.words[i] for i in stream)
    for row, after in zip(tokens[:50], target[:50], strict=True):
        assert " ".join(counts.words[i] for i in [*row, after]) in text
    classes = task(Flags(), corpus).classes
    for n in range(classes.n_classes):
        own = tokens[(target == classes.next_token[n]) & (tokens[:, -1] == classes.query[n])]
        share = np.bincount(own[:, :-1].ravel(), minlength=classes.vocab_size) / own[:, :-1].size
        assert np.abs(share - classes.p_context[n]).max() < 0.02
        assert abs(len(own) / len(tokens) - classes.p_class[n]) < 0.02


@pytest.mark.parametrize(
    "flags", [Flags(), Flags(finite=True, positions="rope"), Flags(finite=True, bos=True)], ids=str
)
def test_reading_a_text_is_at_t_infinity(flags: Flags, corpus) -> None:
    """Words of a class that do not fit into T take turns, and before training attention is P(l|n)."""
    there = task(flags, corpus)
    assert there.copies == (1 if not flags.sequences else 1 + -(-int((there.classes.p_context > 0).sum(1).max())
                                                                // (T - 1 - flags.bos)))  # fmt: skip
    eta = {"y": torch.full((1,), 0.5, dtype=DOUBLE), "z": torch.full((1,), 0.1, dtype=DOUBLE)}
    runs = CellRuns(flags, there, "sgd", np.arange(1), eta, 100)
    own = runs.read().attention[0, 0] * (there.classes.p_context > 0)
    np.testing.assert_allclose(own / own.sum(-1, keepdims=True), there.classes.p_context, rtol=0.2, atol=0.01)


def test_shared_next_words_are_shared_in_text(corpus) -> None:
    assert not task(Flags(), corpus).classes.shares_next
    assert task(Flags(shared_next=True), corpus).classes.n_classes == 6


def test_a_cell_on_text_is_measured_and_its_control_holds_nothing(corpus) -> None:
    data = f"text:{corpus}"
    cells = [run_cell(Cell("yz", mode, "sgd", data), replace(SHORT, seeds=10), device="cpu")
             for mode in ("single", "control")]  # fmt: skip
    found = {cell["mode"]: {row["observable"]: row for row in cell["observables"]} for cell in judge(cells)}
    assert set(found["single"]) == {observable.name for observable in OBSERVABLES}
    assert found["single"]["scan_order_end"]["verdict"] == "holds"
    assert found["single"]["distinct_gap"]["verdict"] == "holds"
    assert found["single"]["sink"]["verdict"] == "not applicable"
    assert "holds" not in {row["verdict"] for row in found["control"].values()}


def test_without_distinct_words_what_speaks_of_them_is_not_applicable(tmp_path) -> None:
    """A text in which every word before the pairs is as likely before any of them."""
    rng = np.random.default_rng(1)
    pairs = [("the", "x"), ("the", "y"), ("a", "v"), ("a", "w"), ("is", "t"), ("is", "u")]
    rows = [[*rng.choice(["day", "walk", "house"], 12), *pairs[rng.integers(6)]] for _ in range(2500)]
    path = tmp_path / "flat.txt"
    path.write_text("\n".join(map(" ".join, rows)) + "\n")
    cell = run_cell(Cell("yz", "single", "sgd", f"text:{path}"), SHORT, device="cpu")["observables"]
    verdict = {row["observable"]: row["verdict"] for row in cell}
    assert {name for name, word in verdict.items() if word != "not applicable"} == {"effective_tokens", "c_max"}


def test_the_sink_is_the_attention_on_the_first_token() -> None:
    cell = run_cell(Cell("finite", "single", "sgd", "syn-medium+bos"), SHORT, device="cpu")
    (sink,) = (row for row in cell["observables"] if row["observable"] == "sink")
    assert sink["verdict"] == ""  # a number for which there is no threshold
    assert 0 < sink["value"] < 0.5
    there = Task(Flags(finite=True, bos=True), "syn-medium", CPU, DOUBLE, T)
    (batch,) = there.batches(torch.arange(1), 0, 1)
    assert (batch.keys[..., 0] == there.bos).all()
    assert (batch.keys[..., 1:] != there.bos).all()


def test_names_say_all_and_go_both_ways(corpus) -> None:
    for name in ("syn-medium", "zipf+bos", "text", f"text:{corpus}+bos"):
        assert parse_source(name).name == name
    cell = Cell("layers", "single", "adamw", f"text:{corpus}+bos")
    assert cell.flags.bos
    assert cell.flags.finite
    assert cell.command(True) == (
        f"scansnap dial --component layers --mode single --optimizer adamw --data text --corpus {corpus} --bos --quick"
    )
    assert "/" not in cell.name
    assert Cell("yz", "single", "sgd", "syn-medium+bos").flags == Flags(finite=True, bos=True)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("novels",), "data"), (("zipf", "somewhere"), "corpus"), (("text", "no-such-folder"), "corpus"),
        (("shuffled",), "data"),
    ],
)  # fmt: skip
def test_data_that_are_not_there_are_refused(given, field) -> None:
    with refused(field):
        DataSource(*given)


def test_a_changed_text_is_measured_again(corpus, tmp_path) -> None:
    path, words = tmp_path / "a.txt", Path(corpus).read_text()
    path.write_text(words)
    before = DataSource("text", str(path)).content
    assert "beach" in count_classes(str(path), T, False)[0].words
    path.write_text(words.replace("beach", "coast"))
    assert DataSource("text", str(path)).content != before
    assert "coast" in count_classes(str(path), T, False)[0].words

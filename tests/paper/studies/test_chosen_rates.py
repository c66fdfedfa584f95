"""The rule that chooses learning rates: the lowest loss wins, on seeds and text that no figure uses."""

import math

import numpy as np
import pytest
import torch
from tiny_corpus import TINY

from refusals import refused
from scansnap.paper.shared import text_runs
from scansnap.paper.studies import chosen_rates, layers
from scansnap.paper.studies.chosen_rates import choose, choose_on_text
from scansnap.paper.studies.words import runs as word_runs

GRID = tuple({"eta": eta} for eta in (0.1, 0.3, 1.0, 3.0))


def bowl(rates, seed):
    """Lowest at 1, with a little noise that differs from seed to seed."""
    return 5 + math.log(rates["eta"]) ** 2 + 0.01 * seed


def test_the_lowest_mean_loss_is_taken_and_the_whole_grid_told():
    choice = choose(GRID, bowl, seeds=(7, 8), figure=range(3))
    assert choice.rates == {"eta": 1.0}
    assert not choice.at_the_edge
    described = choice.describe()
    assert [row["eta"] for row in described["grid"]] == [0.1, 0.3, 1.0, 3.0]
    assert described["grid"][2]["perplexity"] == pytest.approx(math.exp(5.075))
    assert described["seeds"] == [7, 8]


def test_losses_of_the_seeds_are_averaged():
    table = {(0.1, 1): 1.0, (0.1, 2): 4.0, (0.3, 1): 2.0, (0.3, 2): 2.0}
    choice = choose(GRID[:2], lambda rates, seed: table[rates["eta"], seed], seeds=(1, 2), figure=(0,))
    assert choice.rates == {"eta": 0.3}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_run_that_diverges_is_not_chosen(bad):
    def loss(rates, seed):
        return bad if rates["eta"] > 0.5 and seed == 8 else -rates["eta"]

    choice = choose(GRID, loss, seeds=(7, 8), figure=(0,))
    assert choice.rates == {"eta": 0.3}
    assert math.isinf(choice.tried[2][1])
    with refused("the grid of learning rates"):
        choose(GRID, lambda rates, seed: bad, seeds=(7,), figure=(0,))


@pytest.mark.parametrize(("sign", "taken"), [(1, 0.1), (-1, 3.0)])
def test_the_best_at_either_end_of_the_grid_is_said(sign, taken):
    choice = choose(GRID, lambda rates, seed: sign * rates["eta"], seeds=(7,), figure=(0,))
    assert choice.rates == {"eta": taken}
    assert choice.at_the_edge
    inside = choose(GRID, bowl, seeds=(7,), figure=(0,))
    assert chosen_rates.edges({"YZ": choice, "transformer": inside}) == "rate at the edge of its grid: YZ"
    assert chosen_rates.edges({"transformer": inside}) == ""


def test_seeds_of_the_figure_are_refused():
    with refused("seeds"):
        choose(GRID, bowl, seeds=(2, 7), figure=range(3))


def test_no_figure_uses_the_seeds_of_the_rule():
    sizes = [size.seeds for size in text_runs.SIZES.values()]
    sizes += [size["seeds"] for module in (layers, word_runs) for size in module.SIZES.values()]
    assert not set(chosen_rates.SEEDS) & set(range(max(sizes)))


class Model:
    """Counts what is asked of it. Its loss depends on the rate; its attention would favour another rate, if seen."""

    layers, device, vocab_size = 1, torch.device("cpu"), 40

    def __init__(self, eta, log):
        self.eta, self.log = eta, log

    def train_step(self, inputs, targets):
        self.log.append(("train", inputs))
        return torch.tensor(math.nan if self.eta == 3.0 else 1.0)

    def logits(self, inputs, attention_mass=None):
        self.log.append(("logits", inputs))
        assert attention_mass is None
        return torch.zeros(*inputs.shape, 40).index_fill_(-1, torch.tensor([0]), -abs(math.log(self.eta)))

    def describe(self):
        return {}

    def __getattr__(self, name):
        raise AssertionError(f"the rule looked at {name}")


def test_on_text_it_sees_the_loss_on_the_third_split_and_nothing_else(effort):
    """No attention, no statistics of it: only steps and logits are asked for, and never with the validation text."""
    setting = text_runs.text_setting(effort, **{**TINY, "steps": 8})
    log, seeds = [], []

    def build(rates, seed):
        seeds.append(seed)
        return Model(rates["eta"], log)

    choice = choose_on_text(setting, build, GRID)
    assert not set(seeds) & set(setting.seeds)
    kinds = [kind for kind, _ in log]
    assert set(kinds) == {"train", "logits"}
    # a quarter of the eight steps; one where its loss is no number
    assert kinds.count("train") == (len(GRID) - 1) * 2 + 1
    assert math.isinf(choice.tried[-1][1])
    read = {tuple(row) for kind, x in log if kind == "logits" for row in x.tolist()}
    unseen = setting.corpus.test[: setting.size.valid_tokens]
    assert read == {tuple(unseen[i : i + 35][: len(unseen) - 1 - i].tolist()) for i in range(0, len(unseen) - 1, 35)}


@pytest.mark.parametrize(
    "grid",
    [chosen_rates.SGD_TRANSFORMER, chosen_rates.ADAM_TRANSFORMER, chosen_rates.SGD_YZ, chosen_rates.ADAM_YZ],
)
def test_grids_are_alike(grid):
    """Five rates half a decade apart, for every model."""
    assert len(grid) == 5
    for name in grid[0]:
        steps = np.diff(np.log10([rates[name] for rates in grid]))
        np.testing.assert_allclose(steps, 0.5, atol=0.03)

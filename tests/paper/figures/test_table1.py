"""The list of symbols against the code: exact homes, and names that are really there."""

from dataclasses import replace

import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.figures import table1
from scansnap.paper.figures.table1 import SYMBOLS, Symbol


def at(home, name="x"):
    return Symbol("x", "–", "", name, home)


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.name)
def test_every_symbol_is_at_its_home(symbol):
    assert symbol.exists()


def test_the_quantities_that_are_kept_under_another_name_are_these():
    assert {symbol.name: symbol.code_name for symbol in SYMBOLS if not symbol.named} == {
        "alpha": "log_alpha", "iota": "gamma_iota", "beta": "gamma_beta",
    }  # fmt: skip


@pytest.mark.parametrize(
    "home",
    [
        "scansnap.theory:gam",  # part of a name
        "scansnap.theory:gamma(vocab)",
        "scansnap.results.variables:VARIABLES[att]",
        "scansnap.dynamics.yz:Forward.alpha",  # the field is log_alpha
        "scansnap.dynamics.yz:Forward.forward",
        "scansnap.runs:Runs.eta",
        "scansnap.results.variables:VARIABLES.y",  # a key is not a member
        "scansnap.theory:gamma.vocab_size",  # nor is a parameter
        "scansnap.dynamics.yz:Forward(nothing)",
    ],
)
def test_a_wrong_home_is_noticed(home):
    assert not at(home).exists()


def test_a_home_must_have_a_form():
    for home in ("scansnap.theory", "scansnap.theory:", "scansnap.theory:gamma(a, b)"):
        with pytest.raises(ValueError):
            at(home).exists()


def test_a_home_of_another_name_is_found_but_not_named():
    other = at("scansnap.dynamics.yz:Forward.log_alpha", "alpha")
    assert (other.exists(), other.named) == (True, False)
    assert replace(other, name="log_alpha").named


def test_table_1_counts_both_and_says_which_have_another_name():
    computed = table1.compute(Effort(quick=True))
    there, named = computed.findings
    assert (there.agree, there.of) == (len(SYMBOLS), len(SYMBOLS))
    assert (named.agree, named.verdict, named.kind) == (len(SYMBOLS) - 3, "mostly agrees", "by definition")
    assert "α_n as log_alpha" in named.detail
    texts = [text.get_text() for text in table1.draw(computed).axes[0].texts]
    assert "alpha: log_alpha" in texts
    assert "gamma" in texts

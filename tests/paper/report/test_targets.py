"""What can be reproduced, and where its module lives."""

from pathlib import Path

from scansnap.paper import figures
from scansnap.paper.report.targets import NAMED, STUDIES, SYNTHETIC, TARGETS, TEXT, THEORY, chosen, find


def test_targets_come_in_the_papers_order_and_once():
    assert chosen([]) == chosen(["all"]) == [*SYNTHETIC, *THEORY, *TEXT]
    assert not set(NAMED) & set(chosen(["all"])), "what takes long is named"
    assert chosen(["dial", "fig1", "probe"]) == ["fig1", "probe", "dial"]
    assert chosen(["table1", "fig2", "fig2"]) == ["fig2", "table1"]
    assert chosen(["fig7", "synthetic"]) == [*SYNTHETIC, "fig7"]
    assert chosen(["text"]) == list(TEXT)
    assert chosen(["theory"]) == list(THEORY) == ["numbered", "validity", "deviations", "crossover"]
    assert not set(THEORY) & {*SYNTHETIC, *TEXT}  # neither seconds nor in need of text
    for name in TARGETS:
        assert find(name).TITLE


def test_figures_holds_the_papers_figures_and_nothing_else():
    names = {path.stem for path in Path(figures.__file__).parent.glob("*.py")} - {"__init__"}
    assert names == set(TARGETS) - set(STUDIES)

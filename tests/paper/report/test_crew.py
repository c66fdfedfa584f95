"""Targets made by several processes are those made by one; each is made once, and families stay together."""

import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.report import crew
from scansnap.paper.report.make import drawn
from scansnap.paper.report.targets import GROUPS, TARGETS

QUICK = Effort(quick=True, device="cpu")


@pytest.mark.parametrize("names", [TARGETS, *GROUPS.values(), ("fig12", "fig1"), ("dial",)])
def test_every_target_is_in_one_family_or_has_a_crew_of_its_own(names):
    made = [name for family in crew.families(names) for name in family]
    assert sorted(made) == sorted(name for name in names if name not in crew.OWN_CREW)


def test_what_shares_runs_is_one_family():
    assert ("fig6", "fig11", "fig12") in crew.families(TARGETS)
    assert ("fig6", "fig12") in crew.families([name for name in TARGETS if name != "fig11"])


def test_the_longest_comes_first_and_is_a_target():
    assert crew.families(GROUPS["all"])[0] == ("words", "sparsity")
    assert set(crew.LONG) <= set(TARGETS) - set(crew.OWN_CREW)


def test_few_targets_are_not_worth_a_process():
    assert crew.processes_for(["fig3", "table1"], QUICK) == 1


@pytest.mark.integration
def test_two_processes_draw_what_one_does(tmp_path):
    names = ("fig3", "fig5", "table1")
    seen = []
    found = {one.name: one for one in crew.at_once(names, QUICK, tmp_path, 2, lambda *done: seen.append(done))}
    assert set(found) == set(names)
    assert seen[-1] == (100, 100)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    for name in names:
        here = drawn(name, QUICK, tmp_path)
        assert found[name].pictures == here.pictures
        assert found[name].computed.table.equals(here.computed.table)
        assert found[name].computed.findings == here.computed.findings

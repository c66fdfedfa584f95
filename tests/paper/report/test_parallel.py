"""Targets made by several processes are those made by one; each is made once, and groups stay together."""

import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.report import parallel
from scansnap.paper.report.make import draw_target
from scansnap.paper.report.targets import GROUPS, TARGETS

QUICK = Effort(quick=True, device="cpu")


@pytest.mark.parametrize("names", [TARGETS, *GROUPS.values(), ("fig12", "fig1"), ("dial",)])
def test_every_target_is_in_one_group_or_parallel_itself(names):
    grouped = [name for group in parallel.group_by_shared_runs(names) for name in group]
    assert sorted(grouped) == sorted(name for name in names if name not in parallel.SELF_PARALLEL)


def test_targets_that_share_runs_are_one_group():
    assert ("fig6", "fig11", "fig12") in parallel.group_by_shared_runs(TARGETS)
    assert ("fig6", "fig12") in parallel.group_by_shared_runs([name for name in TARGETS if name != "fig11"])


def test_the_longest_comes_first_and_is_a_target():
    assert parallel.group_by_shared_runs(GROUPS["all"])[0] == ("words", "sparsity")
    assert set(parallel.LONG) <= set(TARGETS) - set(parallel.SELF_PARALLEL)


def test_few_targets_are_not_worth_a_process():
    assert parallel.count_processes(["fig3", "table1"], QUICK) == 1


@pytest.mark.integration
def test_two_processes_draw_what_one_does(tmp_path):
    names = ("fig3", "fig5", "table1")
    calls = []
    targets = parallel.draw_in_parallel(names, QUICK, tmp_path, 2, lambda *done: calls.append(done))
    by_name = {target.name: target for target in targets}
    assert set(by_name) == set(names)
    assert calls[-1] == (100, 100)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    for name in names:
        expected = draw_target(name, QUICK, tmp_path)
        assert by_name[name].pictures == expected.pictures
        assert by_name[name].computed.table.equals(expected.computed.table)
        assert by_name[name].computed.findings == expected.computed.findings

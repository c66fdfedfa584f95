"""The dial as a person uses it: cells, the table, what is taken over, the control, and one sentence for mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import scansnap as ss
from refusals import refused
from scansnap.dial import cells as cell_module
from scansnap.dial import study
from scansnap.dial.cells import Cell, CellsFailed, run_cell
from scansnap.dial.components import BUILT_IN, COMPONENTS, Component, flags_of, plan, register_component
from scansnap.dial.rate_matching import StudySettings
from scansnap.dial.study import COLUMNS, load, run_dial
from scansnap.dial.verdicts import judge

CELL = ("dial", "--mode", "single", "--optimizer", "sgd", "--quick", "--out", "d")
TINY = StudySettings((1.0, 10.0), seeds=2, context=24, end=12)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch) -> None:
    monkeypatch.setattr(study, "QUICK", TINY)


def test_sixteen_components_three_modes_two_optimisers() -> None:
    assert len(BUILT_IN) == 16
    cells = [Cell(*one) for one in plan()]
    assert len(set(cells)) == len(cells)
    for name in BUILT_IN:
        for optimizer in COMPONENTS[name].optimizers:
            assert any(
                c.component.split(":")[0] == name and c.optimizer == optimizer and c.mode == "single" for c in cells
            )
    assert {c.component for c in cells if c.mode == "single" and c.component.startswith("norm")} == {
        "norm:none", "norm:layernorm", "norm:rms"}  # fmt: skip
    for mode in ("cumulative", "leave_one_out"):
        for name in BUILT_IN[3:]:
            assert any(c.component.split(":")[0] == name and c.mode == mode for c in cells)


def test_a_quick_plan_leaves_out_what_it_says() -> None:
    """Other choices than the first, most controls, and optimisers of their own component but alone; nothing else."""
    quick, left = set(plan(True)), set(plan()) - set(plan(True))
    assert quick < set(plan())
    assert {optimizer for component, mode, optimizer in quick if (component, mode) == ("optimizer", "single")} == {
        "momentum", "adam", "sign", "muon"}  # fmt: skip
    first = {f"{name}:{next(iter(COMPONENTS[name].choices))}".rstrip(":") for name in BUILT_IN}
    assert {mode for component, mode, _ in left if component in first and component != "optimizer"} == {"control"}
    assert {(component, mode) for component, mode, _ in left if component == "optimizer"} == {
        ("optimizer", "cumulative")
    }


def test_the_longest_cells_come_first(monkeypatch) -> None:
    """So that processes end together: with AdamW before SGD, two layers before one, positions before counts."""
    begun = []

    def noted(cells: list[Cell], *given: object):
        begun.extend((cell.component, cell.optimizer) for cell in cells)
        return iter(())

    monkeypatch.setattr(cell_module, "_in_processes", noted)
    wanted = [("embedding", "leave_one_out", "adamw"), ("layers", "cumulative", "adamw"),
              ("heads", "cumulative", "adamw"), ("layers", "cumulative", "sgd"), ("yz", "single", "adamw")]  # fmt: skip
    list(cell_module.run_cells([Cell(*one) for one in reversed(wanted)], TINY, "cpu", 2, None))
    assert begun == [(component, optimizer) for component, _, optimizer in wanted]


def test_modes_of_a_component() -> None:
    full = flags_of("layers", "cumulative")
    assert (full.norm, full.finite, full.positions, full.mlp, full.layers) == ("none", True, "rope", "gelu", 2)
    assert flags_of("residual", "cumulative").residual
    assert flags_of("residual", "cumulative").positions == "none"
    assert not flags_of("residual", "leave_one_out").residual
    assert flags_of("residual", "leave_one_out").layers == 2
    assert flags_of("mlp:relu", "single") == flags_of("mlp:relu", "control")


def test_the_table_and_what_is_used_again(tmp_path) -> None:
    told = []
    first = run_dial(["yz", "norm"], "single", "sgd", quick=True, out=tmp_path, device="cpu",
                 progress=lambda *done: told.append(done))  # fmt: skip
    assert [total for _, total in told] == [100] * 3
    assert [done for done, _ in told] == [0, pytest.approx(50, abs=40), 100]  # of the work, as far as it is known
    assert tuple(first.table.columns) == COLUMNS
    assert set(first.table.component) == {"yz", "norm:none"}
    lines = first.markdown.splitlines()
    assert lines[0] == "**single**"
    assert "distinct gap ≥ 0.05" in lines[2]
    assert "snap in [0.5, 2]" in lines[2]
    assert {line.count("|") for line in lines[2:]} == {lines[2].count("|")}
    shown = first.table[(first.table.component == "yz") & (first.table.observable == "distinct_gap")].iloc[0]
    assert lines[4].startswith(f"| yz | sgd | {shown.value:.2f} {study.MARKS[shown.verdict]} |")
    files = sorted((tmp_path / "cells").iterdir())
    assert len(files) == 2
    times = [file.stat().st_mtime_ns for file in files]
    again = run_dial(["yz", "norm"], "single", "sgd", quick=True, out=tmp_path, device="cpu")
    assert again.table.equals(first.table)
    assert [file.stat().st_mtime_ns for file in files] == times
    whole = files[1].read_bytes()
    files[1].write_bytes(whole[:100])  # a damaged one, and only it, is computed again
    run_dial(["yz", "norm"], "single", "sgd", quick=True, out=tmp_path, device="cpu")
    assert files[0].stat().st_mtime_ns == times[0]
    assert len(files[1].read_bytes()) > 1000
    other = run_dial(
        "yz", "single", "sgd", quick=True, seeds=3, out=tmp_path, device="cpu"
    )  # other settings, other cell
    assert other.cells[0]["seeds"] == 3


@pytest.mark.integration
def test_two_processes_give_the_same_numbers(tmp_path) -> None:
    one, two = (
        run_dial(["yz", "heads"], "single", "sgd", quick=True, device="cpu", jobs=jobs).table for jobs in (1, 2)
    )
    assert one.equals(two)


def test_cells_that_are_the_same_runs_are_run_once(tmp_path, monkeypatch) -> None:
    """The YZ model with Adam is that with AdamW, as nothing decays; without a norm alone is without a norm so far."""
    asked = []
    monkeypatch.setattr(
        "scansnap.dial.cells.run_cell", lambda cell, *a, **k: asked.append(cell.name) or run_cell(cell, *a, **k)
    )
    study_result = run_dial(["norm:none"], ["single", "cumulative"], "sgd", quick=True, out=tmp_path, device="cpu")
    assert len(asked) == 1
    assert [cell["mode"] for cell in study_result.cells] == ["single", "cumulative"]
    assert len({json.dumps(cell["observables"]) for cell in study_result.cells}) == 1
    assert (study_result.cells[0]["cpu_seconds"] > 0, study_result.cells[1]["cpu_seconds"]) == (True, 0.0)
    assert len(list((tmp_path / "cells").iterdir())) == 2
    (tmp_path / "cells" / asked[0]).unlink()  # and taken over from the other where only that is there
    run_dial(["norm:none"], ["single", "cumulative"], "sgd", quick=True, out=tmp_path, device="cpu")
    assert len(asked) == 1
    assert study.same_runs(Cell("yz", "single", "adamw")) == study.same_runs(Cell("optimizer", "single", "adam"))
    assert study.same_runs(Cell("decay", "single", "adamw")) != study.same_runs(Cell("decay", "single", "adam"))
    assert study.same_runs(Cell("yz", "single", "sgd")) != study.same_runs(Cell("yz", "control", "sgd"))


def test_what_is_no_comparison_is_said_in_the_table_and_in_a_sentence() -> None:
    def cell(component: str, verdict: str) -> dict:
        rows = [{"observable": observable.name, "value": 1.0, "low": 1.0, "high": 1.0, "verdict": verdict}
                for observable in study.OBSERVABLES]  # fmt: skip
        return {"component": component, "mode": "single", "optimizer": "sgd", "observables": rows}

    study_result = study.AblationStudy((cell("yz", "holds"), cell("norm:none", "no rates"), cell("heads", "diverged"),
                        cell("mlp:gelu", "rates not matched")), quick=True)  # fmt: skip
    assert [sentence.split(",")[0] for sentence in study_result.remarks] == [
        f"{word} in 1 of 4 cells" for word in ("No rates", "Diverged", "Rates not matched")]  # fmt: skip
    assert "norm:none single sgd." in study_result.remarks[0]
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in study_result.remarks)
    marks = [line.split("|")[3].split()[-1] for line in study_result.markdown.splitlines()[4:]]
    assert marks == ["✓", "∅", "!", "≠"]
    assert study_result.table.verdict.unique().tolist() == ["holds", "no rates", "diverged", "rates not matched"]


def test_numbers_are_as_before_when_a_cell_has_run() -> None:
    run_cell(Cell("yz", "single", "sgd"), StudySettings((10.0,), seeds=2, end=1), device="cpu")
    assert torch.tensor([1e-40]) * 2 > 0  # below the least normal number: zero only while a cell runs


def test_a_folder_is_judged_again_from_its_values(tmp_path) -> None:
    """Of any version: what it had for verdicts plays no part, and where seeds are equal there is no interval."""
    first = run_dial(["yz", "norm:rms"], ["single", "control"], "sgd", quick=True, seeds=3, device="cpu")
    first.save(tmp_path)
    file = tmp_path / "dial.json"
    cells = json.loads(file.read_text())
    for row in (row for cell in cells for row in cell["observables"] if row["verdict"] in ("fails", "undecided")):
        row.update(verdict="holds", low=0.0, high=0.0)
    file.write_text(json.dumps(cells))
    again = load(tmp_path)
    assert again.quick
    assert again.table.equals(first.table)
    assert again.summary == first.summary
    counts = again.table.verdict.value_counts()
    assert again.counts["undecided"] == counts["undecided"] > 0
    assert again.counts["judged"] == sum(counts.get(word, 0) for word in ("holds", "fails", "undecided"))
    assert again.control_holds == 0
    assert "control cells nothing holds" in again.summary
    broken = tmp_path / "broken"
    broken.mkdir()
    for text in ("", "[1]", "{}", "[]"):
        (broken / "dial.json").write_text(text)
        with pytest.raises(ss.InputError):
            load(broken)


def test_a_control_in_which_something_holds_is_counted(tmp_path) -> None:
    study_result = run_dial("yz", "single", "sgd", quick=True, seeds=3, device="cpu")
    holds = study.AblationStudy(tuple(cell | {"mode": "control"} for cell in study_result.cells), quick=True)
    assert holds.control_holds == (study_result.table.verdict == "holds").sum() > 0
    assert "nothing holds" not in holds.summary
    assert study_result.control_holds is None


def test_saved_files_have_the_command_of_each_cell(tmp_path) -> None:
    run_dial("norm:rms", "single", "sgd", quick=True, device="cpu").save(tmp_path)
    (cell,) = json.loads((tmp_path / "dial.json").read_text())
    assert cell["command"] == "scansnap dial --component norm:rms --mode single --optimizer sgd --quick"
    assert cell["matching"] == "kernel"
    assert len(cell["effective"]["y"]) == 2
    assert (tmp_path / "dial.csv").read_text().startswith(",".join(COLUMNS) + "\n")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_nothing_holds_in_the_control(optimizer: str) -> None:
    setting = StudySettings((1.0, 10.0), seeds=2, loss_step=20, context=24, end=12)
    cells = [run_cell(Cell(component, "control", optimizer), setting, device="cpu") for component in ("yz", "finite")]
    for cell in judge(cells):
        assert "holds" not in {row["verdict"] for row in cell["observables"]}, cell["component"]
    gaps = [row["value"] for cell in cells for row in cell["observables"] if row["observable"] == "distinct_gap"]
    assert max(gaps) < study.OBSERVABLES[0].least


def test_scan_order_holds_with_sgd_and_is_lost_with_adam() -> None:
    setting = StudySettings((10.0,), seeds=10, loss_step=20, end=12)  # equal values are decided by the number of seeds
    found = {}
    for name in ("sgd", "adamw"):
        (cell,) = judge([run_cell(Cell("yz", "single", name), setting, device="cpu")])
        found[name] = {row["observable"]: row["verdict"] for row in cell["observables"]}
    assert found["sgd"]["scan_order_end"] == "holds"
    assert found["adamw"]["scan_order_end"] == "fails"
    assert found["sgd"]["distinct_rise"] == found["adamw"]["distinct_rise"] == "holds"


def test_a_run_that_diverges_is_reported(monkeypatch) -> None:
    monkeypatch.setattr("scansnap.dial.cells.match_rates", _hot)
    cell = run_cell(Cell("separate", "single", "sgd"), TINY, device="cpu")
    assert cell["diverged"] == [2, 2]
    assert {row["verdict"] for row in cell["observables"]} == {"diverged"}


def _hot(flags, task, optimizer, setting, steps):
    from scansnap.dial.rate_matching import MatchedRates

    huge = np.full(len(setting.ratios), 1e6)
    return MatchedRates("kernel", {"y": huge, "z": huge}, {"y": huge, "z": huge}, huge, huge > 0, huge)


@pytest.mark.parametrize(
    ("given", "field"),
    [({"components": "nothing"}, "component"), ({"modes": "sideways"}, "mode"), ({"optimizers": "lion"}, "optimizer"),
     ({"seeds": 1}, "seeds"), ({"ratios": [0.0]}, "ratios"), ({"jobs": 0}, "jobs"), ({"data": "shuffled"}, "data"),
     ({"data": "novels"}, "data"), ({"components": "finite", "modes": "leave_one_out", "optimizers": "sgd"}, "mode")],
)  # fmt: skip
def test_mistakes_are_refused(given, field) -> None:
    with refused(field):
        ss.run_dial(**({"quick": True} | given))


def test_an_own_component_is_measured_like_the_others(monkeypatch) -> None:
    monkeypatch.setattr("scansnap.dial.components.COMPONENTS", COMPONENTS.copy())
    monkeypatch.setattr(
        "scansnap.dial.components.ATTENTIONS", {"softmax": None, "third": lambda z, k: (z / 3 + k).softmax(-1)}
    )
    register_component(Component("third", "a third of the logits", {"": {"attention": "third"}}))
    with refused("name", "third"):
        register_component(Component("third", "again", {"": {}}))
    with refused("attentions", "third"):
        register_component(Component("fourth", "unknown flag", {"": {"attentions": "third"}}))
    monkeypatch.setattr("scansnap.dial.attention.ATTENTIONS", {"third": lambda z, k: (z / 3 + k).softmax(-1)})
    (cell,) = judge([run_cell(Cell("third", "single", "sgd"), StudySettings((10.0,), seeds=4, end=12), device="cpu")])
    assert cell["observables"][0]["verdict"] == "holds"


def test_the_command_writes_its_files_and_refuses_in_one_sentence(scansnap, refuses, tmp_path) -> None:
    code, out, _ = scansnap(*CELL, "--component", "yz", "--seeds", 2, "--device", "cpu")
    assert code == 0
    assert "1 cells" in out
    summary = load(tmp_path / "d").summary
    assert summary in " ".join(out.split())
    assert (tmp_path / "d" / "dial.md").read_text().startswith(summary)
    assert {p.name for p in (tmp_path / "d").iterdir()} == {
        "cells",
        "checksums.json",
        *(f"dial.{kind}" for kind in ("csv", "json", "md", "png", "pdf")),
    }
    (tmp_path / "short.txt").write_text("the end\n" * 4)
    for field, *bad in (
        ("component", "--component", "nothing"), ("component", "--component", "positions:none"),
        ("component", "--component", "16"), ("--engine", "--engine", "cloud"),
        ("mode", "--mode", "up"), ("optimizer", "--optimizer", "lion"), ("data", "--data", "novels"),
        ("corpus", "--data", "text", "--corpus", "missing"), ("corpus", "--data", "text", "--corpus", "short.txt"),
        ("corpus", "--corpus", "stdlib"), ("ratio", "--ratio", 0), ("seeds", "--seeds", 1), ("jobs", "--jobs", 0),
        ("mode", "--component", "finite", "--mode", "leave_one_out", "--optimizer", "sgd"),
        ("--engine", "--address", "auto"), ("--engine", "--gpus-per-group", "0.5"),
    ):  # fmt: skip
        refuses(field, "dial", *bad, "--out", "e")
    assert not (tmp_path / "e").exists()


def test_the_command_lists_the_components(scansnap, tmp_path) -> None:
    code, out, _ = scansnap("dial", "--list", "--json", "--out", "e")
    assert code == 0
    content = json.loads(out)
    assert [one["component"] for one in content] == list(BUILT_IN)
    assert content[8] == {"number": 8, "component": "positions", "changes": COMPONENTS["positions"].title,
                       "choices": ["rope", "absolute", "alibi"], "optimizers": ["sgd", "adamw"]}  # fmt: skip
    code, out, _ = scansnap("dial", "--list")
    assert code == 0
    for name in BUILT_IN:
        assert name in out
    assert not (tmp_path / "e").exists()


def test_the_command_measures_the_sink_at_one_ratio(scansnap, tmp_path) -> None:
    code, _, _ = scansnap(*CELL, "--component", "finite", "--bos", "--ratio", 10, "--seeds", 2, "--device", "cpu")
    assert code == 0
    (cell,) = json.loads((tmp_path / "d" / "dial.json").read_text())
    assert cell["command"].endswith("--bos --quick")
    assert cell["ratios"] == [10.0]
    (sink,) = (row for row in cell["observables"] if row["observable"] == "sink")
    assert sink["verdict"] == "measured"
    assert "| sink |" in (tmp_path / "d" / "dial.md").read_text()


def test_cells_that_workers_could_not_do_are_one_sentence(scansnap, tmp_path, monkeypatch) -> None:
    def run_cells(*given):
        raise CellsFailed("1 of 1 cells failed: yz-single-sgd-syn-medium: its node is gone")
        yield

    monkeypatch.setattr(study, "run_cells", run_cells)
    code, _, err = scansnap(*CELL, "--component", "yz")
    assert code == 1
    assert "its node is gone. Finished cells are in d" in " ".join(err.split())

"""The ablation study: all cells, each in a file of its own as soon as it is done, and their table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scansnap.checks import InputError, check_choice, check_float, check_integer
from scansnap.cluster import Cluster
from scansnap.dial.cells import OPTIMIZERS, Cell, Result, cost, run_cells
from scansnap.dial.components import MODES, find_component, label, plan
from scansnap.dial.observables import OBSERVABLES, REFERENCE
from scansnap.dial.rate_matching import MOST_OFF, StudySettings
from scansnap.dial.sources import parse_source
from scansnap.dial.verdicts import judge
from scansnap.progress import Progress
from scansnap.storage import check_writable
from scansnap.storage.json_text import to_json
from scansnap.storage.tracked import refuse_untracked, replacing_tracked
from scansnap.storage.versions import decisive_versions, refuse_other_versions
from scansnap.storage.work_cache import WorkCache

if TYPE_CHECKING:
    import pandas as pd

CELLS = "cells"  # the folder of their files
FILES = ("dial.md", "dial.csv", "dial.json", "dial.png", "dial.pdf")  # the last two are drawn by the command
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?", "measured": "", "no rates": "∅", "diverged": "!",
         "rates not matched": "≠", "not applicable": "n/a"}  # fmt: skip
REASONS = {
    "no rates": "where no rates train the model",
    "diverged": "where a run became non-finite or ended above its start",
    "rates not matched": f"where effective rates, or the step of 10% loss, stayed off by more than {MOST_OFF:.0%}",
}
SHOWN = 6  # names in a remark
UNSHOWN = ("log_odds_rise", "distinct_mass", "late_speed")  # in dial.csv only
COLUMNS = ("component", "mode", "optimizer", "observable", "value", "low", "high", "verdict")
FULL = StudySettings()
# shorter runs, an earlier loss step, T just above the 20 tokens of a class
QUICK = StudySettings((1.0, REFERENCE), seeds=3, loss_step=30, context=24, end=30)


@dataclass(frozen=True)
class AblationStudy:
    """The result of `run_dial`: every cell with its matched rates and curves.

    Attributes
    ----------
    cells
        The measured cells: component, mode, optimiser, rates, curves and verdicts.
    quick
        Whether the study ran with the reduced settings.

    Examples
    --------
    >>> AblationStudy((), quick=True).table.columns.tolist()[:3]
    ['component', 'mode', 'optimizer']
    """

    cells: tuple[Result, ...]
    quick: bool

    @property
    def table(self) -> pd.DataFrame:
        """One row for each cell and observable."""
        import pandas as pd

        rows = [{**{name: cell[name] for name in COLUMNS[:3]}, **{name: row[name] for name in COLUMNS[3:]}}
                for cell in self.cells for row in cell["observables"]]  # fmt: skip
        return pd.DataFrame(rows, columns=list(COLUMNS))

    @property
    def markdown(self) -> str:
        """A table for each mode, with marks for the verdicts."""
        defined = {row["observable"] for cell in self.cells for row in cell["observables"]
                   if row["verdict"] != "not applicable" and row["value"] == row["value"]}  # fmt: skip
        shown = [o for o in OBSERVABLES if o.name not in UNSHOWN and (o.name in defined or o.bounds)]
        head = ["component", "optimiser", *(f"{o.name.replace('_', ' ')}{o.bounds}" for o in shown)]
        parts = []
        for mode in MODES:
            rows = [[cell["component"], cell["optimizer"], *(_entry(cell, o.name) for o in shown)]
                    for cell in self.cells if cell["mode"] == mode]  # fmt: skip
            if rows:
                parts.append(f"**{mode}**\n\n" + "\n".join(map(_line, [head, ["---"] * len(head), *rows])) + "\n")
        return "\n".join(parts)

    @property
    def counts(self) -> dict[str, int]:
        """How many of the entries with a threshold are judged, and hold, fail or are undecided, by the whole table."""
        n = self.table.verdict.value_counts()
        counts = {verdict: int(n.get(verdict, 0)) for verdict in ("holds", "fails", "undecided")}
        return {"judged": sum(counts.values()), **counts}

    @property
    def control_holds(self) -> int | None:
        """In how many entries of the control the paper's picture holds, where it must not; None without a control."""
        control = self.table[self.table["mode"] == "control"]
        return int((control.verdict == "holds").sum()) if len(control) else None

    @property
    def summary(self) -> str:
        """The verdicts of the table, counted, and those of the control."""
        n = self.counts
        summary = (f"Of {n['judged']} entries with a threshold {n['holds']} hold, {n['fails']} fail and "
                   f"{n['undecided']} are undecided, all of them tested as one family.")  # fmt: skip
        if self.control_holds is None:
            return summary
        cells = sum(cell["mode"] == "control" for cell in self.cells)
        return f"{summary} In the {cells} control cells {self.control_holds or 'nothing'} holds."

    @property
    def remarks(self) -> list[str]:
        """A sentence for each reason why cells are no comparison, with their names."""
        remarks = []
        for reason, explanation in REASONS.items():
            names = [f"{cell['component']} {cell['mode']} {cell['optimizer']}" for cell in self.cells
                     if any(row["verdict"] == reason for row in cell["observables"])]  # fmt: skip
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            if names:
                remarks.append(f"{reason.capitalize()} in {len(names)} of {len(self.cells)} cells, {explanation}: "
                               f"{', '.join(names[:SHOWN])}{more}.")  # fmt: skip
        return remarks

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write dial.csv, the same as tables in dial.md, and dial.json with rates, curves and each cell's command.

        Files of these names that scansnap did not write are refused, or replaced with ``overwrite``.
        """
        cells = [{**cell, "command": _cell(cell).command(self.quick)} for cell in self.cells]
        content = to_json(cells, indent=1, sort_keys=True)
        contents = {
            "dial.md": f"{self.summary}\n\n{self.markdown}",
            "dial.csv": self.table.to_csv(index=False),
            "dial.json": f"{content}\n",
        }
        if not overwrite:
            refuse_untracked("folder", folder, contents)
        with replacing_tracked("folder", folder) as scratch:
            for name, text in contents.items():
                (scratch / name).write_bytes(text.encode())


def load(folder: str | Path) -> AblationStudy:
    """What `AblationStudy.save` wrote, judged again from the values by seed."""
    path = Path(folder) / "dial.json"
    try:
        cells = _from_json(json.loads(path.read_text(encoding="utf-8")))
        (quick,) = {cell.pop("command").endswith(" --quick") for cell in cells}
        return AblationStudy(judge(cells), quick)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise InputError("folder", str(folder), "the folder of a finished ablation study, with dial.json") from error


def run_dial(
    components: str | Iterable[str] | None = None,
    modes: str | Iterable[str] | None = None,
    optimizers: str | Iterable[str] | None = None,
    *,
    quick: bool = False,
    seeds: int | None = None,
    ratios: Sequence[float] | None = None,
    data: str = "syn-medium",
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    jobs: int = 1,
    cluster: Cluster | None = None,
    progress: Progress | None = None,
) -> AblationStudy:
    """Measure components between the YZ model and a transformer, at matched learning rates.

    Parameters
    ----------
    components
        Names such as ``norm`` or ``norm:none``, or numbers; by default all.
    modes
        ``single`` (the YZ model and the component), ``cumulative`` (all components up to it), ``leave_one_out`` (the
        full model without it), ``control`` (shuffled next tokens); by default all.
    optimizers
        By default sgd and adamw, where a component has no other.
    quick
        3 seeds, ratios 1 and 10, T = 24, to 30 t₀.
    seeds
        Paired seeds: by default 10.
    ratios
        Effective η_Y/η_Z. Nominal rates cannot be given.
    data
        syn-medium, zipf (p_n ∝ 1/n), textbook (one query, one common token), text, or text:CORPUS; ``+bos`` at the
        end prepends a constant token to every sequence.
    out
        A folder: finished cells in it are reused, and each new cell is written at once.
    overwrite
        Compute all cells again.
    device
        auto, cpu or cuda.
    jobs
        Processes that share the cells.
    cluster
        A Ray cluster whose workers share the cells instead.
    progress
        Called with the finished share of the work in hundredths, and 100.

    Returns
    -------
    AblationStudy
        The table of observables with verdicts, and every cell.

    Examples
    --------
    >>> from scansnap import run_dial
    >>> study = run_dial("yz", "single", "sgd", quick=True, ratios=[10], seeds=2, device="cpu")
    >>> study.table.observable[0]
    'distinct_gap'
    """
    settings = QUICK if quick else FULL
    if ratios is not None:
        settings = replace(settings, ratios=tuple(check_float("ratios", r, above=0, most=1e6) for r in ratios))
    if seeds is not None:
        settings = replace(settings, seeds=check_integer("seeds", seeds, least=2, most=1000))
    cells = select_cells(components, modes, optimizers, quick=quick, data=parse_source(data).name)
    jobs = check_integer("jobs", jobs, least=1, most=256)
    folder = None if out is None else check_writable("out", Path(out) / CELLS, inside=True)
    results = {} if folder is None or overwrite else _finished(folder, cells, settings)
    costs = {same_runs(cell): cost(cell, settings) for cell in cells}

    def report() -> None:
        """In hundredths of the work, as the costs of cells differ by a factor of hundreds."""
        if progress is not None:
            done = {same_runs(cell) for cell in results}
            progress(round(100 * sum(costs[runs] for runs in done) / sum(costs.values())), 100)

    def store(cell: Cell, result: Result) -> None:
        results[cell] = result
        if folder is not None:
            _cache(folder, cell, settings).put(cell.name, result)
        report()

    report()
    computed = {same_runs(cell): cell for cell in results}
    todo: dict[Any, Cell] = {}
    for cell in cells:
        if cell not in results and same_runs(cell) not in computed:
            todo.setdefault(same_runs(cell), cell)
    for cell, result in run_cells(list(todo.values()), settings, device, jobs, cluster):
        store(cell, result)
        computed[same_runs(cell)] = cell
    for cell in cells:
        if cell not in results:  # the same runs under another name
            store(cell, _renamed(results[computed[same_runs(cell)]], cell))
    return AblationStudy(judge([results[cell] for cell in cells]), quick)


def select_cells(
    components: str | Iterable[str] | None,
    modes: str | Iterable[str] | None,
    optimizers: str | Iterable[str] | None,
    *,
    quick: bool,
    data: str = "syn-medium",
) -> list[Cell]:
    """The cells of the plan that fit, in its order; a cell that all three names identify need not be in the plan."""
    names = [label(*find_component(name)) for name in _as_list(components)]
    in_modes = [check_choice("mode", mode, MODES) for mode in _as_list(modes)]
    with_optimizers = [check_choice("optimizer", name, OPTIMIZERS) for name in _as_list(optimizers)]
    planned = [Cell(component, mode, optimizer, data) for component, mode, optimizer in plan(quick)
               if component in (names or [component]) and mode in (in_modes or [mode])
               and optimizer in (with_optimizers or [optimizer])]  # fmt: skip
    if names and in_modes and with_optimizers:
        exact = [Cell(component, mode, optimizer, data) for component in names for mode in in_modes
                 for optimizer in with_optimizers]  # fmt: skip
        return planned + [cell for cell in exact if cell not in planned]
    if not planned:  # other choices than the first are in mode single only, and the like
        raise InputError("component, mode and optimizer", " ".join([*names, *in_modes, *with_optimizers]),
                         "a combination of the plan, or all three")  # fmt: skip
    return planned


def same_runs(cell: Cell) -> tuple[Any, ...]:
    """What decides the runs of a cell: cells in which this is equal share them. Without decay AdamW is Adam."""
    optimizer = "adam" if cell.optimizer == "adamw" and cell.flags.decay == "none" else cell.optimizer
    return cell.flags, optimizer, cell.data, cell.mode == "control"


def _finished(folder: Path, cells: list[Cell], settings: StudySettings) -> dict[Cell, Result]:
    """Results in the folder; those of other versions are refused unless they make up the whole table."""
    pieces = {}
    for cell in cells:
        piece = _cache(folder, cell, settings).get(cell.name)
        if piece is not None:
            pieces[cell] = piece
        elif (folder / cell.name).is_dir():
            message = "a folder has the name of a cell's file; move it away or pass overwrite=True to replace it"
            raise InputError.conflict("out", message, str(folder / cell.name))
    if len(pieces) < len(cells) or len({json.dumps(p.versions, sort_keys=True) for p in pieces.values()}) > 1:
        for piece in pieces.values():
            refuse_other_versions("out", folder.parent, piece.versions)
    return {cell: piece.values for cell, piece in pieces.items()}


def _renamed(result: Result, cell: Cell) -> Result:
    """The result of a cell with the same runs under this cell's name; it took no time of its own."""
    names = {"component": cell.component, "mode": cell.mode, "optimizer": cell.optimizer}
    return result | names | {"seconds": 0.0, "cpu_seconds": 0.0}


def _cache(folder: Path, cell: Cell, settings: StudySettings) -> WorkCache:
    """The cache of a cell, by all that determines its numbers; a damaged cell is computed again."""
    key = {"cell": asdict(cell), "flags": asdict(cell.flags), "settings": asdict(settings),
           "text": parse_source(cell.data).content}  # fmt: skip
    return WorkCache(folder, json.dumps(key, sort_keys=True), decisive_versions(), damaged="missing", field="out")


def _entry(cell: Result, name: str) -> str:
    row = next(row for row in cell["observables"] if row["observable"] == name)
    size = abs(row["value"])
    value = "–" if not math.isfinite(size) else f"{row['value']:.2f}" if size < 1e4 else f"{row['value']:.0e}"
    return f"{value.replace('-', '−')} {MARKS[row['verdict']]}".rstrip()


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(result: Result) -> Cell:
    return Cell(result["component"], result["mode"], result["optimizer"], result["data"])


def _as_list(value: str | Iterable[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return math.nan if value is None else float(value) if value in ("inf", "-inf") else value

"""All cells of the dial, here or in several processes, each kept in a file of its own as soon as it is done."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scansnap.checks import InputError, check_choice, check_integer
from scansnap.cluster import Cluster
from scansnap.dial.cell import OPTIMIZERS, Cell
from scansnap.dial.clocks import MOST_OFF, Setting
from scansnap.dial.observables import OBSERVABLES, REFERENCE
from scansnap.dial.places import Result, made, work
from scansnap.dial.rungs import WAYS, find, label, plan
from scansnap.dial.sources import named
from scansnap.dial.verdicts import judge
from scansnap.progress import Progress
from scansnap.storage import writable
from scansnap.storage.owned import refuse_foreign, renewing
from scansnap.storage.versions import decisive_versions, refuse_other_versions
from scansnap.storage.work_cache import WorkCache

if TYPE_CHECKING:
    import pandas as pd

CELLS = "cells"  # the folder of their files
FILES = ("dial.md", "dial.csv", "dial.json", "dial.png", "dial.pdf")  # the last two are drawn by the command
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?", "measured": "", "no rates": "∅", "diverged": "!",
         "clock not met": "≠", "not applicable": "n/a"}  # fmt: skip
REASONS = {
    "no rates": "where no rates train as the clock asks",
    "diverged": "where a run became non-finite or ended above its start",
    "clock not met": f"where what the clock measures stayed off by more than {MOST_OFF:.0%}",
}
SHOWN = 6  # names in a remark
UNSHOWN = ("log_odds_rise", "distinct_mass", "late_speed")  # in dial.csv only
COLUMNS = ("rung", "way", "optimizer", "observable", "value", "low", "high", "verdict")
FULL = Setting()
# not as far, an earlier loss step, T just above the 20 tokens of a class
QUICK = Setting((1.0, REFERENCE), seeds=3, loss_step=30, context=24, end=30)


@dataclass(frozen=True)
class Dial:
    """What was measured: the table, and every cell with its clock and curves."""

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
        """A table for each way, with marks for the verdicts: those of docs/dial.md."""
        defined = {row["observable"] for cell in self.cells for row in cell["observables"]
                   if row["verdict"] != "not applicable" and row["value"] == row["value"]}  # fmt: skip
        shown = [one for one in OBSERVABLES if one.name not in UNSHOWN and (one.name in defined or one.bounds)]
        head = ["rung", "optimiser", *(f"{one.name.replace('_', ' ')}{one.bounds}" for one in shown)]
        parts = []
        for way in WAYS:
            rows = [[cell["rung"], cell["optimizer"], *(_marked(cell, one.name) for one in shown)]
                    for cell in self.cells if cell["way"] == way]  # fmt: skip
            if rows:
                parts.append(f"**{way}**\n\n" + "\n".join(map(_line, [head, ["---"] * len(head), *rows])) + "\n")
        return "\n".join(parts)

    @property
    def counts(self) -> dict[str, int]:
        """How many of the entries with a threshold are judged, and hold, fail or are undecided, by the whole table."""
        found = self.table.verdict.value_counts()
        counts = {word: int(found.get(word, 0)) for word in ("holds", "fails", "undecided")}
        return {"judged": sum(counts.values()), **counts}

    @property
    def control_holds(self) -> int | None:
        """Of how many entries of the control the paper's picture holds, where it must not; None without a control."""
        control = self.table[self.table.way == "control"]
        return int((control.verdict == "holds").sum()) if len(control) else None

    @property
    def summary(self) -> str:
        """The verdicts of the table, counted, and those of the control."""
        n = self.counts
        said = (f"Of {n['judged']} entries with a threshold {n['holds']} hold, {n['fails']} fail and {n['undecided']} "
                f"are undecided, all of them tested as one family.")  # fmt: skip
        if self.control_holds is None:
            return said
        cells = sum(cell["way"] == "control" for cell in self.cells)
        return f"{said} In the {cells} control cells {self.control_holds or 'nothing'} holds."

    @property
    def remarks(self) -> list[str]:
        """A sentence for each reason why cells are no comparison, with their names."""
        found = []
        for word, says in REASONS.items():
            names = [f"{cell['rung']} {cell['way']} {cell['optimizer']}" for cell in self.cells
                     if any(row["verdict"] == word for row in cell["observables"])]  # fmt: skip
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            if names:
                found.append(f"{word.capitalize()} in {len(names)} of {len(self.cells)} cells, {says}: "
                             f"{', '.join(names[:SHOWN])}{more}.")  # fmt: skip
        return found

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """dial.csv, the same as tables in dial.md, and dial.json with clocks, curves and each cell's command.

        Files of these names that are not from here are refused, or replaced with ``overwrite``.
        """
        told = [{**cell, "command": _cell(cell).command(self.quick)} for cell in self.cells]
        contents = {
            "dial.md": f"{self.summary}\n\n{self.markdown}",
            "dial.csv": self.table.to_csv(index=False),
            "dial.json": json.dumps(_plain(told), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n",
        }
        if not overwrite:
            refuse_foreign("folder", folder, contents)
        with renewing("folder", folder) as scratch:
            for name, text in contents.items():
                (scratch / name).write_bytes(text.encode())


def load(folder: str | Path) -> Dial:
    """What :meth:`Dial.save` wrote, judged again from the values by seed, whatever version measured them."""
    path = Path(folder) / "dial.json"
    try:
        told = _numbers(json.loads(path.read_text(encoding="utf-8")))
        (quick,) = {cell.pop("command").endswith(" --quick") for cell in told}
        return Dial(judge(told), quick)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise InputError("the folder of a dial", str(folder), "one with the dial.json of a finished dial") from error


def dial(
    rungs: str | Iterable[str] | None = None,
    ways: str | Iterable[str] | None = None,
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
) -> Dial:
    """Measure rungs between the YZ model and a transformer, each by a clock that makes them comparable.

    rungs       names such as ``norm`` or ``norm:none``, or numbers; all by default
    ways        alone, cumulative, without, control; all by default
    optimizers  sgd and adamw by default, where a rung has no other
    quick       3 seeds, ratios 1 and 10, T = 24, to 30 t₀
    ratios      effective η_Y/η_Z; there is no way to give nominal rates
    data        syn-medium, zipf (p_n ∝ 1/n), textbook (one query, one common token), text or text:WHERE (a corpus);
                with +bos at the end, after a first token that is always the same
    out         a folder: cells that are finished there are taken over, the others are put there one by one
    jobs        processes that share the cells
    cluster     a Ray cluster whose workers share the cells instead; a cell whose worker dies is run again
    progress    is told the share of the work that is done, in hundredths, first what was there already

    >>> dial("yz", "alone", "sgd", quick=True).table.verdict[0]  # doctest: +SKIP
    'holds'
    """
    base = QUICK if quick else FULL
    setting = Setting(
        tuple(_ratio(r) for r in ratios) if ratios is not None else base.ratios,
        check_integer("seeds", seeds, least=2, most=1000) if seeds is not None else base.seeds,
        base.eta_y,
        base.loss_step,
        base.context,
        base.end,
    )
    cells = chosen(rungs, ways, optimizers, quick=quick, data=named(data).name)
    jobs = check_integer("jobs", jobs, least=1, most=256)
    folder = None if out is None else writable("out", Path(out) / CELLS, inside=True)
    found: dict[Cell, Result] = {}
    versions: dict[Cell, dict[str, str]] = {}  # of the cells that are there
    for cell in cells:
        if folder is not None and not overwrite and (piece := _cache(folder, cell, setting).get(cell.name)) is not None:
            found[cell], versions[cell] = piece.values, piece.versions
        elif folder is not None and not overwrite and (folder / cell.name).is_dir():
            raise InputError("out", str(folder / cell.name), "absent or a file (move it away; overwrite replaces it)")
    if len(found) < len(cells) or len({json.dumps(each, sort_keys=True) for each in versions.values()}) > 1:
        for each in versions.values():
            refuse_other_versions("out", out, each)
    weights = {same_runs(cell): work(cell, setting) for cell in cells}

    def tell() -> None:
        """In hundredths of the work: cells differ by a factor of hundreds, and the longest come first."""
        if progress is not None:
            done = {same_runs(cell) for cell in found}
            progress(round(100 * sum(weights[one] for one in done) / sum(weights.values())), 100)

    def store(cell: Cell, result: Result) -> None:
        found[cell] = result
        if folder is not None:
            _cache(folder, cell, setting).put(cell.name, result)
        tell()

    tell()

    known = {same_runs(cell): cell for cell in found}
    todo: dict[Any, Cell] = {}
    for cell in cells:
        if cell not in found and same_runs(cell) not in known:
            todo.setdefault(same_runs(cell), cell)
    for cell, result in made(list(todo.values()), setting, device, jobs, cluster):
        store(cell, result)
        known[same_runs(cell)] = cell
    for cell in cells:
        if cell not in found:  # the same runs have another name too
            store(cell, _renamed(found[known[same_runs(cell)]], cell))
    return Dial(judge([found[cell] for cell in cells]), quick)


def chosen(
    rungs: str | Iterable[str] | None,
    ways: str | Iterable[str] | None,
    optimizers: str | Iterable[str] | None,
    *,
    quick: bool,
    data: str = "syn-medium",
) -> list[Cell]:
    """The cells asked for, in the order of the plan; what is named exactly is made even where the plan has it not."""
    names = [label(*find(name)) for name in _several(rungs)]
    for way in _several(ways):
        check_choice("way", way, WAYS)
    for optimizer in _several(optimizers):
        check_choice("optimizer", optimizer, OPTIMIZERS)
    planned = [
        Cell(*one, data)
        for one in plan(quick)
        if (not names or one[0] in names)
        and (not ways or one[1] in _several(ways))
        and (not optimizers or one[2] in _several(optimizers))
    ]
    if names and ways and optimizers:
        exact = [Cell(rung, way, optimizer, data) for rung in names for way in _several(ways)
                 for optimizer in _several(optimizers)]  # fmt: skip
        return planned + [cell for cell in exact if cell not in planned]
    if not planned:  # choices that only stand alone, and the like
        asked = " ".join([*names, *_several(ways), *_several(optimizers)])
        raise InputError("rung, way and optimizer", asked, "a combination that the plan has, or all three given")
    return planned


def same_runs(cell: Cell) -> tuple[Any, ...]:
    """What decides the runs of a cell: two cells in which this is equal are one. Without decay AdamW is Adam."""
    optimizer = "adam" if cell.optimizer == "adamw" and cell.flags.decay == "none" else cell.optimizer
    return cell.flags, optimizer, cell.data, cell.way == "control"


def _renamed(result: Result, cell: Cell) -> Result:
    """The runs of another cell under this one's name; they took no time of their own."""
    names = {"rung": cell.rung, "way": cell.way, "optimizer": cell.optimizer}
    return result | names | {"seconds": 0.0, "cpu_seconds": 0.0}


def _cache(folder: Path, cell: Cell, setting: Setting) -> WorkCache:
    """Of what decides a cell's numbers; a damaged one is computed again."""
    key = {"cell": asdict(cell), "flags": asdict(cell.flags), "setting": asdict(setting),
           "text": named(cell.data).content}  # fmt: skip
    return WorkCache(folder, json.dumps(key, sort_keys=True), decisive_versions(), damaged="missing", field="out")


def _marked(cell: Result, name: str) -> str:
    row = next(row for row in cell["observables"] if row["observable"] == name)
    size = abs(row["value"])
    value = "–" if not math.isfinite(size) else f"{row['value']:.2f}" if size < 1e4 else f"{row['value']:.0e}"
    return f"{value.replace('-', '−')} {MARKS[row['verdict']]}".rstrip()


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(result: Result) -> Cell:
    return Cell(result["rung"], result["way"], result["optimizer"], result["data"])


def _several(value: str | Iterable[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _ratio(value: Any) -> float:
    from scansnap.checks import check_float

    return check_float("ratios", value, above=0, most=1e6)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null, and words."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": None, "inf": "inf", "-inf": "-inf"}[str(value)]
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return math.nan if value is None else float(value) if value in ("inf", "-inf") else value

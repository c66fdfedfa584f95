"""Writes the tables and the figure of docs/dial_results.md from a folder of `scansnap dial`.

    python docs/scripts/dial.py out/dial

Verdicts are given again, from the values by seed in the folder's dial.json, whatever version measured them. The text
around the tables is written by hand: read it again where a verdict has changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scansnap.dial.study import FULL, MARKS, QUICK, AblationStudy, load

DOCS = Path(__file__).parents[1]
HEAD, NEXT = "## What came out\n", "## Component by component\n"


def section(found: AblationStudy) -> str:
    """What was measured, how many verdicts there are of each kind, and the tables."""
    setting, cells = QUICK if found.quick else FULL, found.cells
    ratios = [f"{ratio:g}" for ratio in cells[0]["ratios"]]
    runs = sum(len(cell["ratios"]) * cell["seeds"] for cell in cells)
    marks = ", ".join(f"{mark} {word}" for word, mark in MARKS.items() if mark)
    command = f"scansnap dial{' --quick' * found.quick} --seeds {cells[0]['seeds']}"
    return (
        f"{HEAD}\n`{command}`: ratios {', '.join(ratios[:-1])} and {ratios[-1]}, T = {setting.context}, to "
        f"{setting.end} t₀: {len(cells)} cells, {runs} runs.\n{marks}.\n{found.summary}\n\n{found.markdown}\n"
    )


def written(page: str, found: AblationStudy) -> str:
    """The page with the section of these tables."""
    before, _, rest = page.partition(HEAD)
    _, _, after = rest.partition(NEXT)
    return before + section(found) + NEXT + after


def draw(found: AblationStudy, target: Path) -> None:
    from scansnap.paper.studies import dial
    from scansnap.plots.style import add_note, save_figure, settle

    computed = dial.computed(found)
    figure = dial.draw(computed)
    add_note(figure, computed.note)
    settle(figure)
    save_figure(figure, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the --out of scansnap dial")
    found, page = load(parser.parse_args().folder), DOCS / "dial_results.md"
    page.write_text(written(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    draw(found, DOCS / "dial" / "dial.png")
    print(found.summary)


if __name__ == "__main__":
    main()

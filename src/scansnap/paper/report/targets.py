"""The targets of ``scansnap reproduce``: figures, the table, the claims and our studies, by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from scansnap.checks import InputError, check_choice
from scansnap.checks.extras import how, installed

if TYPE_CHECKING:  # the command reads the groups before it loads anything else
    from scansnap.paper.figure import PaperFigure

SYNTHETIC = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig8", "fig9", "fig11", "fig12", "table1", "claims",
             "timescales")  # fmt: skip
# all numbered statements, where they hold and what replaces them: three minutes
THEORY = ("numbered", "validity", "deviations", "crossover")
ON_TEXT = ("layers", "words", "sparsity")
# not in ``all``: minutes on a CPU for three seeds, which decide little, and hours
NAMED = ("probe", "lever", "alerts", "dial")
STUDIES = ("validity", "deviations", "crossover", *ON_TEXT, *NAMED)  # beyond the paper's figures
TEXT = ("fig7", "fig10", *ON_TEXT)  # on real text: minutes instead of seconds
READS_A_CORPUS = (*TEXT, "probe", "lever", "alerts")
TARGETS = (*SYNTHETIC, *THEORY, *TEXT, *NAMED)
BEYOND = ("timescales", *STUDIES)  # the report has them after the paper's figures
IN_WORDS = ("table1", "numbered")  # shown as a table in the report, without a drawing
# optional packages that targets need
NEEDS = {"probe": "transformers", "lever": "transformers", "alerts": "transformers"}
GROUPS = {"all": (*SYNTHETIC, *THEORY, *TEXT), "synthetic": SYNTHETIC, "theory": THEORY, "text": TEXT}


def find(name: str) -> PaperFigure:
    """The module of a target; loads torch and matplotlib."""
    room = "studies" if name in STUDIES else "figures"
    return cast("PaperFigure", importlib.import_module(f"scansnap.paper.{room}.{name}"))


def chosen(names: Sequence[str]) -> list[str]:
    """Names and groups as targets in the order of TARGETS, without duplicates; no names mean ``all``."""
    for name in names:
        check_choice("TARGET", name, (*TARGETS, *GROUPS))
    selected = {target for name in names or ["all"] for target in GROUPS.get(name, (name,))}
    return [name for name in TARGETS if name in selected]


def require(name: str) -> None:
    """Refuse a target whose optional package is missing."""
    package = NEEDS.get(name, "")
    if package and not installed(package):
        raise InputError("TARGET", name, f"another one unless the package {package} is installed ({how(package)})")


def label(name: str) -> str:
    """``fig6`` as "Figure 6"."""
    for short, long in (("fig", "Figure "), ("table", "Table ")):
        if name.startswith(short):
            return long + name.removeprefix(short)
    return name.capitalize()

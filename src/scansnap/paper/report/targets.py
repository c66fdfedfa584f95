"""What can be reproduced: the paper's figures and table, the claims and our studies, by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import cast

from scansnap.checks import InputError, choice
from scansnap.checks.extras import how, installed
from scansnap.paper.figure import PaperFigure

SYNTHETIC = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig8", "fig9", "fig11", "fig12", "table1", "claims",
             "clocks")  # fmt: skip
THEORY = ("validity", "deviations")  # what holds in place of the paper's statements, and where: two minutes
ON_TEXT = ("layers", "words", "sparsity", "probe")
NAMED = ("dial",)  # takes hours, so that ``all`` leaves it out
STUDIES = (*THEORY, *ON_TEXT, *NAMED)  # beyond the paper's figures
TEXT = ("fig7", "fig10", *ON_TEXT)  # on real text: minutes instead of seconds
TARGETS = (*SYNTHETIC, *THEORY, *TEXT, *NAMED)
BEYOND = ("clocks", *STUDIES)  # the report has them after the paper's figures
IN_WORDS = ("table1",)  # what the report tells by a table, without a drawing
NEEDS = {"probe": "transformers"}  # a package that not every installation has
GROUPS = {"all": (*SYNTHETIC, *THEORY, *TEXT), "synthetic": SYNTHETIC, "theory": THEORY, "text": TEXT}


def find(name: str) -> PaperFigure:
    """The module of a target; loads torch and matplotlib."""
    room = "studies" if name in STUDIES else "figures"
    return cast(PaperFigure, importlib.import_module(f"scansnap.paper.{room}.{name}"))


def chosen(names: Sequence[str]) -> list[str]:
    """Nothing means ``all``; the order is that of TARGETS, and none comes twice."""
    for name in names:
        choice("TARGET", name, (*TARGETS, *GROUPS))
    wanted = {one for name in names or ["all"] for one in GROUPS.get(name, (name,))}
    return [name for name in TARGETS if name in wanted]


def lacking(name: str) -> str:
    """What a target needs and is not installed, in words; empty if nothing."""
    package = NEEDS.get(name, "")
    there = not package or installed(package)
    return "" if there else f"the package {package} is installed ({how(package)})"


def require(name: str) -> None:
    """Refuse a target that cannot be made here."""
    if missing := lacking(name):
        raise InputError("TARGET", name, f"another one unless {missing}")


def label(name: str) -> str:
    """``fig6`` as "Figure 6"."""
    for short, long in (("fig", "Figure "), ("table", "Table ")):
        if name.startswith(short):
            return long + name.removeprefix(short)
    return name.capitalize()

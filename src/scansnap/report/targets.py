"""What can be reproduced: the paper's figures and table, and the claims, by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import cast

from scansnap.checks import choice
from scansnap.figures.figure import PaperFigure

TARGETS = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig8", "fig9", "fig11", "fig12", "table1", "claims")
MISSING = {
    "fig7": "attention maps of 1- and 3-layer transformers on WikiText-2: needs the text models",
    "fig10": "attention entropy against the learning rate on WikiText: needs the text models",
}


def find(name: str) -> PaperFigure:
    """The module of a target; loads torch and matplotlib."""
    return cast(PaperFigure, importlib.import_module(f"scansnap.figures.{name}"))


def chosen(names: Sequence[str]) -> list[str]:
    """``all`` or nothing means every target; the order is the paper's, and none comes twice."""
    for name in names:
        choice("TARGET", name, (*TARGETS, "all"))
    return [name for name in TARGETS if not names or "all" in names or name in names]


def label(name: str) -> str:
    """``fig6`` as "Figure 6"."""
    for short, long in (("fig", "Figure "), ("table", "Table ")):
        if name.startswith(short):
            return long + name.removeprefix(short)
    return name.capitalize()

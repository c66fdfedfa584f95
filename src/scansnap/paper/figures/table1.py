"""Table 1: the quantities of the paper and the one name each has in code, files, command line and page."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.plots.style import styled
from scansnap.progress import Progress

TITLE = "Notation"
CAPTION = (
    "The paper's quantities and the one name each has in code, files and on the command line; behind a colon what the "
    "code keeps in its place."
)

_COLUMNS = {"symbol": 0.0, "shape": 0.22, "name": 0.295, "meaning": 0.455}  # left edges, of the width


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Every row is checked against the code."""
    table = pd.DataFrame(
        {**asdict(symbol), "code_name": symbol.code_name, "found": symbol.exists(), "named": symbol.named}
        for symbol in SYMBOLS
    )
    return Computed(table, {"symbols": len(table)}, findings(table))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """By definition: the list is ours; it can only be wrong about our own code."""
    others = table[~table.named]
    described = ", ".join(f"{row.symbol} as {row.code_name}" for row in others.itertuples())
    return (
        Finding("Every quantity is in the code where the list says", "Table 1", int(table.found.sum()), len(table),
                "symbols", kind="by definition"),
        Finding("Every quantity has its own name there", "Table 1", int(table.named.sum()), len(table), "symbols",
                f"Stored otherwise: {described}." if described else "", kind="by definition"),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """The table, one line a symbol."""
    rows = computed.table
    names = [name if name == code else f"{name}: {code}" for name, code in zip(rows.name, rows.code_name, strict=True)]
    rows = rows.assign(name=names)
    with styled(7.8, 0.235 * (len(rows) + 1.2)) as figure:
        ax = figure.subplots()
        ax.set(xlim=(0, 1), ylim=(len(rows), -1))
        ax.axis("off")
        for column, x in _COLUMNS.items():
            ax.text(x, -0.5, column, fontweight="bold", va="center")
            mono: dict[str, Any] = {"family": "monospace", "fontsize": 8} if column == "name" else {}
            for i, text in enumerate(rows[column]):
                ax.text(x, i + 0.5, text, va="center", **mono)
        ax.axhline(0, color="black", linewidth=0.8)
        for i in range(5, len(rows), 5):
            ax.axhline(i, color="0.85", linewidth=0.5)
    return figure


@dataclass(frozen=True)
class Symbol:
    """One quantity, its intended name, and where the code has it.

    ``home`` is "module:thing", "module:thing.member" (a field, property or method of a class),
    "module:function(parameter)" or "module:table[key]".
    """

    symbol: str
    shape: str
    meaning: str
    name: str
    home: str

    @property
    def code_name(self) -> str:
        """The last name of the home: ``name`` unless the code calls the quantity otherwise."""
        return self._parts[-1]

    @property
    def named(self) -> bool:
        """Whether the code has it at its home and calls it by its name."""
        return self.exists() and self.code_name == self.name

    def exists(self) -> bool:
        """Whether the code has something at this very home."""
        module, thing, form, member = self._parts
        owner = getattr(importlib.import_module(module), thing, None)
        if form == "":
            return owner is not None
        if form == "[":
            return isinstance(owner, dict) and member in owner
        if form == "(":
            return callable(owner) and member in inspect.signature(owner).parameters
        return isinstance(owner, type) and (member in vars(owner) or member in owner.__annotations__)

    @property
    def _parts(self) -> tuple[str, str, str, str]:
        """Module, thing, which of the forms (its opening sign), and the last name."""
        value = re.fullmatch(r"([\w.]+):(\w+)(?:([.(\[])(\w+)[)\]]?)?", self.home)
        if value is None:
            raise ValueError(f"{self.home!r} is not the home of anything")
        module, thing, form, member = value.groups(default="")
        return module, thing, form, member or thing


SYMBOLS = (
    Symbol("M", "–", "vocabulary size", "vocab_size", "scansnap.theory:gamma(vocab_size)"),
    Symbol("K", "–", "number of sequence classes", "n_classes", "scansnap.theory:gamma(n_classes)"),
    Symbol("T", "–", "sequence length; ∞ replaces counts by probabilities", "context",
           "scansnap.dynamics.settings:Settings.context"),
    Symbol("P(l|n)", "K×M", "how often token l occurs in the context of class n", "p_context",
           "scansnap.classes:SequenceClasses(p_context)"),
    Symbol("ψ(n) = m", "K", "query (last) token of class n", "query", "scansnap.classes:SequenceClasses(query)"),
    Symbol("n", "K", "next token, which the model predicts", "next_token",
           "scansnap.classes:SequenceClasses(next_token)"),
    Symbol("p_n", "K", "how often class n is drawn", "p_class", "scansnap.classes:SequenceClasses(p_class)"),
    Symbol("G_DT(n)", "–", "distinct tokens: they occur in class n only", "distinct",
           "scansnap.classes:SequenceClasses.distinct"),
    Symbol("G_CT", "–", "common tokens: they occur in several classes", "common",
           "scansnap.classes:SequenceClasses.common"),
    Symbol("Y = U W_Vᵀ Uᵀ", "M×M", "vote of context token l for output token j", "y",
           "scansnap.results.variables:VARIABLES[y]"),
    Symbol("Z = U W_Q W_Kᵀ Uᵀ/√d", "M×M", "attention logit of query m for key l", "z",
           "scansnap.results.variables:VARIABLES[z]"),
    Symbol("k", "M", "how often each token occurs in one context, Σ k = T − 1", "counts",
           "scansnap.dynamics.yz:CountBatch.counts"),
    Symbol("c_n", "M", "token-level attention, c ∝ P(l|n) e^z", "attention",
           "scansnap.results.variables:VARIABLES[attention]"),
    Symbol("f_n = c_n/‖c_n‖₂", "M", "normalised attention output", "f", "scansnap.dynamics.yz:Forward.f"),
    Symbol("α_n", "M", "softmax(Yᵀ f_n), what is predicted; stored as its logarithm", "alpha",
           "scansnap.dynamics.yz:Forward.log_alpha"),
    Symbol("η_Y", "–", "learning rate of the decoder Y", "eta_y", "scansnap.runs:Runs.eta_y"),
    Symbol("η_Z", "–", "learning rate of the attention logits Z", "eta_z", "scansnap.runs:Runs.eta_z"),
    Symbol("h(s)", "–", "how far the decoder is after s visits of a class", "h", "scansnap.theory:h"),
    Symbol("γ(t)", "–", "speed the decoder gives to attention", "gamma", "scansnap.theory:gamma"),
    Symbol("ι_n(t)", "K", "how strongly class n pulls towards its own f_n; stored as γι", "iota",
           "scansnap.claims.theorems.gradient_decomposition:Decomposition.gamma_iota"),
    Symbol("β_nn′(t)", "K×K", "how strongly class n pushes away from class n′; stored as γβ", "beta",
           "scansnap.claims.theorems.gradient_decomposition:Decomposition.gamma_beta"),
    Symbol("ξ_n(t)", "K", "γ Σ β_nn′ f_nᵀf_n′, what makes distinct tokens of class n grow", "xi",
           "scansnap.claims.ours.path:PredictedPath.xi"),
    Symbol("B_n(t)", "–", "growth exponent", "growth", "scansnap.theory:growth"),
    Symbol("χ_l(t)", "–", "growth factor of a distinct token", "chi", "scansnap.theory:chi"),
    Symbol("r_{l/l′|n}(t)", "–", "relative gain of one distinct token over another", "relative_gain",
           "scansnap.theory:relative_gain"),
    Symbol("t₀′", "–", "end of the pure scanning regime", "t_scan", "scansnap.theory:t_scan"),
    Symbol("t₀", "–", "snapping time", "t_snap", "scansnap.theory:t_snap"),
)  # fmt: skip

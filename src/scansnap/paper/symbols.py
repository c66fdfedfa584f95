"""The quantities of the paper and their one name here: in code, files, command line and page (the paper's Table 1)."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """One quantity, the name it is meant to have, and the one place where the code keeps it.

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
        """The last name of the home: what the code calls it, which is ``name`` unless a quantity is kept otherwise."""
        return self._place[-1]

    @property
    def named(self) -> bool:
        """Whether the code has it at its home and calls it by its name."""
        return self.exists() and self.code_name == self.name

    def exists(self) -> bool:
        """Whether the code has something at this very home."""
        module, thing, form, member = self._place
        owner = getattr(importlib.import_module(module), thing, None)
        if form == "":
            return owner is not None
        if form == "[":
            return isinstance(owner, dict) and member in owner
        if form == "(":
            return callable(owner) and member in inspect.signature(owner).parameters
        return isinstance(owner, type) and (member in vars(owner) or member in owner.__annotations__)

    @property
    def _place(self) -> tuple[str, str, str, str]:
        """Module, thing, which of the forms (its opening sign), and the last name."""
        found = re.fullmatch(r"([\w.]+):(\w+)(?:([.(\[])(\w+)[)\]]?)?", self.home)
        if found is None:
            raise ValueError(f"{self.home!r} is not the home of anything")
        module, thing, form, member = found.groups(default="")
        return module, thing, form, member or thing


SYMBOLS = (
    Symbol("M", "–", "vocabulary size", "vocab_size", "scansnap.theory:gamma(vocab_size)"),
    Symbol("K", "–", "number of sequence classes", "n_classes", "scansnap.theory:gamma(n_classes)"),
    Symbol("T", "–", "sequence length; ∞ replaces counts by probabilities", "context",
           "scansnap.dynamics.simulate:simulate(context)"),
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
           "scansnap.dynamics.yz:Batch.counts"),
    Symbol("c_n", "M", "token-level attention, c ∝ P(l|n) e^z", "attention",
           "scansnap.results.variables:VARIABLES[attention]"),
    Symbol("f_n = c_n/‖c_n‖₂", "M", "normalised attention output", "f", "scansnap.dynamics.yz:Forward.f"),
    Symbol("α_n", "M", "softmax(Yᵀ f_n), what is predicted; kept as its logarithm", "alpha",
           "scansnap.dynamics.yz:Forward.log_alpha"),
    Symbol("η_Y", "–", "learning rate of the decoder Y", "eta_y", "scansnap.runs:Runs.eta_y"),
    Symbol("η_Z", "–", "learning rate of the attention logits Z", "eta_z", "scansnap.runs:Runs.eta_z"),
    Symbol("h(s)", "–", "how far the decoder is after s visits of a class", "h", "scansnap.theory:h"),
    Symbol("γ(t)", "–", "speed the decoder gives to attention", "gamma", "scansnap.theory:gamma"),
    Symbol("ι_n(t)", "K", "how strongly class n pulls towards its own f_n; kept as γι", "iota",
           "scansnap.claims.theorems.theorem1.decomposition:Decomposition.gamma_iota"),
    Symbol("β_nn′(t)", "K×K", "how strongly class n pushes away from class n′; kept as γβ", "beta",
           "scansnap.claims.theorems.theorem1.decomposition:Decomposition.gamma_beta"),
    Symbol("ξ_n(t)", "K", "γ Σ β_nn′ f_nᵀf_n′, what makes distinct tokens of class n grow", "xi",
           "scansnap.claims.theorems.theorem1.decomposition:xi"),
    Symbol("B_n(t)", "–", "growth exponent", "growth", "scansnap.theory:growth"),
    Symbol("χ_l(t)", "–", "growth factor of a distinct token", "chi", "scansnap.theory:chi"),
    Symbol("r_{l/l′|n}(t)", "–", "relative gain of one distinct token over another", "relative_gain",
           "scansnap.theory:relative_gain"),
    Symbol("t₀′", "–", "end of the pure scanning regime", "t_scan", "scansnap.theory:t_scan"),
    Symbol("t₀", "–", "snapping time", "t_snap", "scansnap.theory:t_snap"),
)  # fmt: skip

"""The quantities of the paper and their one name here: in code, files, command line and page (the paper's Table 1)."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """One quantity."""

    symbol: str
    shape: str
    meaning: str
    name: str
    home: str  # "module:object", "module:object.attribute" or "module:function(parameter)"

    def exists(self) -> bool:
        """Whether the code has this quantity at its home."""
        module, _, path = self.home.partition(":")
        if path.endswith(")"):
            function, _, parameter = path[:-1].partition("(")
            return parameter in inspect.signature(getattr(importlib.import_module(module), function)).parameters
        owner, _, member = path.partition(".")
        thing = getattr(importlib.import_module(module), owner, None)
        if isinstance(thing, dict):
            return member in thing
        fields = getattr(thing, "__annotations__", {})  # a dataclass names its fields here
        return thing is not None and (not member or member in dir(thing) or member in fields)


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
    Symbol("Y = U W_Vᵀ Uᵀ", "M×M", "vote of context token l for output token j", "y", "scansnap.trajectory:DIMS.y"),
    Symbol("Z = U W_Q W_Kᵀ Uᵀ/√d", "M×M", "attention logit of query m for key l", "z", "scansnap.trajectory:DIMS.z"),
    Symbol("k", "M", "how often each token occurs in one context, Σ k = T − 1", "counts",
           "scansnap.sampling:sample_counts"),
    Symbol("c_n", "M", "token-level attention, c ∝ P(l|n) e^z", "attention", "scansnap.trajectory:DIMS.attention"),
    Symbol("f_n = c_n/‖c_n‖₂", "M", "normalised attention output", "f", "scansnap.dynamics.yz:Forward.f"),
    Symbol("α_n", "M", "softmax(Yᵀ f_n), the predicted next token", "alpha", "scansnap.dynamics.yz:Forward.log_alpha"),
    Symbol("η_Y", "–", "learning rate of the decoder Y", "eta_y", "scansnap.runs:Runs.eta_y"),
    Symbol("η_Z", "–", "learning rate of the attention logits Z", "eta_z", "scansnap.runs:Runs.eta_z"),
    Symbol("h(s)", "–", "how far the decoder is after s visits of a class", "h", "scansnap.theory:h"),
    Symbol("γ(t)", "–", "speed the decoder gives to attention", "gamma", "scansnap.theory:gamma"),
    Symbol("β_nn′(t)", "K×K", "how strongly class n pushes away from class n′", "beta",
           "scansnap.claims.theorem1:Decomposition.others"),
    Symbol("ξ_n(t)", "K", "γ Σ β_nn′ f_nᵀf_n′, what makes distinct tokens of class n grow", "xi",
           "scansnap.claims.theorem1:xi"),
    Symbol("B_n(t)", "–", "growth exponent", "growth", "scansnap.theory:growth"),
    Symbol("χ_l(t)", "–", "growth factor of a distinct token", "chi", "scansnap.theory:chi"),
    Symbol("r_{l/l′|n}(t)", "–", "relative gain of one distinct token over another", "relative_gain",
           "scansnap.theory:relative_gain"),
    Symbol("t₀′", "–", "end of the pure scanning regime", "t_scan", "scansnap.theory:t_scan"),
    Symbol("t₀", "–", "snapping time", "t_snap", "scansnap.theory:t_snap"),
)  # fmt: skip

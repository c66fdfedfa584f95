"""Every control of the page: its name, what it does in one line, what it may be. The page asks for this list.

The same list guards the server: a value outside ``least`` and ``most`` is refused in words that name the control.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from scansnap.checks import InputError, choice, real, whole
from scansnap.explorer.protocol import LIMITS


@dataclass(frozen=True)
class Control:
    """One value a user can set."""

    name: str
    label: str
    symbol: str
    explain: str
    kind: str  # number, integer, choice, flag or text
    default: Any
    least: float | None = None
    most: float | None = None
    low: float | None = None  # ends of the slider
    high: float | None = None
    log: bool = False
    options: tuple[str, ...] | None = None
    words: dict[str, str] = field(default_factory=dict)  # values besides numbers, and how they read
    live: bool = False

    def check(self, value: Any) -> Any:
        """``value`` if it is allowed as far as it can be told alone; rules that join controls come after."""
        if value is None and "none" in self.words:
            return None
        if isinstance(value, str) and value in self.words and value != "none":
            return value
        if self.kind == "integer":
            assert self.least is not None
            assert self.most is not None
            return whole(self.name, value, least=int(self.least), most=int(self.most))
        if self.kind == "number":
            return real(self.name, value, least=self.least, most=self.most)
        if self.kind == "choice":
            return choice(self.name, value, self.options or ())
        if self.kind == "flag" and not isinstance(value, bool):
            raise InputError(self.name, value, "true or false")
        if self.kind == "text" and not (isinstance(value, str) and len(value) <= 40):
            raise InputError(self.name, value, "a short text")
        return value

    def schema(self) -> dict[str, Any]:
        """As JSON schema, for the OpenAPI description."""
        kinds = {"number": "number", "integer": "integer", "choice": "string", "flag": "boolean", "text": "string"}
        own: dict[str, Any] = {"type": kinds[self.kind]}
        own |= {key: value for key, value in (("minimum", self.least), ("maximum", self.most)) if value is not None}
        if self.options:
            own["enum"] = list(self.options)
        words = [{"type": "null"} if word == "none" else {"const": word} for word in self.words]
        return {"anyOf": [own, *words], "description": self.explain}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_RATE: dict[str, Any] = {
    "kind": "number",
    "least": 0.0,
    "most": 1e4,
    "low": 0.01,
    "high": 100.0,
    "log": True,
    "live": True,
}

CONTROLS = (
    Control("eta_y", "Decoder rate", "η_Y", "How fast the decoder Y learns which word votes for which next word.",
            default=1.0, **_RATE),
    Control("eta_z", "Attention rate", "η_Z", "How fast attention moves; 0 freezes it.", default=1.0, **_RATE),
    Control("momentum", "Momentum", "μ", "Carries each update on into the next ones; both rates act 1/(1 − μ) times "
            "as fast.", "number", 0.9, 0.0, 0.999, 0.0, 0.99),
    Control("weight_decay", "Weight decay", "λ", "Pulls both tables back towards 0 in every step.",
            "number", 0.0, 0.0, 10.0, 0.0, 0.1),
    Control("optimizer", "Optimiser", "", "The update rule; the theory speaks of SGD.", "choice", "sgd",
            options=("sgd", "nesterov", "adam", "adamw", "sign", "muon")),
    Control("context", "Sequence length", "T", "How many tokens a sequence has; ∞ replaces counts by probabilities.",
            "integer", 128, 2, LIMITS["context"], 2, 4096, log=True, words={"inf": "∞"}),
    Control("batch_size", "Batch", "", "Sequences per step; “all” takes the expectation over classes and needs T = ∞.",
            "integer", 128, 1, LIMITS["batch_size"], 1, 1024, log=True, words={"none": "all"}),
    Control("steps", "Last step", "", "Where the run ends; it can be extended later.", "integer", 2000, 1,
            LIMITS["steps"], 100, 100_000, log=True),
    Control("seed", "Seed", "", "Decides the sampled sequences and random initial values, nothing else.", "integer", 0,
            0, 2**53 - 1),
    Control("init", "Start", "", "Initial Y and Z: zero, uniform within ±1/√M, or normal(std).", "text", "zero"),
    Control("norm", "Norm", "LN", "What follows attention: l2 as in the paper, none, or full layernorm.", "choice",
            "l2", options=("l2", "none", "layernorm")),
    Control("residual", "Residual", "", "Adds the query itself to what attention read: none, normed or plain.",
            "choice", "none", options=("none", "normed", "plain")),
    Control("query_in_keys", "Query among keys", "", "Whether the query may attend to itself.", "flag", False),
    Control("outputs", "Outputs", "", "Softmax over all tokens, or over the next tokens only.", "choice", "all",
            options=("all", "next")),
    Control("heads", "Heads", "H", "Attention heads, whose attentions are averaged.", "integer", 1, 1, LIMITS["heads"],
            1, 8),
    Control("position_bias", "Position bias", "", "ALiBi slope: how much less distant tokens count; none is 0 slope.",
            "number", None, -10.0, 10.0, words={"none": "none"}),
    Control("sampling", "Sampling", "", "Draw counts at once, or spell out token sequences: same law, other draws.",
            "choice", "counts", options=("counts", "tokens")),
    Control("dtype", "Precision", "", "Numbers the run computes with.", "choice", "float32",
            options=("float32", "float64")),
)  # fmt: skip
BY_NAME = {control.name: control for control in CONTROLS}

_TOKENS, _CLASSES = LIMITS["tokens"], LIMITS["classes"]
KNOBS = {
    "n_queries": Control("n_queries", "Queries", "", "Different last tokens; each has its own row of attention logits.",
                         "integer", 1, 1, _CLASSES, 1, 16),
    "next_per_query": Control("next_per_query", "Next tokens per query", "", "Classes that share a query.",
                              "integer", 2, 1, _CLASSES, 1, 8),
    "common": Control("common", "Common tokens", "", "Tokens in the context of every class: they tell nothing.",
                      "integer", 10, 0, _TOKENS, 0, 40),
    "common_per_query": Control("common_per_query", "Common per query", "", "Tokens shared by the classes of one query "
                                "only.", "integer", 0, 0, _TOKENS, 0, 20),
    "distinct": Control("distinct", "Distinct tokens", "", "Tokens that occur in one class only: they tell it.",
                        "integer", 10, 0, _TOKENS, 0, 40),
    "common_weight": Control("common_weight", "Weight of common tokens", "", "How often a common token occurs, against "
                             "1 for the most frequent distinct one.", "number", 1.0, 1e-6, 1e6, 0.1, 10.0, log=True),
    "distinct_weights": Control("distinct_weights", "Weights of distinct tokens", "", "One number per distinct token; "
                                "left out: evenly from 0.1 to 1.", "text", None, words={"none": "even"}),
    "unused": Control("unused", "Unused tokens", "", "Tokens in no context, which make the vocabulary larger.",
                      "integer", 0, 0, _TOKENS, 0, 2000),
    "vocab": Control("vocab", "Vocabulary", "M", "Number of tokens.", "integer", 1000, 3, _TOKENS, 50, 2000, log=True),
    "classes": Control("classes", "Classes", "K", "Next tokens to tell apart; they share one query.", "integer", 10, 1,
                       _CLASSES, 2, 20),
    "exponent": Control("exponent", "Zipf exponent", "", "Word frequencies fall as rank to minus this.", "number", 1.0,
                        0.0, 10.0, 0.0, 2.0),
    "overlap": Control("overlap", "Overlap", "", "Share of the probability on common tokens.", "number", 0.5, 0.0, 1.0,
                       0.0, 1.0),
    "seed": Control("seed", "Shuffle", "", "Which token has which frequency.", "integer", 0, 0, 2**53 - 1),
}  # fmt: skip

CLASS_PRESETS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "syn-small": ("Syn-Small", "Two classes with a query each, 10 common and 10 distinct tokens: the paper's Figures "
                  "4 and 5.", ()),
    "syn-medium": ("Syn-Medium", "Some queries with two next tokens each, 10 common tokens for all: the paper's "
                   "Figures 6, 11 and 12.", ("n_queries",)),
    "textbook": ("Textbook", "Two classes, one query, one common token, a vocabulary of two thousand: what the "
                 "theorems assume.", ()),
    "synthetic": ("Synthetic", "The paper's generator with every knob.",
                  ("n_queries", "next_per_query", "common", "common_per_query", "distinct", "common_weight",
                   "distinct_weights", "unused")),
    "zipf": ("Zipf", "Word-like frequencies; classes share half of their probability on common words.",
             ("vocab", "classes", "exponent", "overlap", "seed")),
}  # fmt: skip


def class_presets() -> list[dict[str, Any]]:
    """The class presets and their knobs, for the page."""
    return [{"name": name, "title": title, "explain": explain, "knobs": [KNOBS[knob].to_dict() for knob in knobs]}
            for name, (title, explain, knobs) in CLASS_PRESETS.items()]  # fmt: skip

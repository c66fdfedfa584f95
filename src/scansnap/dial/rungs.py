"""The rungs between the YZ model and a transformer, declared once; a model is a set of flags, not a class.

Order matters, so each rung is taken three ways: ``alone`` (the YZ model and this rung), ``cumulative`` (all rungs up to
it) and ``without`` (the full model less this rung). ``control`` is ``alone`` on next tokens that say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from scansnap.checks import InputError, check_choice, check_integer, digits
from scansnap.dynamics.norms import NORMS

WAYS = ("alone", "cumulative", "without", "control")
OPTIMIZERS = ("sgd", "adamw")  # every rung with both
POSITIONS = ("none", "absolute", "rope", "alibi")
PRENORMS = ("none", "layernorm", "rmsnorm")
MLPS = ("none", "linear", "relu", "gelu")
DECAYS = ("none", "y", "z", "both")
# from logits (…, S) and the ln of how often each key counts to weights (…, S)
ATTENTIONS: dict[str, Callable[[Any, Any], Any]] = {"softmax": lambda logits, counts: (logits + counts).softmax(-1)}
WIDTH = 32  # of the embeddings, below the vocabulary's 79
HEADS = 2


@dataclass(frozen=True)
class Flags:
    """A model between the two ends; the default is the paper's (T = ∞, l2 norm, Y and Z as they are)."""

    norm: str = "l2"  # of what attention read; rms has a trained gain
    finite: bool = False  # T = 64 and mini-batches instead of the expectation at T = ∞
    every_position: bool = False  # every token is a query and has a loss
    shared_next: bool = False  # the queries share their next tokens
    width: int | None = None  # embeddings of this dimension; None: tokens are unit vectors
    separate: bool = False  # W_Q, W_K, W_V, W_O and a trained embedding instead of Z and Y
    residual: bool = False
    positions: str = "none"
    heads: int = 1
    prenorm: str = "none"
    mlp: str = "none"
    decay: str = "none"  # of which tables
    masked: bool = False  # a mask at the end asks for the next token, and attention sees both sides
    layers: int = 1
    attention: str = "softmax"
    bos: bool = False  # a first token that is always the same

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, (*NORMS, "rms"))
        check_choice("positions", self.positions, POSITIONS)
        check_choice("prenorm", self.prenorm, PRENORMS)
        check_choice("mlp", self.mlp, MLPS)
        check_choice("decay", self.decay, DECAYS)
        check_choice("attention", self.attention, ATTENTIONS)
        check_integer("heads", self.heads, least=1, most=64)
        check_integer("layers", self.layers, least=1, most=12)
        if self.width is not None:
            check_integer("width", self.width, least=2, most=1024)
        for name in ("every_position", "bos"):
            if getattr(self, name) and not self.finite:
                raise InputError(name, True, "left out where T = ∞, which has no positions (set finite)")
        if self.positions != "none" and not self.finite:
            raise InputError("positions", self.positions, "none where T = ∞, which has no positions (set finite)")
        if self.layers > 1 and not self.finite:
            raise InputError("layers", self.layers, "1 where T = ∞: a second layer reads positions (set finite)")

    @property
    def sequences(self) -> bool:
        """Whether positions must be spelt out: else the counts of tokens say all."""
        return self.every_position or self.positions != "none" or self.layers > 1 or self.bos

    @property
    def asking(self) -> str:
        """Which queries are computed: of counts, of the last position, or of every one."""
        every = self.every_position or self.layers > 1
        return "every" if every else "last" if self.sequences else "counts"


@dataclass(frozen=True)
class Rung:
    """One assumption of the paper that is given up.

    title       what it changes, as ``scansnap dial --list`` says it
    choices     what it may be changed to, by name; the first one stands in cumulative and full models
    needs       flags without which it means nothing, set with it when it is alone
    optimizers  those it is measured with
    """

    name: str
    title: str
    choices: dict[str, dict[str, Any]] = field(hash=False)
    needs: dict[str, Any] = field(default_factory=dict, hash=False)
    optimizers: tuple[str, ...] = OPTIMIZERS


RUNGS: dict[str, Rung] = {
    rung.name: rung
    for rung in (
        Rung("yz", "nothing: Y, Z, l2 norm, the expectation over classes at T = ∞", {"": {}}),
        Rung("norm", "the norm of what attention read: none, layernorm, or RMS with a trained gain",
             {name: {"norm": name} for name in ("none", "layernorm", "rms")}),
        Rung("finite", "contexts of T = 64 (quick: 24) and mini-batches", {"": {"finite": True}}),
        Rung("every-position", "every token is a query, in chains of classes; the one at the end has half of the loss",
             {"": {"every_position": True}}, {"finite": True}),
        Rung("shared-next", "the queries share their next tokens", {"": {"shared_next": True}}),
        Rung("embedding", f"fixed random embeddings of dimension {WIDTH} < M, with Y and Z between them",
             {"": {"width": WIDTH}}),
        Rung("separate", "W_Q, W_K, W_V, W_O and a trained, tied embedding", {"": {"separate": True}}),
        Rung("residual", "norm(c + e_m) with Y and Z, around the values with W_V, W_O", {"": {"residual": True}}),
        Rung("positions", "RoPE, absolute embeddings or ALiBi",
             {name: {"positions": name} for name in ("rope", "absolute", "alibi")}, {"finite": True}),
        Rung("heads", "two heads", {"": {"heads": HEADS}}),
        Rung("prenorm", "a norm before attention and MLP (and at the end of a residual stream), without gains",
             {name: {"prenorm": name} for name in ("layernorm", "rmsnorm")}),
        Rung("mlp", "an MLP, four times as wide", {name: {"mlp": name} for name in ("gelu", "relu", "linear")}),
        Rung("optimizer", "momentum, Adam, sign or Muon (SGD and AdamW are in all rungs)", {"": {}},
             optimizers=("momentum", "adam", "sign", "muon")),
        Rung("decay", "decay of all, Y's or Z's matrices: a factor e over the run where nothing drives them",
             {name: {"decay": name} for name in ("both", "y", "z")}),
        Rung("masked", "a mask at the end asks for the next token and sees both sides; in chains 15% of all",
             {"": {"masked": True}}),
        Rung("layers", "two layers: one of Y and Z hands on what it read, f + fY; the first one is read",
             {"": {"layers": 2}}, {"finite": True, "residual": True}),
    )
}  # fmt: skip
LADDER = tuple(RUNGS)  # the sixteen, in their order; rungs of one's own are taken alone and on top of the full model


def register_rung(rung: Rung) -> None:
    """Make a rung known by its name to the dial; its flags are checked at once."""
    if not isinstance(rung, Rung):
        raise InputError("rung", rung, "a scansnap.dial.Rung")
    if rung.name in RUNGS or ":" in rung.name or not rung.name:
        raise InputError("the name of the rung", rung.name, "new, and without a colon")
    for sets in rung.choices.values():
        _with(Flags(), {**rung.needs, **sets})
    RUNGS[rung.name] = rung


def register_attention(name: str, attend: Callable[[Any, Any], Any]) -> None:
    """Make a way from attention logits to weights known by its name, for a rung of one's own."""
    if name in ATTENTIONS or not callable(attend):
        raise InputError("the name of the attention", name, "new, of a function: not one of " + ", ".join(ATTENTIONS))
    ATTENTIONS[name] = attend


def find(name: str) -> tuple[Rung, str]:
    """A rung and one of its choices from ``norm``, ``norm:none`` or the rung's number."""
    if not isinstance(name, str):
        raise InputError("rung", name, "a name such as norm or norm:none")
    first, _, chosen = name.partition(":")
    number = digits(first)
    if number is not None and number < len(LADDER):
        first = LADDER[number]
    if first not in RUNGS:
        raise InputError("rung", name, "one of " + ", ".join(RUNGS))
    rung = RUNGS[first]
    chosen = chosen or next(iter(rung.choices))
    if chosen not in rung.choices:
        allowed = ", ".join(f"{first}:{one}" for one in rung.choices if one) or first
        raise InputError("rung", name, f"one of {allowed}")
    return rung, chosen


def label(rung: Rung, chosen: str) -> str:
    """How a rung is called in tables, files and on the command line."""
    return f"{rung.name}:{chosen}" if chosen else rung.name


def flags_of(name: str, way: str) -> Flags:
    """The model of a rung taken one of the ways."""
    rung, chosen = find(name)
    sets = rung.choices[chosen]
    check_choice("way", way, WAYS)
    if way in ("alone", "control"):
        return _with(Flags(), {**rung.needs, **sets})
    own = rung.name not in LADDER
    below = LADDER if own or way == "without" else LADDER[: LADDER.index(rung.name)]
    merged: dict[str, Any] = {}
    for each in below:
        if way == "cumulative" or each != rung.name:
            merged |= next(iter(RUNGS[each].choices.values()))
    if way == "without":
        if rung.name == "finite":
            raise InputError("way", way, "alone or cumulative for the rung finite, on which all later ones rest")
        if rung.name == "yz":
            raise InputError("way", way, "alone for the rung yz: there is nothing without it")
        return _with(Flags(), merged)
    return _with(Flags(), merged | sets)


def plan(quick: bool = False) -> Iterator[tuple[str, str, str]]:
    """All (rung, way, optimiser) of the table.

    A quick one has the first choice of each rung, fewer controls, and optimisers of their own rung alone only.
    """
    for way in WAYS:
        for rung in RUNGS.values():
            for i, chosen in enumerate(rung.choices):
                extra = i > 0 and (quick or way != "alone")
                idle = rung.name == "yz" and way in ("cumulative", "without")
                idle |= rung.name == "finite" and way == "without"
                idle |= rung.name == "optimizer" and way == "cumulative" and quick
                idle |= way == "control" and (rung.name == "optimizer" or (quick and rung.name not in QUICK_CONTROLS))
                if extra or idle:
                    continue
                both = way == "without" and rung.name == "optimizer"  # the full model: with the two of all rungs
                for optimizer in OPTIMIZERS if both else rung.optimizers:
                    yield label(rung, chosen), way, optimizer


QUICK_CONTROLS = ("yz", "finite", "separate")


def _with(flags: Flags, sets: dict[str, Any]) -> Flags:
    known = Flags.__dataclass_fields__
    for name, value in sets.items():
        if name not in known:
            raise InputError(f"the flag {name!r}", value, "one of " + ", ".join(known))
    return replace(flags, **sets)

"""The components between the YZ model and a transformer, declared once; a model is a set of flags, not a class.

Order matters, so each component is measured in three modes: ``single`` (the YZ model and this component),
``cumulative`` (all components up to it) and ``leave_one_out`` (the full model without it). ``control`` is ``single``
with next tokens that the context does not determine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from scansnap.checks import InputError, check_choice, check_integer, digits
from scansnap.dynamics.norms import NORMS

MODES = ("single", "cumulative", "leave_one_out", "control")
OPTIMIZERS = ("sgd", "adamw")  # every component is measured with both
POSITIONS = ("none", "absolute", "rope", "alibi")
PRENORMS = ("none", "layernorm", "rmsnorm")
MLPS = ("none", "linear", "relu", "gelu")
DECAYS = ("none", "y", "z", "both")
# logits (…, S) and ln of how often each key counts → weights (…, S)
ATTENTIONS: dict[str, Callable[[Any, Any], Any]] = {"softmax": lambda logits, counts: (logits + counts).softmax(-1)}
WIDTH = 32  # of the embeddings, below the vocabulary's 79
HEADS = 2


@dataclass(frozen=True)
class Flags:
    """A model between the YZ model and a transformer. The defaults are the paper's model.

    Parameters
    ----------
    norm
        Norm of the attended value; ``"rms"`` has a trained gain.
    finite
        Whether to sample mini-batches of sequences of T = 64 tokens, instead of the expectation at T = ∞.
    every_position
        Whether every position is a query with a loss.
    shared_next
        Whether queries share their next tokens.
    width
        Width of the embeddings; None for unit vectors.
    separate
        Whether to train W_Q, W_K, W_V, W_O and an embedding instead of Z and Y.
    residual
        Whether to add the input of a layer to its output.
    positions, prenorm, mlp, attention
        Kinds of position encoding, norm before each layer, feed-forward layer and attention.
    heads, layers
        Numbers of heads and layers.
    decay
        The tables with weight decay.
    masked
        Whether a mask token replaces the target, with attention to both sides.
    bos
        Whether every sequence begins with the same token.

    Examples
    --------
    >>> Flags(finite=True, positions="rope").sequences
    True
    """

    norm: str = "l2"
    finite: bool = False
    every_position: bool = False
    shared_next: bool = False
    width: int | None = None
    separate: bool = False
    residual: bool = False
    positions: str = "none"
    heads: int = 1
    prenorm: str = "none"
    mlp: str = "none"
    decay: str = "none"
    masked: bool = False
    layers: int = 1
    attention: str = "softmax"
    bos: bool = False

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
                raise InputError(name, True, "False where T = ∞, which has no positions", "set finite")
        if self.positions != "none" and not self.finite:
            raise InputError("positions", self.positions, "none where T = ∞, which has no positions", "set finite")
        if self.layers > 1 and not self.finite:
            raise InputError("layers", self.layers, "1 where T = ∞, which has no positions", "set finite")

    @property
    def sequences(self) -> bool:
        """Whether the model reads sequences; otherwise the counts of tokens are enough."""
        return self.every_position or self.positions != "none" or self.layers > 1 or self.bos

    @property
    def asking(self) -> str:
        """Which queries are computed: ``counts`` (one for each sequence), ``last`` or ``every`` position."""
        every = self.every_position or self.layers > 1
        return "every" if every else "last" if self.sequences else "counts"


@dataclass(frozen=True)
class Component:
    """A component of a transformer that replaces an assumption of the paper.

    Parameters
    ----------
    name
        Its name on the command line and in tables.
    title
        What it changes, as ``scansnap dial --list`` shows it.
    choices
        Fields of `Flags` by the name of each choice. The first choice is part of cumulative and full models.
    needs
        Fields of `Flags` that the component requires in mode ``single``.
    optimizers
        Optimisers that it is measured with.

    Examples
    --------
    >>> component = Component("two-heads", "two heads", {"": {"heads": 2}})
    >>> component.optimizers
    ('sgd', 'adamw')
    """

    name: str
    title: str
    choices: dict[str, dict[str, Any]] = field(hash=False)
    needs: dict[str, Any] = field(default_factory=dict, hash=False)
    optimizers: tuple[str, ...] = OPTIMIZERS


COMPONENTS: dict[str, Component] = {
    component.name: component
    for component in (
        Component("yz", "nothing: Y, Z, l2 norm, the expectation over classes at T = ∞", {"": {}}),
        Component("norm", "the norm after attention: none, layernorm, or RMS with a trained gain",
                  {name: {"norm": name} for name in ("none", "layernorm", "rms")}),
        Component("finite", "contexts of T = 64 (quick: 24) and mini-batches", {"": {"finite": True}}),
        Component("every-position",
                  "every token is a query, in chains of classes; the last has half of the loss",
                       {"": {"every_position": True}}, {"finite": True}),
        Component("shared-next", "the queries share their next tokens", {"": {"shared_next": True}}),
        Component("embedding", f"fixed random embeddings of dimension {WIDTH} < M, with Y and Z between them",
                  {"": {"width": WIDTH}}),
        Component("separate", "W_Q, W_K, W_V, W_O and a trained, tied embedding", {"": {"separate": True}}),
        Component("residual", "norm(c + e_m) with Y and Z, around the values with W_V, W_O", {"": {"residual": True}}),
        Component("positions", "RoPE, absolute embeddings or ALiBi",
                  {name: {"positions": name} for name in ("rope", "absolute", "alibi")}, {"finite": True}),
        Component("heads", "two heads", {"": {"heads": HEADS}}),
        Component("prenorm", "a norm before attention and MLP (and at the end of a residual stream), without gains",
                  {name: {"prenorm": name} for name in ("layernorm", "rmsnorm")}),
        Component("mlp", "an MLP, four times as wide", {name: {"mlp": name} for name in ("gelu", "relu", "linear")}),
        Component("optimizer", "momentum, Adam, sign or Muon (SGD and AdamW are in all components)", {"": {}},
                  optimizers=("momentum", "adam", "sign", "muon")),
        Component("decay", "decay of all, Y's or Z's matrices: a factor e over the run where nothing drives them",
                  {name: {"decay": name} for name in ("both", "y", "z")}),
        Component("masked", "masks replace the targets (the last token; in chains 15% of all) and attend to both sides",
                  {"": {"masked": True}}),
        Component("layers", "two layers: a layer of Y and Z passes on f + fY; the first layer is measured",
                  {"": {"layers": 2}}, {"finite": True, "residual": True}),
    )
}  # fmt: skip
BUILT_IN = tuple(COMPONENTS)  # in their order; registered ones are added to the full model
QUICK_CONTROLS = ("yz", "finite", "separate")


def register_component(component: Component) -> None:
    """Add a component to the study under its name.

    Parameters
    ----------
    component
        The component. Its flags are checked at once.

    Examples
    --------
    >>> register_component(Component("four-heads", "four heads", {"": {"heads": 4}}))
    >>> del COMPONENTS["four-heads"]
    """
    if not isinstance(component, Component):
        raise InputError("component", component, "a scansnap.dial.Component")
    if component.name in COMPONENTS or ":" in component.name or not component.name:
        raise InputError("name", component.name, "a new name without a colon")
    for flags in component.choices.values():
        _with(Flags(), {**component.needs, **flags})
    COMPONENTS[component.name] = component


def register_attention(name: str, attend: Callable[[Any, Any], Any]) -> None:
    """Add a function from attention logits to attention weights, for the flag ``attention`` of a component.

    Parameters
    ----------
    name
        The new name.
    attend
        Takes logits (…, S) and the logarithm of how often each key counts, and returns weights (…, S).

    Examples
    --------
    >>> register_attention("identity", lambda logits, counts: logits)
    >>> del ATTENTIONS["identity"]
    """
    if name in ATTENTIONS or not callable(attend):
        raise InputError("name", name, "a new name, of a function", "known are " + ", ".join(ATTENTIONS))
    ATTENTIONS[name] = attend


def find_component(name: str) -> tuple[Component, str]:
    """A component and one of its choices from ``norm``, ``norm:none`` or the component's number."""
    if not isinstance(name, str):
        raise InputError("component", name, "a name such as norm or norm:none")
    first, _, choice = name.partition(":")
    number = digits(first)
    if number is not None and number < len(BUILT_IN):
        first = BUILT_IN[number]
    if first not in COMPONENTS:
        raise InputError("component", name, "one of " + ", ".join(COMPONENTS))
    component = COMPONENTS[first]
    choice = choice or next(iter(component.choices))
    if choice not in component.choices:
        allowed = ", ".join(f"{first}:{each}" for each in component.choices if each) or first
        raise InputError("component", name, f"one of {allowed}")
    return component, choice


def label(component: Component, choice: str) -> str:
    """How a component is called in tables, files and on the command line."""
    return f"{component.name}:{choice}" if choice else component.name


def flags_of(name: str, mode: str) -> Flags:
    """The model of a component in a mode."""
    component, choice = find_component(name)
    flags = component.choices[choice]
    check_choice("mode", mode, MODES)
    if mode in ("single", "control"):
        return _with(Flags(), {**component.needs, **flags})
    is_own = component.name not in BUILT_IN
    below = BUILT_IN if is_own or mode == "leave_one_out" else BUILT_IN[: BUILT_IN.index(component.name)]
    merged: dict[str, Any] = {}
    for each in below:
        if mode == "cumulative" or each != component.name:
            merged |= next(iter(COMPONENTS[each].choices.values()))
    if mode == "leave_one_out":
        if component.name == "finite":
            raise InputError("mode", mode, "single or cumulative for finite, which all later components need")
        if component.name == "yz":
            raise InputError("mode", mode, "single for yz, which changes nothing")
        return _with(Flags(), merged)
    return _with(Flags(), merged | flags)


def plan(quick: bool = False) -> Iterator[tuple[str, str, str]]:
    """All (component, mode, optimiser) of the table.

    A quick table has the first choice of each component, fewer controls, and other optimisers in mode ``single`` only.
    """
    for mode in MODES:
        for component in COMPONENTS.values():
            is_idle = (
                (component.name == "yz" and mode in ("cumulative", "leave_one_out"))
                or (component.name == "finite" and mode == "leave_one_out")
                or (component.name == "optimizer" and mode == "cumulative" and quick)
                or (mode == "control" and component.name == "optimizer")
                or (mode == "control" and quick and component.name not in QUICK_CONTROLS)
            )
            for i, choice in enumerate(component.choices):
                if is_idle or (i > 0 and (quick or mode != "single")):
                    continue
                is_full_model = mode == "leave_one_out" and component.name == "optimizer"
                for optimizer in OPTIMIZERS if is_full_model else component.optimizers:
                    yield label(component, choice), mode, optimizer


def _with(flags: Flags, values: dict[str, Any]) -> Flags:
    known = Flags.__dataclass_fields__
    for name, value in values.items():
        if name not in known:
            raise InputError(name, value, "a field of Flags", "they are " + ", ".join(known))
    return replace(flags, **values)

"""The set-up of a run and its classes, as they are asked for and as they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, WrapValidator, create_model

from scansnap.explorer.controls import CONTROLS, class_presets
from scansnap.explorer.messages.fields import Asked, Checked, Number, Said
from scansnap.explorer.protocol import LIMITS

Token = Annotated[int, Field(ge=0)]


class BarsOfClass(Asked):
    """A class by weights, which need not sum to 1."""

    query: Token
    """The last token of its sequences."""
    next_token: Token
    """What follows."""
    p_class: Annotated[float, Field(ge=0)] | None = None
    """How often the class occurs, unnormalised; for all classes or none."""
    tokens: list[Token]
    """Tokens of its context."""
    weights: list[Annotated[float, Field(ge=0)]]
    """How often each of them occurs, unnormalised."""


class Bars(Asked):
    """Classes by weights per token and class."""

    vocab_size: Annotated[int, Field(ge=1, le=int(LIMITS["tokens"]))]
    """M."""
    words: dict[str, str] | None = None
    """How tokens read, by their number; the others read as their number."""
    classes: Annotated[list[BarsOfClass], Field(min_length=1, max_length=int(LIMITS["classes"]))]
    """One entry per class."""


class ClassesByPreset(Asked):
    """A preset of the catalogue; its settings stand beside it."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "properties": {
                "preset": {"enum": [row["name"] for row in class_presets()]},
                **{k["name"]: {"type": ["integer", "number"]} for row in class_presets() for k in row["knobs"]},
            }
        },
    )
    preset: str


class ClassesByToml(Asked):
    """The text of a classes file, or of a run file, whose [run] table then gives defaults for the other keys."""

    toml: str
    """As ``scansnap run`` reads it; of several runs, the first."""


class ClassesByBars(Asked):
    """Weights drawn by hand."""

    bars: Bars
    """The bars of any set-up are in the ``classes`` of a check or run: tokens and p."""


class ClassesByText(Asked):
    """A text whose words are counted: a class is a pair of words that it has twice or more."""

    text: Annotated[str, Field(max_length=int(LIMITS["text_characters"]))]
    """Sentences end at . ! ? and at the end of a line."""
    pairs: list[tuple[str, str]] | None = None
    """The classes, as pairs of last word and next word; left out: up to six of the most frequent."""


def _described(control: Any) -> Any:
    """A field of the set-up. It is read, with everything that joins fields, in ``setups.read``."""
    kind = Checked(lambda name, value: control.check(value), control.schema())
    return Annotated[Any, kind], Field(control.default, description=control.explain)


_FIELDS: dict[str, Any] = {control.name: _described(control) for control in CONTROLS}
Setup = create_model(
    "Setup",
    __base__=Asked,
    __doc__="Everything a run is made of; all keys but ``classes`` are optional, unknown ones are refused.",
    classes=(ClassesByPreset | ClassesByToml | ClassesByBars | ClassesByText, Field(description="What the data is.")),
    **_FIELDS,
)


if TYPE_CHECKING:
    SetupJson = dict[str, Any]
else:
    SetupJson = Annotated[Setup, WrapValidator(lambda value, _: value)]  # described here, read in ``setups.read``


class ClassSaid(Said):
    """One class as it runs."""

    query: int
    """ψ, the last token."""
    next_token: int
    """m(n), what follows."""
    p_class: float
    """How often the class occurs."""
    tokens: list[int]
    """Tokens of its context, ascending."""
    p: list[float]
    """P(l|n) of each."""
    kinds: list[Literal["distinct", "common"]]
    """Among all classes."""
    local: list[Literal["distinct", "common"]]
    """Among the classes of the same query."""
    dominant: int | None
    """The distinct token that leads at step 0."""


class ClassesSaid(Said):
    """The classes of a set-up."""

    vocab_size: int
    """M."""
    n_classes: int
    """K."""
    queries: list[int]
    """Tokens that are queries."""
    common: list[int]
    """Tokens of more than one class."""
    classes: list[ClassSaid]
    """One entry per class."""
    words: dict[str, str] | None
    """How tokens read."""


class AssumptionSaid(Said):
    """One assumption of the theorems, held against the set-up."""

    name: str
    statement: str
    value: Number
    threshold: Number
    met: bool
    note: str


class TheorySaid(Said):
    """What the theory says of a set-up before it runs."""

    applies: bool
    """Whether the theorems speak of this run."""
    why: str
    """The reason where they do not."""
    eta_y: Number
    """Effective rate: η/(1 − μ)."""
    eta_z: Number
    """Effective rate: η/(1 − μ)."""
    ratio: Number
    """η_Y/η_Z."""
    t_scan: Number
    """t₀′ in steps."""
    t_snap: Number
    """t₀ in steps."""
    c0: Number
    """C₀, from the overlaps of the classes at Z = 0."""
    clock: str
    """One sentence on steps and t."""
    assumptions: list[AssumptionSaid]
    """Empty where a rate is 0."""

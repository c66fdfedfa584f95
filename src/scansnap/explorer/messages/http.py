"""HTTP: the bodies of requests, and answers about set-ups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from scansnap.checks import choice
from scansnap.explorer.messages.fields import ANYTHING, C0, Asked, Checked, Number, Said, within
from scansnap.explorer.messages.setups import ClassesByBars, ClassesByText, ClassesSaid, SetupJson, TheorySaid
from scansnap.explorer.protocol import LIMITS

_Series = list[Number]
_PATHS = ("flow", "response")
PATH = Checked(lambda name, value: choice(name, value, _PATHS), {"enum": list(_PATHS)})
_View = Literal["attention", "heatmap", "z", "loss", "entropy", "growth", "y", "claims"]


class Refusal(Said):
    """Why a request is not served."""

    field: str
    """The control to show it at."""
    message: str
    """One sentence: the field, its value, and what is allowed."""


# --- requests --------------------------------------------------------------------------------------------------------


class CurvesAsked(Asked):
    """Closed forms on a grid from 0 to ``last``, dense at the start."""

    setup: SetupJson
    last: Annotated[int, within(1, LIMITS["steps"])]
    """Last step of the grid."""
    points: Annotated[int, within(2, LIMITS["points"])] = 200
    """How many steps of it."""
    c0: Annotated[float | None, C0] = None
    """C₀; left out, from the overlaps of the classes at Z = 0: 1/C₀ = mean over n of Σ_{n'≠n} (f_nᵀf_n')²."""


class FlowAsked(Asked):
    """The T → ∞ flow from Y = Z = 0 at the effective rates, or what attention does of it to first order."""

    setup: SetupJson
    last: Annotated[int, within(1, LIMITS["steps"])]
    """Last step of the grid."""
    points: Annotated[int, within(2, 200)] = 100
    """How many steps of it."""
    by: Annotated[str, PATH] = "flow"
    """``flow``: integrated exactly; ``response``: the linear response around frozen attention."""


class WordsAsked(Asked):
    """A text to count words in."""

    text: Annotated[Any, ANYTHING] = None
    """As it was pasted."""
    pairs: Annotated[Any, ANYTHING] = None
    """The pairs chosen as classes; left out: the server chooses."""


# --- answers ---------------------------------------------------------------------------------------------------------


class ControlSaid(Said):
    """One value a user can set."""

    model_config = ConfigDict(extra="allow")
    name: str
    label: str
    symbol: str
    explain: str
    """One line on what it does."""
    kind: Literal["number", "integer", "choice", "flag", "text"]
    default: Any
    least: Number
    """Refused below; null: nothing is."""
    most: Number
    """Refused above."""
    low: Number
    """Lower end of the slider; null: there is none."""
    high: Number
    """Upper end of the slider."""
    log: bool
    """Whether the slider is logarithmic."""
    options: list[str] | None
    words: dict[str, str]
    """Values allowed besides numbers, and how they read."""
    live: bool
    """May change in the middle of a run."""


class PresetSaid(Said):
    """A set-up to start from."""

    name: str
    title: str
    question: str = ""
    """Headline over the run, where it has one."""
    commentary: str
    setup: SetupJson


class ClassPresetSaid(Said):
    """Classes to start from, and their settings."""

    name: str
    title: str
    explain: str
    knobs: list[ControlSaid]


class Catalogue(Said):
    """Everything there is to set."""

    version: str
    limits: dict[str, float]
    controls: list[ControlSaid]
    presets: list[PresetSaid]
    class_presets: list[ClassPresetSaid]
    default: SetupJson
    """Of the first run."""
    probe: bool
    """Whether a probe's file, or a folder of them, was given at start; the report is at /probe."""


class Scene(Said):
    """One scene of the tour."""

    name: str
    title: str
    commentary: str
    setup: SetupJson
    seconds: float
    """How long it plays, paced by ln(t + 1)."""
    watch: list[_View]
    """Views to look at."""
    overlay: SetupJson | None
    """Set-up of a second run to pin for comparison."""
    until: int
    """The step where it pauses."""
    question: str
    answer: str
    changes: Annotated[dict[str, Any], Field(alias="try")]
    """Changes of the set-up that answer the question."""
    at: int | None
    """The step they are made at, in the middle of the scene's run; null: a new run."""


class Tour(Said):
    """The guided tour."""

    scenes: list[Scene]


class Health(Said):
    """Whether the server is well."""

    ok: bool
    version: str
    runs: int
    workers: int
    memory: int
    """Bytes planned for all runs."""


class CheckSaid(Said):
    """What a set-up means."""

    setup: SetupJson
    """Every key filled in."""
    classes: ClassesSaid
    theory: TheorySaid
    memory: int
    """Bytes the run needs, from above."""
    frame_floats: int
    engine: Literal["fused", "general"]
    """The compiled kernel, or torch."""
    note: str
    """What of a file the page does not show; empty: nothing."""


class PairSaid(Said):
    """Two words that follow each other twice or more."""

    query: str
    """The last word."""
    next: str
    """The next word."""
    count: int
    """How often."""
    chosen: bool
    """Whether it is a class."""


class WordsSaid(Said):
    """What a text gives to make classes of."""

    words: int
    """In the text."""
    different: int
    sentences: int
    pairs: list[PairSaid]
    """The most frequent first, some 60 of them at most; those chosen are always here."""
    classes: ClassesByText | ClassesByBars | None
    """For a set-up: the text or the counts, whichever is shorter to share; null where the pairs make no classes."""
    refusal: str
    """Why they make none, in one sentence."""


class CurvesSaid(Said):
    """Closed forms. The theory's t counts batch-size-1 SGD steps. A step on the mean gradient of a mini-batch moves as
    far as one of those, so t = step, whatever the batch; momentum μ acts as both rates divided by 1 − μ."""

    t: list[float]
    growth: list[_Series]
    """Per class: p_n · ¼ ln(1 + 4Γ/C₀)."""
    chi_lower: list[_Series]
    """Per class, as ln χ."""
    chi_upper: list[_Series]
    """Per class, as ln χ."""
    gamma: _Series
    t_scan: Number
    t_snap: Number
    c0: Number


class MapSaid(Said):
    """Where attention ends up over the rates: 81 runs that differ in η_Y and η_Z only."""

    eta_y: list[float]
    """Rates of the rows."""
    eta_z: list[float]
    """Rates of the columns."""
    share: list[_Series]
    """Attention on common tokens, mean over classes weighted by their probability; null where the run diverged."""
    failed_step: list[list[int | None]]
    """The step where the numbers left the float range."""
    step: int
    """What was reached; less than ``steps`` where the time was over."""
    steps: int
    """The last step of the run."""
    seconds: float
    """What it took."""


class FlowSaid(Said):
    """The flow, or the response as far as it is trusted, in the layout of the frames."""

    t: list[float]
    loss: _Series
    """The response has none."""
    entropy: list[_Series]
    """Per class."""
    log_chi: list[_Series]
    """Per class."""
    growth: list[_Series]
    """Per class."""
    attention: list[list[_Series]]
    """Per class and token."""
    z: list[list[_Series]]
    """Per query and token."""
    trusted_until: Number
    """The step from which the response leaves out more than a tenth; null of the flow, which leaves out nothing."""
    seconds: float
    """What it took."""

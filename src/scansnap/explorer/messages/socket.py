"""The WebSocket: what a page may ask of its run, and what it is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from scansnap.checks import InputError, whole
from scansnap.explorer.controls import BY_NAME
from scansnap.explorer.messages.fields import ANYTHING, FLAG, MOMENT, SPEED, Asked, Checked, Said, within
from scansnap.explorer.messages.setups import ClassesSaid, SetupJson, TheorySaid
from scansnap.explorer.protocol import LIMITS


def _rate(name: str, value: Any) -> float | None:
    return None if value is None else float(BY_NAME[name].check(value))


_RATE = Checked(_rate, {"anyOf": [BY_NAME["eta_y"].schema(), {"type": "null"}]})


def _marks(name: str, value: Any) -> list[dict[str, Any]]:
    """Changes of the rates, each later than the one before."""
    if not isinstance(value, list) or len(value) > LIMITS["marks"]:
        raise InputError(name, value, f"a list of at most {LIMITS['marks']} changes of the rates")
    marks: list[dict[str, Any]] = []
    for given in value:
        if not isinstance(given, dict) or set(given) != {"step", "eta_y", "eta_z"}:
            raise InputError(name, given, "an object with step, eta_y and eta_z")
        least = marks[-1]["step"] + 1 if marks else 0
        step = whole(name, given["step"], least=least, most=int(LIMITS["steps"]))
        marks.append({"step": step, **{rate: float(BY_NAME[rate].check(given[rate])) for rate in ("eta_y", "eta_z")}})
    return marks


_MARKS = Checked(_marks, {"type": "array", "maxItems": LIMITS["marks"], "items": {
    "type": "object", "required": ["step", "eta_y", "eta_z"], "properties": {
        "step": {"type": "integer", "minimum": 0, "maximum": LIMITS["steps"]},
        "eta_y": BY_NAME["eta_y"].schema(), "eta_z": BY_NAME["eta_z"].schema()}}})  # fmt: skip

# --- client to server ------------------------------------------------------------------------------------------------


class Start(Asked):
    """Makes a run; one that the socket had is closed, unless the set-up is refused."""

    op: Literal["start"]
    setup: SetupJson
    """What to run."""
    speed: Annotated[float | None, SPEED] = None
    """Steps per second, or "max"."""
    play: Annotated[bool, FLAG] = True
    """Whether it begins at once."""
    marks: Annotated[list[dict[str, Any]], _MARKS] = Field(default_factory=list)
    """Changes of the rates on the way, as they were told of another run: this one passes them at the same steps."""


class Attach(Asked):
    """Takes up a run after a dropped connection. The frames after ``since`` follow (flag REPLAY, at the end LAST), then
    what is new. A socket that had the run is told "closed"."""

    op: Literal["attach"]
    run: Annotated[Any, ANYTHING] = None
    """Its id."""
    since: Annotated[int, within(-1, 2**32 - 1)] = -1
    """The last step the page has."""


class Play(Asked):
    """Goes on; at the last step it changes nothing: extend first."""

    op: Literal["play"]


class Pause(Asked):
    """Stops where it is."""

    op: Literal["pause"]


class Step(Asked):
    """Pauses and advances. While that takes time the state is "running", a pause or reset ends it, and step, rates,
    extend and play wait their turn behind it."""

    op: Literal["step"]
    n: Annotated[int, within(1, LIMITS["single_steps"])] = 1
    """How many steps."""


class Speed(Asked):
    """How fast it plays."""

    op: Literal["speed"]
    speed: Annotated[float | None, SPEED] = None
    """Steps per second, or "max"."""


class Rates(Asked):
    """New rates from the current step on; either or both."""

    op: Literal["rates"]
    eta_y: Annotated[float | None, _RATE] = None
    """η_Y."""
    eta_z: Annotated[float | None, _RATE] = None
    """η_Z."""

    @model_validator(mode="after")
    def _one_at_least(self) -> Rates:
        if self.eta_y is None and self.eta_z is None:
            raise InputError("eta_y", None, "given, or eta_z")
        return self


class Extend(Asked):
    """A new last step."""

    op: Literal["extend"]
    steps: Annotated[int, within(1, LIMITS["steps"])]
    """Not before the current one."""


class Reset(Asked):
    """Back to step 0 with the first rates, paused."""

    op: Literal["reset"]


class AskFilm(Asked):
    """All kept frames again (flags REPLAY, RESTART, LAST)."""

    op: Literal["film"]


class AskTable(Asked):
    """The table Y, now or as it was; of several that a slow socket waits for, the last is answered."""

    op: Literal["y"]
    size: Annotated[int, within(1, LIMITS["table_size"])] = 64
    """At most size × size values; larger tables as means over blocks."""
    step: Annotated[int | None, MOMENT] = None
    """Of the kept tables the one nearest to this step, whose own step stands in the frame; left out, the newest."""


class Ping(Asked):
    """Answered by a pong."""

    op: Literal["ping"]
    id: Annotated[Any, ANYTHING] = None
    """Anything short."""


class Close(Asked):
    """Ends the run at once."""

    op: Literal["close"]


ASKED: tuple[type[Asked], ...] = (
    Start, Attach, Play, Pause, Step, Speed, Rates, Extend, Reset, AskFilm, AskTable, Ping, Close,
)  # fmt: skip
OPS: dict[str, type[Asked]] = {model.model_fields["op"].annotation.__args__[0]: model for model in ASKED}  # type: ignore[union-attr]

# --- server to client ------------------------------------------------------------------------------------------------

State = Literal["running", "paused", "done", "failed"]


class MarkSaid(Said):
    """Rates changed at this step."""

    step: int
    eta_y: float
    eta_z: float


class FrameField(Said):
    """Where a quantity lies in a frame."""

    name: str
    offset: int
    size: int


class FrameLayout(Said):
    """How to read a frame."""

    floats: int
    """Values per frame."""
    fields: list[FrameField]
    """loss, entropy, growth, log_chi, attention, z."""
    tokens: list[list[int]]
    """Per class, the order within "attention": its tokens, and the query where the model looks at it."""
    query_tokens: list[list[int]]
    """Per query, the order within "z"."""
    queries: list[int]
    """Tokens that are queries."""
    class_query: list[int]
    """Index into ``queries``, per class."""


class RunText(Said):
    """First answer to start and attach."""

    type: Literal["run"] = "run"
    run: str
    """Its id."""
    setup: SetupJson
    """Every key filled in."""
    classes: ClassesSaid
    theory: TheorySaid
    layout: FrameLayout
    steps: int
    """The last step."""
    step: int
    """The current one."""
    state: State
    speed: float | Literal["max"]
    marks: list[MarkSaid]
    """Changes of the rates so far."""


class StateText(Said):
    """After every change, and about twice a second while it runs."""

    type: Literal["state"] = "state"
    state: State
    step: int
    steps: int
    """The last step."""
    speed: float | Literal["max"]
    """Steps per second that were asked for."""
    rate: float
    """Steps per second measured."""
    eta_y: float
    eta_z: float
    failed_step: int | None
    """Where the numbers left the float range."""


class MarkText(MarkSaid):
    """Rates changed at this step."""

    type: Literal["mark"] = "mark"


class ResetText(Said):
    """Forget all frames; step 0 follows."""

    type: Literal["reset"] = "reset"


class PongText(Said):
    """The answer to a ping."""

    type: Literal["pong"] = "pong"
    id: Any
    """As it came."""


class ErrorText(Said):
    """A refused message; it changed nothing."""

    type: Literal["error"] = "error"
    field: str
    """The control to show it at."""
    message: str
    """One sentence."""


class ClosedText(Said):
    """The run is over: closed, taken up by another page, or its process died."""

    type: Literal["closed"] = "closed"
    reason: str
    """One sentence."""


SAID: tuple[type[Said], ...] = (RunText, StateText, MarkText, ResetText, PongText, ErrorText, ClosedText)

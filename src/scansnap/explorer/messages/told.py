"""HTTP: what is told of a run under way and of trained text models."""

from __future__ import annotations

from typing import Literal

from scansnap.explorer.messages.fields import Number, Said
from scansnap.explorer.messages.setups import SetupJson
from scansnap.explorer.messages.socket import MarkSaid, RunText

_Series = list[Number]


class ClaimAssumption(Said):
    """An assumption a claim rests on."""

    name: str
    value: Number
    threshold: Number
    met: bool


class ClaimCurve(Said):
    """What a claim compares."""

    x_label: str
    y_label: str
    x: _Series
    measured: _Series
    predicted: _Series | None
    log_x: bool
    log_y: bool


class ClaimInstead(Said):
    """What holds in the place of a statement that fails: one of ours, on the same run and axes."""

    name: str
    reference: str
    statement: str
    status: Literal["holds", "fails", "undecided", "not applicable"]
    words: str
    """Whether it does hold and up to when."""
    off: Number
    """How far its curve is from what was measured, relative."""
    theirs: Number
    """How far that of the failing statement is."""
    x: _Series | None
    y: _Series | None


class ClaimSaid(Said):
    """The verdict on one statement."""

    name: str
    reference: str
    statement: str
    status: Literal["holds", "fails", "undecided", "not applicable"]
    kind: str
    """What the verdict rests on: measured, identity, formula, by definition; ours: measured, of our own theory."""
    quantity: str
    measured: Number
    predicted: Number
    margin: Number
    """1: exact, 0: at the tolerance, below: fails."""
    tolerance: Number
    why: str
    assumptions: list[ClaimAssumption]
    curve: ClaimCurve | None
    instead: ClaimInstead | None
    where: SetupJson | None
    """A set-up in which it applies, where it does not here; null where no run on the page will do."""
    command: str
    """What judges it then; may be empty."""


class ClaimsSaid(Said):
    """Judged on the recorded steps. Where the theory does not speak of the run, every claim is "not applicable", with
    the reason in ``why``."""

    run: str
    step: int
    """Judged is the run up to here."""
    setting: str
    claims: list[ClaimSaid]


class FilmSaid(Said):
    """All kept frames."""

    run: RunText
    marks: list[MarkSaid]
    n: int
    """Frames."""
    floats: int
    """Values per frame."""
    steps: str
    """base64 of uint32[n]."""
    data: str
    """base64 of float32[n·floats]."""


class TextModel(Said):
    """A trained text model in the folder given at start."""

    name: str
    title: str


class TextModels(Said):
    """What the lens can look through."""

    models: list[TextModel]


class ProbeFiles(Said):
    """Probes' files given at start; the report on one is at /probe?file=NAME."""

    files: list[str]


class Vote(Said):
    """A word and the vote for it."""

    word: str
    vote: Number


class Attended(Said):
    """A word that attention turns to."""

    word: str
    attention: Number
    z: Number
    count: Number
    """Per thousand words of text, without a context."""
    votes: list[Vote]
    """Entries of its row of Y."""


class EntropyAt(Said):
    """Entropy during training."""

    step: int
    entropy: Number


class LensSaid(Said):
    """What a text model does with a query word."""

    query: str
    entropy: Number
    uniform_entropy: Number
    exact: bool
    attended: list[Attended]
    """Ranked by z."""
    votes: list[Vote]
    """Next words with their probability."""
    entropy_over_training: list[EntropyAt]
    """Empty where the training did not measure it."""

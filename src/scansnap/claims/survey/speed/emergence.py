"""When attention to one relevant token emerges, and whether it begins before the loss falls.

The smallest such task: two classes of one query; a context of T tokens has one that tells the class, and T − 1 times a
common token. No norm, exact flow, equal rates. The common token soon tells that the next token is one of two; the loss
waits at ln 2 until attention finds the relevant token.

**Length and repetition** (Zucchet et al., as we read the abstract): the time of emergence is a power law in
properties of the task, such as the length of the context, and repetition speeds emergence up greatly. The time is that
at which the loss is half of ln 2. While attention is uniform, the relevant token's vote grows as t/T and its logit as
(t/T)²/2, so attention moves at t ∝ T; with frozen attention the votes alone need t ∝ T². The measure of the first
statement is the largest residual of ln t in a straight line against ln T, for T from 16 to 1024: at most 0.1. The
control has the two mechanisms in one range (η_Z/η_Y = 10⁻⁴), where the line must bend. For the second, the relevant
token stands in the context 8 times at T = 1024: ln of the time over that of one copy. *Greatly* is at least a factor 2.

**Progress before the loss falls** (Gopalani and Hu, as we read the abstract): hidden progress of attention during the
plateau comes before the rapid convergence. The measure is the logit of the relevant token less that of the common one
when the loss has fallen by 5% of the plateau's height, over its value when 10% is left. If attention and loss moved
together, it would be about 0.05; progress is at least 0.25. It is tested at T = 256, and on Syn-Medium(1), where half
of the attention is on distinct tokens from the start and the loss has no plateau (height: the loss at the start; all
distinct against all common tokens)."""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import IntArray
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    survey_statement,
)
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow

ZUCCHET = Citation(
    "Zucchet, d'Angelo, Lampinen and Chan 2025",
    "The emergence of sparse attention: impact of data distribution and benefits of repetition",
    "2505.17863", "abstract",
)  # fmt: skip
GOPALANI = Citation(
    "Gopalani and Hu 2025", "What Happens During the Loss Plateau? Understanding Abrupt Learning in Transformers",
    "2506.13688", "abstract",
)  # fmt: skip

LENGTHS = 2 ** np.arange(4, 11)
MISFIT, COPIES, LEAST_PROGRESS = 0.1, 8, 0.25
_TASK = "no norm, one relevant token among {}, equal rates, flow"

LENGTH = survey_statement(
    "emergence-length", "the time at which attention emerges is a power of the length of the context", source=ZUCCHET,
    setting=_TASK.format("T = 16 to 1024"),
)  # fmt: skip
REPETITION = survey_statement(
    "emergence-repetition", "repeating the relevant token speeds up emergence greatly", source=ZUCCHET,
    setting=_TASK.format("T = 1024, 8 copies against one"),
)  # fmt: skip
_TEXT = "attention progresses before the loss falls"
PLATEAU = survey_statement("progress-plateau", _TEXT, source=GOPALANI, setting=_TASK.format("T = 256"))
NO_PLATEAU = survey_statement(
    "progress-no-plateau", _TEXT, source=GOPALANI, setting="no norm, Syn-Medium(1), equal rates, flow"
)


def needle(length: int, copies: int = 1, *, of_common: bool = False) -> SequenceClasses:
    """Two classes that differ in one token out of ``length``; ``of_common`` repeats a token of both instead."""
    p = np.zeros((2, 7))  # two relevant tokens, two common ones, the query, two next tokens
    relevant, second = (1, copies) if of_common else (copies, 1)
    p[0, 0] = p[1, 1] = relevant / length
    p[:, 3] = second / length
    p[:, 2] = 1 - (relevant + second) / length
    return SequenceClasses(p, query=np.full(2, 4), next_token=np.array([5, 6]))


def emergence(classes: SequenceClasses, eta_z: float = 1.0) -> float:
    """The time at which the loss is half of ln 2."""
    t = np.append(0.0, np.geomspace(1.0, 1e8, 1500))
    loss = flow(classes, 1.0, eta_z, t, norm="none", variables=("loss",)).loss.values
    after = int(np.flatnonzero(loss <= 0.5 * np.log(2))[0])
    return float(np.exp(np.interp(-0.5 * np.log(2), -loss[after - 1 : after + 1], np.log(t[after - 1 : after + 1]))))


def line(eta_z: float = 1.0, lengths: IntArray = LENGTHS) -> tuple[float, float]:
    """The largest residual of ln t against ln T, and the slope."""
    times = np.log([emergence(needle(int(length)), eta_z) for length in lengths])
    slope, offset = np.polyfit(np.log(lengths), times, 1)
    return float(np.abs(times - offset - slope * np.log(lengths)).max()), float(slope)


def speed_up(**options: bool) -> float:
    """ln of the time with 8 copies over that with one."""
    return float(np.log(emergence(needle(1024, COPIES, **options)) / emergence(needle(1024))))


def progress(classes: SequenceClasses, height: float, distinct: IntArray, eta_z: float = 1.0) -> float:
    """The share of the logit gap of class 0 that is there when the loss has fallen by 5% of ``height``."""
    t = np.append(0.0, np.geomspace(1e-2, 1e8, 3000))
    run = flow(classes, 1.0, eta_z, t, norm="none", variables=("loss", "z"))
    loss, z = run.loss.values, run.z.values[:, 0]
    gap = z[:, distinct].mean(1) - z[:, classes.common].mean(1)
    at = [int(np.flatnonzero(loss <= share * height)[0]) for share in (0.95, 0.1)]
    return float(gap[at[0]] / gap[at[1]])


def progress_of(statement: SurveyStatement, eta_z: float = 1.0) -> float:
    """The measure in the setting of the statement."""
    if statement is PLATEAU:
        return progress(needle(256), float(np.log(2)), np.array([0]), eta_z)
    classes = SequenceClasses.syn_medium(n_queries=1)
    return progress(classes, float(np.log(classes.vocab_size)), classes.distinct(0), eta_z)


def judge_length(misfit: float, slope: float) -> SurveyClaim:
    return LENGTH.judge_values(
        misfit, predicted=0.0, bound=MISFIT, failure="the line bends",
        quantity=f"largest residual of ln t against ln T (slope {slope:.2f})",
    )  # fmt: skip


def judge_repetition(logarithm: float) -> SurveyClaim:
    return REPETITION.judge_values(
        logarithm, predicted=-np.log(COPIES), bound=-np.log(2), failure="no or a smaller gain",
        quantity=f"ln of the time with {COPIES} copies over that with one",
    )  # fmt: skip


def judge_progress(statement: SurveyStatement, share: float) -> SurveyClaim:
    return statement.judge_values(
        share, predicted=1.0, bound=LEAST_PROGRESS, failure="the loss falls first",
        quantity="share of the logit gap at 5% of the fall of the loss",
    )  # fmt: skip


def _check_emergence(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge_length(*line()), judge_repetition(speed_up())]


def _check_progress(effort: SurveyEffort) -> list[SurveyClaim]:
    return [judge_progress(statement, progress_of(statement)) for statement in (PLATEAU, NO_PLATEAU)]


EMERGENCE = SurveyCheck((LENGTH, REPETITION), _check_emergence)
PROGRESS = SurveyCheck((PLATEAU, NO_PLATEAU), _check_progress)

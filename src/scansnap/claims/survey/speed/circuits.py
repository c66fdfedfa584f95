"""Output-value and query-key weights with two learning rates: which path they take, and how sharp attention becomes.

Source (the abstract of an ICML 2026 poster; its text was not available): in one layer, trained by gradient flow on
next-token prediction, output-value (OV) and query-key (QK) parameters move along a line, with speeds set by their
learning rates, and faster QK makes attention sharper at a similar loss. Here OV is Y and QK is Z. Attention output is
not normalised, as in the source's standard layer; the last statement is tested with the l2 norm too. All flows are
those of Syn-Medium(1), exact.

**Line.** Let o = ‖Y − Y(0)‖ and q = ‖Z − Z(0)‖. On a straight line q ∝ o. The measure is d ln q/d ln o, by least
squares over the times at which the loss falls from 95% to 10% of its start: 1, within a tenth. Our exact law
(docs/derivations.md) has z_l/η_Z = ½‖Y_l‖²/η_Y − …, so from Y = Z = 0 the path must begin as a parabola: 2. From a
decoder that has already learned (the flow with frozen attention until the loss is at 80%; Z = 0), the force on Z is
not 0 at the start, and a line is possible.

**Speeds.** q when the loss is at 10%, against the ratio η_Z/η_Y from 1/8 to 8: proportional (exponent 1 within a
tenth).

**Sharper.** The entropy of attention when the loss is at 10% falls from each ratio to the next (a factor 2). The
measure is the smallest of these falls. Flows have no noise: any fall counts that is beyond 0.001 nats."""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray
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
from scansnap.measure.entropy import entropy_of

POSTER = Citation(
    "ICML 2026 poster 60639", "Faster Query-Key Learning Sharpens Attention in Self-Attention Models", "", "abstract"
)
RATIOS = 2.0 ** np.arange(-3, 4)  # η_Z/η_Y
LEAST_FALL = 1e-3  # nats
_DATA = "Syn-Medium(1), flow"

LINE = survey_statement(
    "circuits-line", "OV and QK weights move along a line", source=POSTER,
    setting=f"no norm, {_DATA} from zero, equal rates, loss from 95% to 10%",
)  # fmt: skip
LINE_STARTED = survey_statement(
    "circuits-line-started", "OV and QK weights move along a line", source=POSTER,
    setting=f"no norm, {_DATA} from a decoder at 80% of the loss, equal rates, loss from 95% of that to 10%",
)  # fmt: skip
SPEEDS = survey_statement(
    "circuits-speeds", "QK weights move in proportion to the ratio of the rates", source=POSTER,
    setting=f"no norm, {_DATA} from zero, η_Z/η_Y from 1/8 to 8, at 10% loss",
)  # fmt: skip
_SHARPER = "faster QK learning makes attention sharper at equal loss"
SHARPER = survey_statement(
    "circuits-sharper", _SHARPER, source=POSTER,
    setting=f"no norm, {_DATA} from zero, η_Z/η_Y from 1/8 to 8, at 10% loss",
)  # fmt: skip
SHARPER_L2 = survey_statement(
    "circuits-sharper-l2", _SHARPER, source=POSTER,
    setting=f"l2 norm, {_DATA} from zero, η_Z/η_Y from 1/8 to 8, at 10% loss",
)  # fmt: skip


def path_exponent(*, started: bool = False, first: float = 0.95, last: float | None = None) -> float:
    """d ln ‖Z − Z(0)‖/d ln ‖Y − Y(0)‖ while the loss falls from ``first`` to ``last`` of its start.

    ``last`` None is a tenth of the loss of a decoder that has learned nothing.
    """
    classes = SequenceClasses.syn_medium(n_queries=1)
    t, wanted = np.append(0.0, np.geomspace(1e-2, 1e4, 300)), ("y", "z", "loss")
    y0, most = None, float(np.log(classes.vocab_size))
    if started:
        frozen = flow(classes, 1.0, 0.0, t, norm="none", variables=("y", "loss"))
        y0 = frozen.y.values[int(np.flatnonzero(frozen.loss.values <= 0.8 * most)[0])]
    run = flow(classes, 1.0, 1.0, t, norm="none", y0=y0, variables=wanted)
    loss, y, z = run.loss.values, run.y.values, run.z.values
    o = np.linalg.norm(y - y[0], axis=(1, 2))
    q = np.linalg.norm(z - z[0], axis=(1, 2))
    used = (loss <= first * loss[0]) & (loss >= (0.1 * most if last is None else last * loss[0]))
    return float(np.polyfit(np.log(o[used]), np.log(q[used]), 1)[0])


def at_equal_loss(eta_y: float, eta_z: float, norm: str = "none") -> tuple[float, float]:
    """‖Z‖ and the entropy of attention when the loss is at a tenth of its start."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    t = np.append(0.0, np.geomspace(1e-2, 1e4, 2000)) / eta_y
    run = flow(classes, eta_y, eta_z, t, norm=norm, variables=("z", "loss", "attention"))
    level = -np.log(run.loss.values)
    at = -np.log(0.1 * run.loss.values[0])
    size, entropy = np.linalg.norm(run.z.values, axis=(1, 2)), entropy_of(run.attention.values).mean(1)
    return float(np.interp(at, level, size)), float(np.interp(at, level, entropy))


def judge_exponent(statement: SurveyStatement, exponent: float) -> SurveyClaim:
    what = "d ln ‖Z‖/d ln (η_Z/η_Y)" if statement is SPEEDS else "d ln ‖Z − Z(0)‖/d ln ‖Y − Y(0)‖"
    return statement.judge_values(
        exponent, predicted=1.0, bound=0.9, two_sided=True, quantity=what, failure="no proportion"
    )


def judge_sharper(statement: SurveyStatement, entropies: FloatArray) -> SurveyClaim:
    """From the entropies at increasing ratios."""
    return statement.judge_values(
        float(-np.diff(entropies).max()), predicted=0.1, bound=LEAST_FALL,
        quantity=f"smallest fall of the entropy for twice the ratio (from {entropies[0]:.2f} to {entropies[-1]:.2f})",
        failure="somewhere a larger ratio leaves attention no sharper",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    ends = np.array([at_equal_loss(1.0, ratio) for ratio in RATIOS])
    normed = np.array([at_equal_loss(1.0, ratio, "l2") for ratio in RATIOS])
    return [
        judge_exponent(LINE, path_exponent()),
        judge_exponent(LINE_STARTED, path_exponent(started=True)),
        judge_exponent(SPEEDS, float(np.polyfit(np.log(RATIOS), np.log(ends[:, 0]), 1)[0])),
        judge_sharper(SHARPER, ends[:, 1]),
        judge_sharper(SHARPER_L2, normed[:, 1]),
    ]


CIRCUITS = SurveyCheck((LINE, LINE_STARTED, SPEEDS, SHARPER, SHARPER_L2), _check)

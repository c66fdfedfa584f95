"""Contexts with several possible next tokens: the token graph (retrieval), and log-odds of logits.

**Retrieval.** Hard retrieval, soft composition: attention tends to the top component of the token graph and mixes
inside it. Source: train one attention layer on next tokens that occur in their contexts. Draw an edge from each next
token to the other tokens of its context. Tokens on a common cycle (a strongly connected component) keep finite logit
gaps; the gap between a component and one below it grows without bound. Setting: six tokens, components {0, 1, 2} >
{3, 4} > {5} (cycles 0-1-2 and 3-4), one query, ten contexts of two or three tokens with the frequencies below, head
fixed as in the source: the loss is −ln of the attention on the next token. Flow to 10⁹. Between components the
measure is d gap/d ln t over the last two decades: 1, because each gap closes its own gradient e^{−gap} (within a
tenth). Inside, it is the distance of the gaps from the minimum of the loss restricted to the component: 0 (within a
tenth of the largest of them). The third statement repeats the first with a decoder that is trained too, as ours is: Y
then votes for the labels, and nothing requires the gap to keep growing like ln t.

**Log-odds.** Logit gaps inside the support of the next token tend to its log-odds, those to the outside to infinity.
Source: for linear models with fixed context embeddings, gradient descent makes the differences of in-support logits
equal to the log-odds, while the rest diverges in a max-margin direction. Setting: four contexts of one query, three
common and four distinct tokens each, next tokens among six outputs with probabilities ½, ⅓ and ⅙ on three of them;
the paper's l2 norm, attention frozen (the source's case) and moving with equal rates, flow to 10⁶. Inside, the
measure is the largest distance of a gap from its log-odds (0, up to a tenth of ln 3, the largest). Outside, it is the
growth of the least gap to an output without probability, d gap/d ln t: 1, since the gap closes its own gradient
(within a tenth)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    integrate_in_log_time,
    survey_statement,
)
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.dense import DenseFlow
from scansnap.dynamics.flow.integrators import Stacked, radau, threads_for
from scansnap.dynamics.settings import ModelConfig
from scansnap.measure.entropy import attention_of


class SoftLabelFlow(DenseFlow):
    """The population flow with a distribution of the next token in each context, instead of one next token."""

    def __init__(
        self, contexts: FloatArray, labels: FloatArray, p_context: FloatArray, *, eta_z: float = 1.0, norm: str = "l2"
    ) -> None:
        """``contexts`` (K, S) tokens, ``labels`` (K, J) next tokens, each row a distribution; ``p_context`` (K,)."""
        (k, s), self.labels = contexts.shape, torch.tensor(labels)
        size = s + k + 1  # one more token each for the query and for the next tokens that the classes must name
        classes = SequenceClasses(
            np.pad(contexts, ((0, 0), (0, k + 1))), query=[s] * k, next_token=s + 1 + np.arange(k), p_class=p_context
        )
        super().__init__(classes, ModelConfig(norm=norm), 1.0, eta_z, np.zeros((1, size)), torch.device("cpu"))
        self.n_tokens, self.n_rest = s, 0
        self.y = Stacked(torch.zeros(size, labels.shape[1], dtype=torch.float64))

    def error(self, logits: torch.Tensor) -> torch.Tensor:
        """Labels less α_n, (K, J); the entry of the most likely label is the sum of the others, to full precision."""
        r = self.labels - torch.softmax(logits, dim=1)
        top = self.labels.argmax(1, keepdim=True)
        r.scatter_(1, top, 0.0)
        return r.scatter_(1, top, -r.sum(1, keepdim=True))

    def integrate(self, times: FloatArray, rtol: float = 1e-6, atol: float = 1e-9) -> tuple[FloatArray, FloatArray]:
        """z (N, S) and logits (N, K, J) at ascending times, from Y = Z = 0."""
        z, logits = list[FloatArray](), list[FloatArray]()
        first_step = 0.01 / float(self.p_class.max())
        with torch.inference_mode(), threads_for(self.y.value.numel()):
            for step in radau(self, times[-1], first_step, rtol, atol):
                while len(z) < len(times) and times[len(z)] <= step.end:
                    at = self.point(step.weights(times[len(z)]))
                    z.append(at.z[0, : self.n_tokens].numpy())
                    logits.append(at.logits.numpy())
        return np.array(z), np.array(logits)


# --- the token graph ---------------------------------------------------------------------------------------------

LI = Citation(
    "Li, Huang, Ildiz, Rawat and Oymak 2024", "Mechanics of Next Token Prediction with Self-Attention", "2403.08081",
    "abstract",
)  # fmt: skip
_GRAPH_SETTING = "six tokens in components {{0,1,2}} > {{3,4}} > {{5}}, {}, no norm, flow to 10⁹"

HARD = survey_statement(
    "retrieval-hard", "logit gaps between components of the token graph grow like ln t", source=LI,
    setting=_GRAPH_SETTING.format("fixed head"),
)  # fmt: skip
SOFT = survey_statement(
    "retrieval-soft", "logit gaps inside a component converge to a finite mixture", source=LI,
    setting=_GRAPH_SETTING.format("fixed head"),
)  # fmt: skip
TRAINED = survey_statement(
    "retrieval-trained-head", "logit gaps between components grow like ln t also with a trained head", source=LI,
    setting=_GRAPH_SETTING.format("Y trained at the same rate"),
)  # fmt: skip

COMPONENTS = ((0, 1, 2), (3, 4), (5,))
TIMES = 10.0 ** np.arange(1.0, 10.0)


@dataclass(frozen=True)
class TokenGraph:
    """Contexts and how often each of their tokens comes next."""

    contexts: tuple[dict[int, float], ...]  # token of the context → weight as next token

    @property
    def present(self) -> FloatArray:
        """1 where a context has a token, (C, 6)."""
        return np.array([[float(token in context) for token in range(6)] for context in self.contexts])

    @property
    def labels(self) -> FloatArray:
        """Weight of each token as the next one, (C, 6), in all 1."""
        weights = np.array([[context.get(token, 0.0) for token in range(6)] for context in self.contexts])
        return np.asarray(weights / weights.sum())


GRAPH = TokenGraph((
    {0: 3.0, 1: 1.0}, {1: 2.0, 2: 1.0}, {0: 1.0, 2: 1.5},  # the cycle 0-1-2
    {3: 2.0, 4: 1.0},  # the cycle 3-4
    {0: 2.0, 3: 0.0}, {1: 1.0, 2: 1.0, 4: 0.0}, {2: 1.0, 5: 0.0}, {3: 1.0, 5: 0.0}, {4: 1.0, 5: 0.0},
    {0: 1.0, 3: 0.0, 5: 0.0},
))  # fmt: skip
# The control: the same contexts, but below is above sometimes, so that all tokens are on one cycle.
NO_ORDER = TokenGraph(
    (*GRAPH.contexts[:4], {0: 2.0, 3: 1.0}, *GRAPH.contexts[5:8], {4: 1.0, 5: 0.5}, GRAPH.contexts[9])
)


def fixed_head(graph: TokenGraph) -> FloatArray:
    """z at TIMES, (9, 6)."""
    labels = graph.labels

    def rates(z: FloatArray) -> FloatArray:
        s = attention_of(graph.present, z)
        r = labels - labels.sum(1, keepdims=True) * s
        single = (labels > 0).sum(1) == 1  # one next token: 1 − s is the sum of the others, to full precision
        top = labels.argmax(1)[single]
        r[single, top] = 0.0
        r[single, top] = -r[single].sum(1)
        return np.asarray(r.sum(0))

    return integrate_in_log_time(rates, np.zeros(6), TIMES, first=np.exp(-5.0), atol=1e-11)


def trained_head(graph: TokenGraph) -> FloatArray:
    """z at TIMES with Y trained beside it, (9, 6)."""
    weight = graph.labels.sum(1)
    p = graph.present / graph.present.sum(1, keepdims=True)
    return SoftLabelFlow(p, graph.labels / weight[:, None], weight, norm="none").integrate(TIMES)[0]


def mixture(graph: TokenGraph, component: tuple[int, ...]) -> FloatArray:
    """z of the component at the least loss of its own contexts' cycles, with mean 0."""
    tokens = list(component)
    present, labels = graph.present[:, tokens], graph.labels[:, tokens]
    cyclic = (labels > 0).sum(1) > 1
    with np.errstate(divide="ignore"):
        log_present, labels = np.log(present[cyclic]), labels[cyclic]

    def loss(z: FloatArray) -> float:
        return float((labels.sum(1) * logsumexp(log_present + z, axis=1)).sum() - (labels @ z).sum() + 1e-9 * z @ z)

    z = minimize(loss, np.zeros(len(tokens)), method="BFGS", options={"gtol": 1e-9}).x
    return np.asarray(z - z.mean())


def gap_growth(z: FloatArray) -> float:
    """The least d gap/d ln t over the last two decades between neighbouring components (of their mean logits)."""
    mean = np.stack([z[:, list(tokens)].mean(1) for tokens in COMPONENTS], axis=1)  # (9, 3)
    gaps = -np.diff(mean, axis=1)
    return float(((gaps[-1] - gaps[-3]) / np.log(TIMES[-1] / TIMES[-3])).min())


def judge_growth(statement: SurveyStatement, z: FloatArray) -> SurveyClaim:
    return statement.judge_values(
        gap_growth(z), predicted=1.0, bound=0.9, two_sided=True, quantity="least d gap/d ln t between components",
        failure="the gaps grow otherwise, or not at all",
    )  # fmt: skip


def judge_mixture(graph: TokenGraph, z: FloatArray) -> SurveyClaim:
    inside = [z[-1, list(component)] for component in COMPONENTS[:2]]
    measured = np.concatenate([logits - logits.mean() for logits in inside])
    least = np.concatenate([mixture(graph, component) for component in COMPONENTS[:2]])
    return SOFT.judge_values(
        float(np.abs(measured - least).max() / np.abs(least).max()), predicted=0.0, bound=0.1,
        quantity="largest distance of the logits inside from the restricted minimum, over the largest of them",
        failure="the mixture is another",
    )  # fmt: skip


def _check_retrieval(effort: SurveyEffort) -> list[SurveyClaim]:
    z = fixed_head(GRAPH)
    return [judge_growth(HARD, z), judge_mixture(GRAPH, z), judge_growth(TRAINED, trained_head(GRAPH))]


RETRIEVAL = SurveyCheck((HARD, SOFT, TRAINED), _check_retrieval)

# --- log-odds ----------------------------------------------------------------------------------------------------

THRAMPOULIDIS = Citation(
    "Thrampoulidis 2024",
    "Implicit Optimization Bias of Next-token Prediction in Linear Models",
    "2402.18551",
    "abstract",
)
_SETTING = "l2 norm, four contexts with soft labels on 3 of 6 outputs, {} attention, flow to 10⁶"
_IN = "logit gaps inside the support go to the log-odds"
_OUT = "logit gaps to outputs outside the support grow like ln t"

FROZEN, MOVING = (survey_statement(f"log-odds-{how}", _IN, source=THRAMPOULIDIS, setting=_SETTING.format(how))
                  for how in ("frozen", "moving"))  # fmt: skip
OUT_FROZEN, OUT_MOVING = (
    survey_statement(f"outside-support-{how}", _OUT, source=THRAMPOULIDIS, setting=_SETTING.format(how))
                          for how in ("frozen", "moving"))  # fmt: skip

ODDS_TIMES = np.array([1e4, 1e6])
ODDS = np.array([[3.0, 2, 1, 0, 0, 0], [0, 3, 2, 1, 0, 0], [0, 0, 0, 3, 2, 1], [2, 0, 0, 0, 1, 3]]) / 6


def logits(eta_z: float, *, same_contexts: bool = False) -> FloatArray:
    """At ODDS_TIMES, (2, 4, 6). With ``same_contexts`` no model can distinguish the contexts' labels."""
    p = SequenceClasses.synthetic(n_queries=1, next_per_query=4, common=3, distinct=4).p_context
    p = p[:, p.sum(0) > 0]
    if same_contexts:
        p = np.tile(p.mean(0), (4, 1))
    return SoftLabelFlow(p, ODDS, np.full(4, 0.25), eta_z=eta_z).integrate(ODDS_TIMES)[1]


def judge_inside(statement: SurveyStatement, logits: FloatArray) -> SurveyClaim:
    inside = ODDS > 0
    distance = logits[-1] - np.log(np.where(inside, ODDS, 1.0))
    far = max(float(np.ptp(row[support])) for row, support in zip(distance, inside, strict=True))
    return statement.judge_values(
        far, predicted=0.0, bound=0.1 * np.log(3), quantity="largest distance of a gap from its log-odds",
        failure="the gaps are others",
    )  # fmt: skip


def judge_outside(statement: SurveyStatement, logits: FloatArray) -> SurveyClaim:
    least = np.where(ODDS > 0, logits, np.inf).min(2) - np.where(ODDS > 0, -np.inf, logits).max(2)  # (2, 4)
    growth = (least[1] - least[0]) / np.log(ODDS_TIMES[1] / ODDS_TIMES[0])
    return statement.judge_values(
        float(growth[np.abs(growth - 1).argmax()]), predicted=1.0, bound=0.9, two_sided=True,
        quantity="d gap/d ln t of the least gap to the outside, of the context where it is farthest from 1",
        failure="the gap grows otherwise",
    )  # fmt: skip


def _check_log_odds(effort: SurveyEffort) -> list[SurveyClaim]:
    frozen, moving = logits(0.0), logits(1.0)
    return [
        judge_inside(FROZEN, frozen), judge_outside(OUT_FROZEN, frozen),
        judge_inside(MOVING, moving), judge_outside(OUT_MOVING, moving),
    ]  # fmt: skip


LOG_ODDS = SurveyCheck((FROZEN, OUT_FROZEN, MOVING, OUT_MOVING), _check_log_odds)

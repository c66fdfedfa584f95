"""Hard retrieval, soft composition: attention goes to the top component of the token graph and mixes inside it.

Source: train one attention layer on next tokens that occur in their contexts. Draw an edge from each next token to
the other tokens of its context. Tokens on a common cycle (a strongly connected component) keep finite logit gaps; the
gap between a component and one below it grows for ever.

Setting: six tokens, components {0, 1, 2} > {3, 4} > {5} (cycles 0-1-2 and 3-4), one query, ten contexts of two or
three tokens with the frequencies below, head fixed as in the source: the loss is −ln of the attention on the next
token. Flow to 10⁹. Judged between components by d gap/d ln t over the last two decades: 1, because each gap closes
its own gradient e^{−gap} (within a tenth); inside, by the distance of the gaps from the minimum of the loss
restricted to the component: 0 (within a tenth of the largest of them). Then the same with a decoder that is trained
too, as ours is: labels are then voted for by Y, and nothing says that the gap must go on growing like ln t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize
from scipy.special import logsumexp

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey import yz
from scansnap.claims.survey.finding import Finding, Sizes, Source, Surveyed, surveyed
from scansnap.measure.entropy import attention_of

LI = Source(
    "Li, Huang, Ildiz, Rawat and Oymak 2024", "Mechanics of Next Token Prediction with Self-Attention", "2403.08081",
    "abstract",
)  # fmt: skip
_SETTING = "six tokens in components {{0,1,2}} > {{3,4}} > {{5}}, {}, no norm, flow to 10⁹"

HARD = surveyed(
    "retrieval-hard", "logit gaps between components of the token graph grow like ln t", source=LI,
    setting=_SETTING.format("fixed head"),
)  # fmt: skip
SOFT = surveyed(
    "retrieval-soft", "logit gaps inside a component converge to a finite mixture", source=LI,
    setting=_SETTING.format("fixed head"),
)  # fmt: skip
TRAINED = surveyed(
    "retrieval-trained-head", "logit gaps between components grow like ln t also with a trained head", source=LI,
    setting=_SETTING.format("Y trained at the same rate"),
)  # fmt: skip
STATEMENTS = (HARD, SOFT, TRAINED)

COMPONENTS = ((0, 1, 2), (3, 4), (5,))
T = 10.0 ** np.arange(1.0, 10.0)


@dataclass(frozen=True)
class Graph:
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


GRAPH = Graph((
    {0: 3.0, 1: 1.0}, {1: 2.0, 2: 1.0}, {0: 1.0, 2: 1.5},  # the cycle 0-1-2
    {3: 2.0, 4: 1.0},  # the cycle 3-4
    {0: 2.0, 3: 0.0}, {1: 1.0, 2: 1.0, 4: 0.0}, {2: 1.0, 5: 0.0}, {3: 1.0, 5: 0.0}, {4: 1.0, 5: 0.0},
    {0: 1.0, 3: 0.0, 5: 0.0},
))  # fmt: skip
# The control: the same contexts, but below is above sometimes, so that all tokens are on one cycle.
NO_ORDER = Graph((*GRAPH.contexts[:4], {0: 2.0, 3: 1.0}, *GRAPH.contexts[5:8], {4: 1.0, 5: 0.5}, GRAPH.contexts[9]))


def fixed_head(graph: Graph) -> FloatArray:
    """z at the times T, (9, 6)."""
    labels = graph.labels

    def rates(clock: float, z: FloatArray) -> FloatArray:
        s = attention_of(graph.present, z)
        r = labels - labels.sum(1, keepdims=True) * s
        one = (labels > 0).sum(1) == 1  # a single next token: 1 − s as the sum of the others, to full precision
        top = labels.argmax(1)[one]
        r[one, top] = 0.0
        r[one, top] = -r[one].sum(1)
        return np.asarray(np.exp(clock) * r.sum(0))

    run = solve_ivp(rates, (-5.0, np.log(T[-1])), np.zeros(6), t_eval=np.log(T), method="LSODA", rtol=1e-9, atol=1e-11)
    return np.asarray(run.y.T)


def trained_head(graph: Graph) -> FloatArray:
    """z at the times T with Y trained beside it, (9, 6)."""
    weight = graph.labels.sum(1)
    p = graph.present / graph.present.sum(1, keepdims=True)
    data = yz.Data(p, np.zeros(len(p), dtype=np.int64), graph.labels / weight[:, None], weight, np.ones(6))
    return yz.flow(data, T, norm="none").z[:, 0]


def mixture(graph: Graph, component: tuple[int, ...]) -> FloatArray:
    """z of the component at the least loss of its own contexts' cycles, with mean 0."""
    keep = list(component)
    present, labels = graph.present[:, keep], graph.labels[:, keep]
    cyclic = (labels > 0).sum(1) > 1
    log_present, labels = _log(present[cyclic]), labels[cyclic]

    def loss(z: FloatArray) -> float:
        return float((labels.sum(1) * logsumexp(log_present + z, axis=1)).sum() - (labels @ z).sum() + 1e-9 * z @ z)

    found = minimize(loss, np.zeros(len(keep)), method="BFGS", options={"gtol": 1e-9}).x
    return np.asarray(found - found.mean())


def gap_growth(z: FloatArray) -> float:
    """The least d gap/d ln t over the last two decades between neighbouring components (of their mean logits)."""
    mean = np.stack([z[:, list(tokens)].mean(1) for tokens in COMPONENTS], axis=1)  # (9, 3)
    gaps = -np.diff(mean, axis=1)
    return float(((gaps[-1] - gaps[-3]) / np.log(T[-1] / T[-3])).min())


def judge_growth(statement: Surveyed, z: FloatArray) -> Finding:
    return statement.found(
        gap_growth(z), predicted=1.0, bound=0.9, both_sides=True, quantity="least d gap/d ln t between components",
        where="the gaps grow otherwise, or not at all",
    )  # fmt: skip


def judge_mixture(graph: Graph, z: FloatArray) -> Finding:
    found, least = [], []
    for component in COMPONENTS[:2]:
        inside = z[-1, list(component)]
        found.append(inside - inside.mean())
        least.append(mixture(graph, component))
    a, b = np.concatenate(found), np.concatenate(least)
    return SOFT.found(
        float(np.abs(a - b).max() / np.abs(b).max()), predicted=0.0, bound=0.1,
        quantity="largest distance of the logits inside from the restricted minimum, over the largest of them",
        where="the mixture is another",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    z = fixed_head(GRAPH)
    return [judge_growth(HARD, z), judge_mixture(GRAPH, z), judge_growth(TRAINED, trained_head(GRAPH))]


def _log(present: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(present))

"""The first gradient of attention finds causal parents: its largest entries are the edges of the latent graph.

Source: on sequences drawn along a latent causal graph the gradient of the attention matrix encodes the mutual
information of tokens, and by the data processing inequality its largest entries are the graph's edges (proved for a
simplified two-layer transformer that learns transitions in context). Setting: one layer, attention by position and a
decoder of tokens, as ours with a position bias; the transition is the same in all sequences. Position i copies from a
random earlier position p(i) through a random doubly stochastic matrix π on S = 6 tokens (T = 16, a seed draws graph
and π), and every position predicts its token from the earlier ones. From Y = A = 0 the first gradient of A is 0 and
that of Y is

    Y ∝ Σ_i (1/i) Σ_{j<i} C_ij,   C_ij[a, b] = P(x_j = a, x_i = b) − 1/S²

so that the second one is s_ij (⟨C_ij, Y⟩ − mean over j) to leading order in the step: C_ij is recognised by its
similarity to the mean of all C. The measure is the share of positions whose largest entry is the parent: 1, at least
0.9, by intervals over graphs; chance is 0.17."""

from __future__ import annotations

import numpy as np

from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.claims.survey.statement import Citation, SurveyCheck, SurveyClaim, SurveyEffort, survey_statement

NICHANI = Citation(
    "Nichani, Damian and Lee 2024", "How Transformers Learn Causal Structure with Gradient Descent", "2402.14735",
    "abstract",
)  # fmt: skip
T, S = 16, 6

PARENTS = survey_statement(
    "causal-parents", "the largest entries of attention's first gradient are the causal parents", source=NICHANI,
    setting=f"no norm, one layer by position, random trees of {T} positions, {S} tokens, first steps",
)  # fmt: skip


def draw(seed: int) -> tuple[IntArray, FloatArray]:
    """Parents of positions 1 to T − 1, and a doubly stochastic π: a mixture of four random permutations."""
    rng = np.random.default_rng(seed)
    parent = np.array([rng.integers(i) for i in range(1, T)])
    weight = rng.dirichlet(np.ones(4))
    return parent, np.asarray(sum(w * np.eye(S)[rng.permutation(S)] for w in weight))


def covariances(parent: IntArray, pi: FloatArray) -> FloatArray:
    """C_ij[a, b] = P(x_j = a, x_i = b) − 1/S², (T, T, S, S); x_i follows π from its parent, x_0 is uniform."""
    size = len(parent) + 1
    joint = np.zeros((size, size, *pi.shape))
    joint[0, 0] = np.eye(len(pi)) / len(pi)
    for i, p in enumerate(parent, start=1):
        joint[i, i] = np.eye(len(pi)) / len(pi)
        for j in range(i):
            joint[i, j] = joint[p, j] @ pi  # x_i depends on the earlier ones through its parent alone
            joint[j, i] = joint[i, j].T
    return joint - 1 / len(pi) ** 2


def gradient(parent: IntArray, pi: FloatArray) -> FloatArray:
    """The leading gradient in A, up to a factor, (T, T); −∞ where there is nothing to attend to."""
    c = covariances(parent, pi)
    earlier = np.tril(np.ones((len(c), len(c))), -1)
    s = earlier / np.maximum(earlier.sum(1, keepdims=True), 1)  # uniform attention
    y = np.einsum("ij,ijab->ab", s, c)
    similarity = np.einsum("ijab,ab->ij", c, y)
    return np.where(earlier > 0, s * (similarity - (s * similarity).sum(1, keepdims=True)), -np.inf)


def recall(gradient: FloatArray, parent: IntArray) -> float:
    """The share of positions with a choice (from the third on) whose largest entry is the parent."""
    return float(np.mean(gradient[2:].argmax(1) == parent[1:]))


def judge(recalls: FloatArray) -> SurveyClaim:
    return PARENTS.judge_values(
        recalls, predicted=1.0, bound=0.9, quantity="share of positions whose largest entry is the parent",
        failure="other positions are found instead",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    problems = [draw(seed) for seed in range(4 * effort.seeds)]  # nothing is trained, so more of them are cheap
    return [judge(np.array([recall(gradient(*problem), problem[0]) for problem in problems]))]


CAUSAL = SurveyCheck((PARENTS,), _check)

"""The algebra of the paper's proof: against runs of its dynamics, in 50 digits, and with the printed signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap import theory
from scansnap.theory.modified import ModifiedDecoder, modified_decoder, overlap_complement

# Sums of up to K² products of order 1, and a condition number of FᵀF of a few hundred at most: 1e-16 times that.
ROUNDING = 1e-12
PRINTED = 1e-4  # the least error of a printed formula in these settings is ten times as large


def random_classes(seed: int) -> tuple[ss.SequenceClasses, int, float]:
    """Classes of one query that share a token, the number of steps, and η_Y."""
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(2, 7)), int(rng.integers(60, 1001))
    p = np.zeros((k, m))
    p[:, : k + 20] = rng.dirichlet(np.full(k + 20, 0.3), k)
    p[:, 0] += rng.uniform(0.1, 0.6)
    classes = ss.SequenceClasses(p / p.sum(1, keepdims=True), np.full(k, m - 1), m - 2 - np.arange(k))
    return classes, int(rng.integers(60, 400)), float(rng.uniform(0.05, 1))


class Run:
    """Batch-1 SGD of the decoder, its W, r_n and g_n, and the draws of each class."""

    def __init__(self, seed: int, update: str = "modified") -> None:
        self.classes, steps, self.eta_y = random_classes(seed)
        self.m, k = self.classes.vocab_size, self.classes.n_classes
        data = ss.simulate(self.classes, eta_y=self.eta_y, eta_z=0.0, seed=seed, steps=steps, batch_size=1,
                           context=np.inf, update=update, dtype="float64", variables="y", record=[steps],
                           device="cpu")  # fmt: skip
        self.y = data.y.values[0, 0]  # (M, M)
        p = self.classes.p_context
        self.f = p / np.linalg.norm(p, axis=1, keepdims=True)  # (K, M)
        self.w = self.f @ self.y
        alpha = np.exp(self.w - self.w.max(1, keepdims=True))
        own = np.eye(self.m)[self.classes.next_token]
        self.zeta = (self.m * own - 1) / (self.m - 1)
        self.r = own - alpha / alpha.sum(1, keepdims=True)
        self.g = self.r @ self.y.T
        heights = theory.h_recursion(steps, eta_y=self.eta_y, vocab_size=self.m)
        never_next = 0
        self.visits = np.abs(heights[:, None] + self.w[:, never_next]).argmin(0)  # w = −h there, if Lemma 5 holds
        self.mean = -(-steps // k)
        self.is_consistent = self.visits.sum() == steps
        self.decoder = modified_decoder(self.f @ self.f.T, self.visits, eta_y=self.eta_y, vocab_size=self.m)

    def relative_errors(self) -> dict[str, float]:
        """Lemma 5, Theorem 5, Corollary 1 and Eqs. 84–88 on this run."""
        m, decoder = self.m, self.decoder
        level = (m - 1) * float(theory.h(self.mean, eta_y=self.eta_y, vocab_size=m))
        y = self.f.T @ (np.eye(len(self.f)) - decoder.e_prime) @ ((1 + decoder.theta)[:, None] * level * self.zeta)
        pairs = {
            "lemma 5": (self.w, (m - 1) * decoder.h[:, None] * self.zeta),
            "theorem 5": (self.y, y),
            "corollary 1": (self.r, decoder.error[:, None] * self.zeta),
            "equations 84 to 88": (self.g, decoder.gradient_coefficients() @ self.f),
            "printed equation 88": (self.g, decoder.gradient_coefficients(decoder.beta_printed) @ self.f),
        }
        return {name: float(np.abs(a - b).max() / np.abs(a).max()) for name, (a, b) in pairs.items()}


@pytest.mark.parametrize("seed", range(6))
def test_the_formulas_are_exact_on_the_proofs_dynamics(seed: int) -> None:
    run = Run(seed)
    assert run.is_consistent
    errors = run.relative_errors()
    assert errors.pop("printed equation 88") > PRINTED
    assert max(errors.values()) < ROUNDING, errors


@pytest.mark.parametrize("seed", range(2))
def test_they_are_wrong_for_gradient_descent(seed: int) -> None:
    errors = Run(seed, "gradient").relative_errors()
    assert min(errors.values()) > PRINTED, errors


def test_the_sampled_counts_are_those_of_the_run() -> None:
    run = Run(0)
    assert run.decoder.theta.std() > 0.01  # sampling is at work
    assert np.abs(run.decoder.sigma).max() > 0.01


@pytest.mark.parametrize("seed", range(4))
def test_the_force_is_the_squared_length_of_the_modification(seed: int) -> None:
    """ξ_n/γ = q₁‖F E′e_n‖² + |q₀| Σ_{k≠n} E′_nk without sampling, so up to 1/M."""
    classes, _, eta_y = random_classes(seed)
    f = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    k, m = classes.n_classes, 100_000
    decoder = modified_decoder(f @ f.T, np.full(k, 300.0), eta_y=eta_y, vocab_size=m, steps=False)
    lengths = np.linalg.norm(f.T @ decoder.e_prime, axis=0) ** 2
    np.testing.assert_allclose(decoder.force, m / (m - 1) * lengths, rtol=1e-10)
    left_out = np.abs(decoder.e_prime).sum(1) / m
    assert (np.abs(decoder.xi / decoder.gamma - decoder.force) < 1.01 * left_out).all()
    assert (decoder.force > 100 * left_out).all()
    np.testing.assert_allclose(decoder.xi, decoder.gamma * (decoder.beta * decoder.e).sum(1), rtol=1e-10)
    np.testing.assert_allclose(decoder.theta, 0, atol=1e-15)


def test_a_printed_sign_turns_the_force() -> None:
    """K = 2, ρ = 10⁻⁴, M = 1000: the printed β_nn' and so ξ_n are negative."""
    size = np.array([[1.0, 1e-4], [1e-4, 1.0]])
    decoder = modified_decoder(size, [100.0, 100.0], eta_y=0.5, vocab_size=1000, steps=False)
    printed = (decoder.beta_printed * decoder.e).sum(1)
    np.testing.assert_allclose(decoder.xi / decoder.gamma, 1.10e-7, rtol=0.01)
    np.testing.assert_allclose(printed, -0.90e-7, rtol=0.01)


def test_fifty_digits_agree() -> None:
    """The corrected Eq. 88 and ξ_n by exact linear algebra on Y; the printed form is off by 1/M."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(50):
        k, m, eta_y, visits = 3, 60, mp.mpf("0.7"), [40, 55, 31]
        e = mp.matrix([[0, 0.21, 0.13], [0.21, 0, 0.05], [0.13, 0.05, 0]]) * mp.mpf(1)
        size, heights = mp.eye(k) + e, [mp.mpf(0)]
        for _ in range(max(visits)):
            heights.append(heights[-1] + eta_y / (m - 1 + mp.exp(m * heights[-1])))
        own = [heights[n] for n in visits]
        # Y = F A: the coefficients of g_n along f_n' are Σ_j A_n'j r_nj, with A = (I + E)⁻¹ W
        zeta = mp.matrix(k, m)
        for n in range(k):
            for j in range(m):
                zeta[n, j] = (mp.mpf(m) * (n == j) - 1) / (m - 1)
        w = mp.matrix(k, m)
        for n in range(k):
            w[n, :] = (m - 1) * own[n] * zeta[n, :]
        a = mp.inverse(size) * w
        r = mp.matrix(k, m)
        for n in range(k):
            weights = [mp.exp(w[n, j]) for j in range(m)]
            for j in range(m):
                r[n, j] = (n == j) - weights[j] / mp.fsum(weights)
        exact = r * a.T  # (K, K)
        decoder = modified_decoder(np.array(size.tolist(), float), visits, eta_y=0.7, vocab_size=m)
        found = decoder.gradient_coefficients()
        printed = decoder.gradient_coefficients(decoder.beta_printed)
        assert max(abs(found[i, j] / exact[i, j] - 1) for i in range(k) for j in range(k)) < 1e-12
        assert max(abs(printed[i, j] / exact[i, j] - 1) for i in range(k) for j in range(k)) > 0.05
        xi = [-mp.fsum(exact[n, j] * e[n, j] for j in range(k)) for n in range(k)]
        assert max(abs(decoder.xi[n] / xi[n] - 1) for n in range(k)) < 1e-12


@pytest.mark.parametrize("size", [1e-9, 1e-4, 0.3])
def test_small_overlaps_keep_their_digits(size: float) -> None:
    """Equal overlaps of two classes: E′ = (−ρ², ρ)/(1 − ρ²)."""
    e_prime = overlap_complement([[1, size], [size, 1]])
    np.testing.assert_allclose(e_prime, np.array([[-(size**2), size], [size, -(size**2)]]) / (1 - size**2), rtol=1e-12)


# --- steps and flow, and the number of visits -----------------------------------------------------------------------


@pytest.mark.parametrize(("eta_y", "lead"), [(0.01, 5.1546), (0.1, 6.310), (0.5, 7.132), (0.99, 7.497)])
def test_steps_lead_the_flow_by_half_a_logarithm(eta_y: float, lead: float) -> None:
    """Measured at s = 3·10⁶, M = 1000, by 3·10⁶ steps in double precision."""
    found = theory.step_lead(3e6, eta_y=eta_y, vocab_size=1000)
    assert lead - found == pytest.approx(0.045 * eta_y, abs=0.005 * eta_y + 5e-4)  # to the digits of the numbers above


@pytest.mark.parametrize(("eta_y", "m"), [(0.1, 50), (0.9, 34), (0.9, 1000)])
def test_the_lead_is_that_of_the_recursion(eta_y: float, m: int) -> None:
    steps = np.unique(np.geomspace(20, 20_000, 12).astype(int))
    gap = m * theory.h_recursion(int(steps[-1]), eta_y=eta_y, vocab_size=m)[steps]
    lead = theory.visits_at(gap, eta_y=eta_y, vocab_size=m) - steps
    off = lead - theory.step_lead(steps, eta_y=eta_y, vocab_size=m)
    assert np.abs(off).max() < 0.1 * eta_y
    assert lead[-1] > 1  # so that the flow itself, without a lead, would fail


def test_the_number_of_visits_is_a_sum_not_a_product() -> None:
    epsilon = np.array([0.1, 0.01, 0.001])
    for m in (50, 1000, 50_000):
        found = theory.visits_to_error(epsilon, eta_y=0.5, vocab_size=m)
        total = (1 / epsilon + np.log(m / epsilon)) / 0.5
        assert ((found < total) & (total < 1.1 * found)).all()
        product = np.log(m / epsilon) / epsilon / 0.5
        assert (product > 3 * found).all()
        heights = theory.h_recursion(int(found.max()) + 2, eta_y=0.5, vocab_size=m)
        error = np.sqrt(m / (m - 1)) * (m - 1) / (m - 1 + np.exp(m * heights))
        steps = np.searchsorted(-error, -epsilon)
        np.testing.assert_allclose(steps, found, atol=4)


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("overlap", {"overlap": [[1.0, 0.1]]}),
        ("overlap", {"overlap": [[1.0, 1.0], [1.0, 1.0]]}),
        ("overlap", {"overlap": [[2.0, 0.1], [0.1, 2.0]]}),
        ("overlap", {"overlap": "a"}),
        ("visits", {"visits": [1, 2, 3]}),
        ("visits", {"visits": [0.5, 1]}),
        ("eta_y", {"eta_y": 0.0}),
        ("vocab_size", {"vocab_size": 1}),
    ],
)
def test_what_it_refuses(field: str, change: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"overlap": np.eye(2), "visits": [3, 4], "eta_y": 0.5, "vocab_size": 10}
    assert isinstance(modified_decoder(**arguments), ModifiedDecoder)
    with refused(field):
        modified_decoder(**(arguments | change))


def test_an_error_that_is_met_at_the_start_is_refused() -> None:
    with refused("epsilon"):
        theory.visits_to_error(0.99, eta_y=0.5, vocab_size=10)

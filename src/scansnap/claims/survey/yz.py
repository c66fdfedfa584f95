"""The population flow of the YZ model with what the survey asks for beside it: soft labels, decay, a fixed head.

    Ẏ   = η_Y [Σ_n p_n f_n (q_n − α_n)ᵀ − λ_Y Y]                       (not at all with a fixed head)
    ż_m = η_Z [Σ_{n ∈ ψ⁻¹(m)} p_n (diag(c_n) − c_n c_nᵀ)(∂f_n/∂c_n)ᵀ Y (q_n − α_n) − λ_Z z_m]

with c_n ∝ P(·|n) e^{z_m}, f_n = c_n/‖c_n‖ (norm "l2") or c_n ("none"), α_n = softmax(Yᵀ f_n), and q_n the
distribution of the next token after context n, one-hot in the paper. Integrated in ln(1 + t/τ), because rates fall
like 1/t, by LSODA, because decay makes late times stiff. For one-hot labels without decay it is ``ss.flow`` (a test
holds them equal).

    K classes · S tokens · J outputs (all that are never a next token are one) · Q queries
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import log_softmax

from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import attention_of

_FIRST = 1e-3  # the clock ln(1 + t/τ) starts at this share of the time in which Y learns anything


@dataclass(frozen=True)
class Data:
    """Contexts and what follows them."""

    p_context: FloatArray  # (K, S)
    query: IntArray  # (K,) row of Z
    labels: FloatArray  # (K, J) distribution of the next token
    p_class: FloatArray  # (K,)
    copies: FloatArray  # (J,) how many equal outputs each column stands for

    @classmethod
    def of(cls, classes: SequenceClasses) -> Data:
        """Sequence classes as they are: one next token after each."""
        k = classes.n_classes
        used = np.flatnonzero(classes.p_context.sum(0) > 0)
        return cls(
            classes.p_context[:, used], np.searchsorted(classes.queries, classes.query), np.eye(k, k + 1),
            classes.p_class, np.append(np.ones(k), float(classes.vocab_size - k)),
        )  # fmt: skip


@dataclass(frozen=True)
class Path:
    """States at the times asked for."""

    t: FloatArray  # (N,)
    y: FloatArray  # (N, S, J)
    z: FloatArray  # (N, Q, S)
    data: Data
    norm: str

    @property
    def attention(self) -> FloatArray:
        """c_n, (N, K, S)."""
        return attention_of(self.data.p_context, self.z[:, self.data.query])

    @property
    def logits(self) -> FloatArray:
        """Yᵀ f_n, (N, K, J)."""
        return np.asarray(features(self.attention, self.norm) @ self.y)


def features(c: FloatArray, norm: str) -> FloatArray:
    """f = c/‖c‖, or c itself."""
    return c / np.linalg.norm(c, axis=-1, keepdims=True) if norm == "l2" else c


def flow(
    data: Data,
    t: FloatArray,
    *,
    eta_y: float = 1.0,
    eta_z: float = 1.0,
    norm: str = "l2",
    decay_y: float = 0.0,
    decay_z: float = 0.0,
    rtol: float = 1e-7,
) -> Path:
    """The states at the ascending times ``t``, from Y = Z = 0."""
    s, j = data.p_context.shape[1], data.labels.shape[1]
    q = int(data.query.max()) + 1
    top = data.labels.argmax(1)
    rows = np.arange(len(top))
    tau = _FIRST / (max(eta_y, eta_z) * float(data.p_class.max()))

    def rates(clock: float, state: FloatArray) -> FloatArray:
        y, z = state[: s * j].reshape(s, j), state[s * j :].reshape(q, s)
        c = attention_of(data.p_context, z[data.query])
        f = features(c, norm)
        logits = f @ y
        r = data.labels - np.exp(log_softmax(logits + np.log(data.copies), axis=1))
        r[rows, top] = 0.0
        r[rows, top] = -r.sum(1)  # full precision however near α_n is to 1
        g = r @ y.T  # (K, S)
        if norm == "l2":
            g = (g - f * (f * g).sum(1, keepdims=True)) / np.linalg.norm(c, axis=1, keepdims=True)
        dz = np.zeros((q, s))
        np.add.at(dz, data.query, data.p_class[:, None] * c * (g - (c * g).sum(1, keepdims=True)))
        dy = (data.p_class[:, None] * f).T @ (r / data.copies)
        speed = tau * np.exp(clock)  # dt/d clock
        both = [eta_y * (dy - decay_y * y), eta_z * (dz - decay_z * z)]
        return speed * np.concatenate([part.ravel() for part in both])

    clock = np.log1p(np.asarray(t, dtype=np.float64) / tau)
    run = solve_ivp(
        rates, (0.0, float(clock[-1])), np.zeros(s * j + q * s), t_eval=clock, method="LSODA", rtol=rtol, atol=1e-10
    )
    if not run.success:
        raise RuntimeError(f"the flow of the survey stopped: {run.message}")
    y, z = run.y[: s * j].T.reshape(-1, s, j), run.y[s * j :].T.reshape(-1, q, s)
    return Path(np.asarray(t, dtype=np.float64), y, z, data, norm)

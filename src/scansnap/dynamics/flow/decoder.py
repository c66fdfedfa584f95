"""The decoder flow: Y alone, with the attention frozen (the setting of Lemma 3 and Theorem 1).

With F = [f_1 … f_K] constant, Y stays in the span of the f_n: Y = F A with A (K × outputs), and

    Ȧ = η_Y diag(p) (I − α),    logits = FᵀF A,    A(0) = 0

so only the overlaps FᵀF matter, whatever the number of tokens. With the modified update of the paper's proof (Eq. 26)
Ȧ = η_Y (FᵀF)⁻¹ diag(p) (I − α), so that the logits W = FᵀF A move row by row. The back-propagated gradient is, exactly,
g_n = Y(e_n − α_n) = Σ_n' g[n, n'] f_n': γ ι_n = g[n, n] and γ β_nn' = −g[n, n'] in the notation of Theorem 1,
with none of its assumptions.
"""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor

from scansnap.checks import InputError, check_choice, check_float, check_integer
from scansnap.checks.arrays import numbers
from scansnap.dynamics.flow.dense import error
from scansnap.dynamics.flow.integrate import checked_times
from scansnap.dynamics.flow.integrators import FloatArray, Stacked, dop853, threads_for
from scansnap.dynamics.update import UPDATES, check_update
from scansnap.results.trajectory import versions
from scansnap.results.variables import DECODER, add_labels


class DecoderFlow(Stacked):
    """A (K, J) and its vector field; J = K + 1, the last output standing for the M − K that are never right."""

    def __init__(self, overlap: Tensor, rate: Tensor, n_rest: int, update: str = "gradient") -> None:
        """``overlap`` = FᵀF (K, K), ``rate`` = η_Y p_n (K,)."""
        k = len(rate)
        super().__init__(torch.zeros(k, k + 1, dtype=torch.float64))
        count = torch.ones(k + 1, dtype=torch.float64)
        count[-1] = max(n_rest, 1)
        self.overlap, self.n_rest = overlap, n_rest
        self.rate_of_a = rate[:, None] / count  # (K, J)
        self.mix = overlap.inverse() if update == "modified" else None  # (K, K)  I − E′

    def point(self, weights: FloatArray) -> tuple[Tensor, Tensor, Tensor]:
        """A, logits and e_n − α_n, each (K, J)."""
        a = self.at(weights)
        logits = self.overlap @ a
        return a, logits, error(logits, self.n_rest)

    def rates(self, stage: int, weights: FloatArray) -> None:
        rate = self.rate_of_a * self.point(weights)[2]
        self.rate[stage] = rate if self.mix is None else self.mix @ rate


def decoder_flow(
    f: ArrayLike,
    p_class: ArrayLike | None,
    eta_y: float,
    t: ArrayLike,
    vocab_size: int,
    rtol: float = 1e-8,
    atol: float = 1e-12,
    update: str = "gradient",
) -> xr.Dataset:
    """Integrate the decoder flow from Y(0) = 0 and read it at the times ``t``.

    f            (S, K): column n is f_n. Only FᵀF enters; for given overlaps G pass ``np.linalg.cholesky(G).T``
    p_class      class probabilities, uniform if None
    vocab_size   M, the number of outputs in the softmax
    update       "gradient", or "modified" as in `scansnap.flow`

    Variables: ``a`` and ``logits`` (t, seq_class, output), one output per class and a last one, labelled −1, for
    each of the M − K that are never right; ``gap`` (t, seq_class), the right logit less that one (NaN if M = K);
    ``loss`` (t); ``g`` (t, seq_class, along), the coefficients of g_n along f_n'.

    In the orthonormal limit the gap solves e^u + (M − 1)u = Mη_Y s + 1, s = t/K (Lemma 3):

    >>> decoder_flow(np.eye(4), None, eta_y=1.0, t=[4 * (np.e + 97) / 99], vocab_size=99).gap.values.round(6)
    array([[1., 1., 1., 1.]])
    """
    columns = torch.tensor(numbers("f", f))  # (S, K)
    if columns.ndim != 2 or columns.shape[1] == 0 or not columns.isfinite().all():
        shape = tuple(columns.shape)
        raise InputError("f", f"of shape {shape}", "a table of finite numbers, one column per class")
    k = columns.shape[1]
    p = np.full(k, 1 / k) if p_class is None else numbers("p_class", p_class)
    if p.shape != (k,) or not (p >= 0).all() or abs(p.sum() - 1) > 1e-6:
        raise InputError("p_class", p, f"{k} probabilities with sum 1")
    eta_y = check_float("eta_y", eta_y, above=0)
    times = checked_times(t)
    n_rest = check_integer("vocab_size", vocab_size, least=k) - k
    rtol, atol = check_float("rtol", rtol, least=1e-13, most=0.1), check_float("atol", atol, above=0)
    check_update(columns.mT, check_choice("update", update, UPDATES))
    field = DecoderFlow(columns.mT @ columns, eta_y * torch.tensor(p), n_rest, update)
    data: dict[str, list[FloatArray]] = {name: [] for name in ("a", "logits", "gap", "loss", "g")}

    def read(weights: FloatArray) -> None:
        a, logits, r = field.point(weights)
        data["a"].append(a.numpy())
        data["logits"].append(logits.numpy())
        data["gap"].append((logits.diagonal() - (logits[:, -1] if n_rest else torch.nan)).numpy())
        data["loss"].append(-p @ np.log1p(-r.diagonal().numpy()))
        data["g"].append((r @ a.mT).numpy())

    if times[0] == 0:
        read(np.zeros(0))
    first_step = 0.01 / (eta_y * p.max() * max(1.0, field.overlap.diagonal().max().item()))
    with threads_for(field.value.numel()):
        for step in dop853(field, times[-1], first_step, rtol, atol):
            for time in times[(times > step.t) & (times <= step.end)]:
                read(step.weights(time))
    coords = {"t": times, "seq_class": np.arange(k), "output": np.append(np.arange(k), -1), "along": np.arange(k)}
    attrs = {"eta_y": eta_y, "vocab_size": k + n_rest, "rtol": rtol, "atol": atol, "update": update,
             "stopped": "complete", **versions()}  # fmt: skip
    variables = {name: (("t", *DECODER[name].dims), np.array(rows)) for name, rows in data.items()}
    return add_labels(xr.Dataset(variables, coords, attrs), DECODER)

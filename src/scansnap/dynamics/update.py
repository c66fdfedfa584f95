"""How the decoder moves: along the gradient of the loss, or by the modified update of the paper's proof.

    gradient    dY = f_n (e_n − α_n)ᵀ                                          (Lemma 1)
    modified    dY = (f_n − F E′e_n)(e_n − α_n)ᵀ,   (I + E)⁻¹ = I − E′         (Eq. 26)

With F = [f_1 … f_K] and FᵀF = I + E the modified direction is F(FᵀF)⁻¹e_n, the dual vector of f_n: its product with
f_n is 1, with every other f_n' 0. So only row n of W = FᵀY moves (Lemma 3). The proof keeps F constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scansnap.checks import InputError

if TYPE_CHECKING:  # the command line asks for the names, and must not wait for torch
    from torch import Tensor

UPDATES = ("gradient", "modified")
_INDEPENDENT = 1e-10  # smallest eigenvalue of FᵀF over the largest


def decoder_input(f: Tensor, update: str) -> Tensor:
    """The vectors that the update multiplies with e_n − α_n, (…, K, L) as f: f_n, or their dual vectors."""
    return f if update == "gradient" else (f @ f.mT).inverse() @ f


def check_update(f: Tensor, update: str) -> None:
    """Refuse the modified update where the f_n, (…, K, L), are linearly dependent."""
    if update == "gradient":
        return
    eigenvalues = np.linalg.eigvalsh((f @ f.mT).double().cpu().numpy())
    if not (eigenvalues[..., 0] > _INDEPENDENT * eigenvalues[..., -1]).all():
        reason = "the modified update needs linearly independent f_n; choose other classes or update='gradient'"
        raise InputError.conflict("update", reason, update)


def check_frozen(eta_z: float | np.ndarray, update: str) -> None:
    """Refuse the modified update of runs whose attention moves."""
    if update != "gradient" and np.any(eta_z):
        expected = "0 with update='modified', which is defined for frozen attention"
        raise InputError("eta_z", float(np.max(eta_z)), expected)

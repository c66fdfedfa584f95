"""The tables Y and Z that the weights of a transformer imply, for each head and in factored form.

    Z[m, l] = q_m · k_l/√d_head                       q_m = W_Q e_m + b_Q,  k_l = W_K e_l + b_K,  e_l = √d U[l]
    Y[l, j] = D_j · W_O v_l + (D_j · b_O + bias_j)/H     v_l = W_V e_l + b_V

Exact where a position's logits are a mixture of votes of tokens: one layer without norm, residual, feed-forward and
positions. Then logits_t = Σ_h Σ_s softmax_s(Z_h[x_t, x_s]) Y_h[x_s], over s ≤ t: the paper's model with the query
among the keys and f = c instead of c/‖c‖. (Biases of values and of the decoder enter Y, as the weights of a row sum
to one.)

Otherwise the tables are the direct path through a layer. They leave out the residual's bigram path, the feed-forward,
the scale and centring of norms (with ``pre`` their input), positions, and in layers above the first that states are
no embeddings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from scansnap.checks import InputError
from scansnap.text.transformer.settings import TransformerSettings


@dataclass(frozen=True, eq=False)
class ImpliedYZ:
    """Y = values outᵀ + constant and Z = queries keysᵀ, for each of H heads."""

    queries: Tensor  # (H, M, d_head), 1/√d_head included
    keys: Tensor  # (H, M, d_head)
    values: Tensor  # (H, M, d_head)
    out: Tensor  # (H, M, d_head)
    constant: Tensor  # (M,), the same for each context token
    exact: bool

    @property
    def y(self) -> Tensor:
        """(H, M, M), dense: 4 M² bytes for each head."""
        return self.values @ self.out.mT + self.constant

    @property
    def z(self) -> Tensor:
        """(H, M, M), dense."""
        return self.queries @ self.keys.mT


def implied_yz(settings: TransformerSettings, tensors: dict[str, Tensor], layer: int) -> ImpliedYZ:
    """From the weights by name."""
    s, at = settings, f"layer{layer}."
    if not 0 <= layer < s.layers:
        raise InputError("layer", layer, f"an integer from 0 to {s.layers - 1}")
    e = tensors["embedding"][: s.vocab_size] * (math.sqrt(s.width) if s.scaled else 1.0)  # (M, d)
    qkv = e @ tensors[at + "w_qkv"].mT  # (M, 3d)
    if s.bias:
        qkv = qkv + tensors[at + "b_qkv"]
    q, k, v = (part.unflatten(1, (s.heads, -1)).transpose(0, 1) for part in qkv.chunk(3, 1))  # (H, M, d_head)
    decoder = tensors["embedding"][: s.vocab_size] if s.tied else tensors["decoder"]  # (M, d)
    mixed = decoder @ tensors[at + "w_o"] if s.mixing else decoder
    constant = e.new_zeros(s.vocab_size)
    if s.bias:
        constant = constant + tensors["decoder_bias"]
        if s.mixing:
            constant = constant + decoder @ tensors[at + "b_o"]
    plain = s.norm == "none" and not s.residual and not s.feed_forward and s.positions == "none"
    return ImpliedYZ(
        queries=q / math.sqrt(q.shape[-1]),
        keys=k,
        values=v,
        out=mixed.unflatten(1, (s.heads, -1)).transpose(0, 1),
        constant=constant / s.heads,
        exact=plain and s.layers == 1 and s.objective == "next",
    )

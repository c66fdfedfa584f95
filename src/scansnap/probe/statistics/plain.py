"""Statistics of rows of attention by torch, without anything of their size but the rows themselves.

A query with a single key has no choice and counts nowhere; nor does a row that is all masked. Patterns (same token,
induction, copy) are means over the queries that have such a key, so that a rare pattern is not a weak one; ``…_all``
are means over all queries.

Sums over keys are products with a table of the keys, which all heads share. What uniform attention gives does not
depend on the head where what a query sees does not: it is computed once and kept for the layers that see the same.

    B sequences · H heads · Q queries · S keys · K lines: statistics, deciles, distinctness
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.kernels.cpu import attention as compiled
from scansnap.probe.capture import Rows
from scansnap.probe.schema import DECILES

SHARE = 0.95 - 1e-6  # of the attention whose keys are counted; 20 equal keys must not need 20 for a rounding error
N_PATTERNS = 3


class KeyTables:
    """What some queries look for in the keys, the same for every head and layer."""

    def __init__(
        self, queries: Tensor, tokens: Tensor | None, distinctness: Tensor | None, decile: Tensor | None
    ) -> None:
        self.queries = queries
        self.patterns = None if tokens is None else _patterns(queries, tokens)  # (B, Q, S) bytes, a bit for each
        self.by_key = _by_key(distinctness, decile)  # (B, S, DECILES + 2)
        self.has_decile = decile is not None
        self._kept: tuple[Tensor, Uniform] | None = None

    def uniform(self, visible: Tensor, dtype: torch.dtype) -> Uniform:
        """Of uniform attention over what is visible; that of the layer before, if it saw the same."""
        if self._kept is not None:
            seen, known = self._kept
            if known.n_keys.dtype == dtype and torch.equal(seen, visible):
                return known
        self._kept = visible, Uniform.of(visible, dtype, self)
        return self._kept[1]


@dataclass(frozen=True)
class Uniform:
    """What uniform attention over the visible keys gives, broadcasting to (B, H, Q)."""

    n_keys: Tensor  # visible
    at: tuple[Tensor, Tensor, Tensor]  # on the first, the own and the previous position; 0 where it is not visible
    patterns: Tensor | None  # (…, Q, N_PATTERNS)
    by_key: Tensor | None  # (…, Q, DECILES + 2)

    @classmethod
    def of(cls, visible: Tensor, dtype: torch.dtype, tables: KeyTables) -> Uniform:
        n_keys = visible.sum(-1).clamp_min(1).to(dtype)
        even = visible / n_keys[..., None]
        return cls(n_keys, _at(even, tables.queries), _on_patterns(even, tables.patterns), _by(even, tables.by_key))


def sums(rows: Rows, tables: KeyTables) -> Tensor:
    """(K, B, H, 3): over the queries the sum, that of uniform attention, and how many queries count."""
    p = rows.p
    uniform = tables.uniform(rows.visible[(None,) * (4 - rows.visible.ndim)], p.dtype)
    n_keys, most = uniform.n_keys, uniform.n_keys.log()
    entropy, top, needed, patterns = _of_rows(p, tables.patterns)
    counts = (n_keys > 1) & entropy.isfinite()  # (B, H, Q)
    found = [
        (entropy, most, counts),
        (entropy / most.clamp_min(1e-9), torch.ones_like(most), counts),
        (entropy.exp(), n_keys, counts),
        (top, 1 / n_keys, counts),
        (needed / n_keys, (SHARE * n_keys).ceil() / n_keys, counts),
    ]
    found += [(on, even, counts & (even > 0)) for on, even in zip(_at(p, tables.queries), uniform.at, strict=True)]
    none, never = torch.zeros_like(most), torch.zeros_like(counts)
    if patterns is None or uniform.patterns is None:
        found += [(none, none, never)] * (2 * N_PATTERNS)
    else:
        some = list(zip(patterns.unbind(-1), uniform.patterns.unbind(-1), strict=True))
        found += [(on, even, counts & (even > 0)) for on, even in some] + [(on, even, counts) for on, even in some]
    on, even = _by(p, tables.by_key), uniform.by_key
    if on is None or even is None:
        found += [(none, none, never)] * (DECILES + 1)
    else:
        known = counts if tables.has_decile else never
        found += [(on[..., d], even[..., d], known) for d in range(DECILES)]
        mean, baseline = on[..., -2] / on[..., -1], even[..., -2] / even[..., -1]
        found.append((mean, baseline, counts & (on[..., -1] > 0)))
    return torch.stack([torch.stack([torch.where(c, v, 0).sum(-1), torch.where(c, u, 0).sum(-1), c.sum(-1)], -1)
                        for v, u, c in found])  # fmt: skip


def _of_rows(p: Tensor, patterns: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Of each row (B, H, Q): entropy, largest weight, size of the smallest set of keys with SHARE of the weight, and
    the weight on the patterns. No set of m keys has more than the m largest, so ties do not matter. The entropy is not
    finite where the row is no attention."""
    if compiled.takes(p):
        found = compiled.rows(p, SHARE, patterns)
        return found[..., 0], found[..., 1], found[..., 2], None if patterns is None else found[..., 3:]
    ordered = p.sort(dim=-1, descending=True).values
    total = ordered.cumsum(-1)
    needed = 1 + (total[..., :-1] < SHARE * total[..., -1:]).sum(-1)
    return torch.special.entr(p).sum(-1), ordered[..., 0], needed.to(p.dtype), _on_patterns(p, patterns)


def _at(weights: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """On the first key, at the query's own position and at the one before; 0 where there is no such key."""
    own = [torch.where((at >= 0) & (at < weights.shape[-1]),
                       weights[..., torch.arange(len(at), device=at.device), at.clamp(0, weights.shape[-1] - 1)], 0.0)
           for at in (queries, queries - 1)]  # fmt: skip
    return weights[..., 0], own[0], own[1]


def _on_patterns(weights: Tensor, patterns: Tensor | None) -> Tensor | None:
    """Weights (…, Q, S) on the keys of each pattern, (B, H, Q, N_PATTERNS)."""
    if patterns is None:
        return None
    return torch.stack([(weights * ((patterns >> i) & 1)[:, None]).sum(-1) for i in range(N_PATTERNS)], -1)


def _by(weights: Tensor, by_key: Tensor | None) -> Tensor | None:
    """Weights (…, H, Q, S) times the table of keys (B, S, n): (B, H, Q, n)."""
    if by_key is None:
        return None
    dtype = torch.float64 if weights.is_cuda else weights.dtype  # float32 products may be TF32's there
    return (weights.flatten(1, 2).to(dtype) @ by_key.to(dtype)).unflatten(1, weights.shape[1:3]).to(weights.dtype)


def _patterns(queries: Tensor, tokens: Tensor) -> Tensor:
    """Bits of keys with the same token (1), after such a key (2), and with the next token (4)."""
    key, query = torch.arange(tokens.shape[1], device=tokens.device), queries[:, None]
    of_query, of_key = tokens[:, queries][:, :, None], tokens[:, None, :]
    before = torch.cat([torch.full_like(of_key[..., :1], -1), of_key[..., :-1]], dim=-1)  # the token before a key
    following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -1)], dim=1)[:, queries][:, :, None]
    found = [(of_key == of_query) & (key < query), (before == of_query) & (key <= query),
             (of_key == following) & (key <= query)]  # fmt: skip
    return sum((one.to(torch.uint8) << i for i, one in enumerate(found)), torch.zeros_like(found[0], dtype=torch.uint8))


def _by_key(distinctness: Tensor | None, decile: Tensor | None) -> Tensor | None:
    """Of each key whether it is in a decile, its distinctness (0 where unknown), and whether that is known."""
    if distinctness is None:
        if decile is None:
            return None
        distinctness = torch.full_like(decile, torch.nan, dtype=torch.float32)
    group = torch.full_like(distinctness, -1, dtype=torch.long) if decile is None else decile
    known = distinctness.isfinite()
    member = group[..., None] == torch.arange(DECILES, device=group.device)
    score = torch.where(known, distinctness, 0.0)
    return torch.cat([member.to(score), score[..., None], known[..., None].to(score)], -1)

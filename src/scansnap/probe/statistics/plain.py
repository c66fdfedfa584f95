"""Statistics of rows of attention in torch, with no temporary arrays of their size.

Queries with a single visible key and fully masked rows are not counted. Patterns (same token, induction, copy) are
means over the queries that have such a key, so that rare patterns do not appear weak; ``…_all`` are over all queries.

Sums over keys are products with a table of the keys, which all heads share. The values of uniform attention are
computed once for all layers with the same visible keys.

    B sequences · H heads · Q queries · S keys · K lines: statistics, deciles, distinctness
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.kernels.cpu import attention as compiled
from scansnap.probe.capture import AttentionRows
from scansnap.probe.schema import DECILES

SHARE = 0.95 - 1e-6  # less a rounding error, so that 19 of 20 equal keys suffice
N_PATTERNS = 3


class KeyTables:
    """Properties of the keys for some queries, shared by all heads and layers."""

    def __init__(
        self,
        queries: Tensor,
        tokens: Tensor | None,
        distinctness: Tensor | None,
        decile: Tensor | None,
        sinks: Tensor | None = None,
        start: Tensor | None = None,
    ) -> None:
        self.queries, self.sinks, self.start = queries, sinks, start
        self.patterns = None if tokens is None else _patterns(queries, tokens)  # (B, Q, S) bytes, a bit for each
        self.by_key = _by_key(distinctness, decile)  # (B, S, DECILES + 2)
        self.has_decile = decile is not None
        self._cached: tuple[Tensor, UniformValues] | None = None

    def uniform(self, visible: Tensor, dtype: torch.dtype) -> UniformValues:
        """The values of uniform attention; cached for layers with the same visible keys."""
        if self._cached is not None:
            mask, values = self._cached
            if values.n_keys.dtype == dtype and torch.equal(mask, visible):
                return values
        self._cached = visible, UniformValues.of(visible, dtype, self)
        return self._cached[1]


@dataclass(frozen=True)
class UniformValues:
    """The values of uniform attention over the visible keys, broadcasting to (B, H, Q)."""

    n_keys: Tensor  # visible
    at: tuple[Tensor, Tensor, Tensor]  # on the first, the own and the previous position; 0 if not visible
    patterns: Tensor | None  # (…, Q, N_PATTERNS)
    by_key: Tensor | None  # (…, Q, DECILES + 2)

    @classmethod
    def of(cls, visible: Tensor, dtype: torch.dtype, tables: KeyTables) -> UniformValues:
        n_keys = visible.sum(-1).clamp_min(1).to(dtype)
        even = visible / n_keys[..., None]
        return cls(n_keys, _at(even, tables), _on_patterns(even, tables.patterns), _by(even, tables.by_key))


def sums(rows: AttentionRows, tables: KeyTables) -> tuple[Tensor, Tensor]:
    """(K, B, H, 3): the sum over queries, that of uniform attention, and the number of queries.

    Also the number (B, H) of queries whose attention is not finite; the sums do not count them.
    """
    p = rows.p
    uniform = tables.uniform(rows.visible[(None,) * (4 - rows.visible.ndim)], p.dtype)
    n_keys, most = uniform.n_keys, uniform.n_keys.log()
    entropy, top, needed, patterns = _of_rows(p, tables.patterns)
    has_choice, is_finite = n_keys > 1, entropy.isfinite()
    counts = has_choice & is_finite  # (B, H, Q)
    lines = [
        (entropy, most, counts),
        (entropy / most.clamp_min(1e-9), torch.ones_like(most), counts),
        (entropy.exp(), n_keys, counts),
        (top, 1 / n_keys, counts),
        (needed / n_keys, (SHARE * n_keys).ceil() / n_keys, counts),
    ]
    lines += [(on, even, counts & (even > 0)) for on, even in zip(_at(p, tables), uniform.at, strict=True)]
    blocks = [tuple(part[None] for part in line) for line in lines]  # (lines, B, H, Q)
    none, never = torch.zeros_like(most), torch.zeros_like(counts)
    if patterns is None or uniform.patterns is None:
        blocks.append((none.expand(2 * N_PATTERNS, *none.shape), none, never))
    else:
        on, even = patterns.movedim(-1, 0), uniform.patterns.movedim(-1, 0)
        blocks += [(on, even, counts & (even > 0)), (on, even, counts)]
    by_key, even_by_key = _by(p, tables.by_key), uniform.by_key
    if by_key is None or even_by_key is None:
        blocks.append((none.expand(DECILES + 1, *none.shape), none, never))
    else:
        on, even = by_key.movedim(-1, 0), even_by_key.movedim(-1, 0)
        blocks.append((on[:DECILES], even[:DECILES], counts if tables.has_decile else never))
        blocks.append(((on[-2] / on[-1])[None], (even[-2] / even[-1])[None], counts & (on[-1] > 0)))
    values, uniforms, counted = (
        torch.cat([block[i].expand(len(block[0]), *p.shape[:3]) for block in blocks]) for i in range(3)
    )
    sums = [torch.where(counted, part, 0).sum(-1) for part in (values, uniforms)]
    return torch.stack([*sums, counted.sum(-1)], -1), (has_choice & ~is_finite).sum(-1)


def _of_rows(p: Tensor, patterns: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Of each row (B, H, Q): entropy, largest weight, size of the smallest set of keys with SHARE of the weight, and
    the weight on the patterns. The entropy is not finite for rows that are no attention."""
    if compiled.takes(p):
        values = compiled.rows(p, SHARE, patterns)
        return values[..., 0], values[..., 1], values[..., 2], None if patterns is None else values[..., 3:]
    ordered = p.sort(dim=-1, descending=True).values
    total = ordered.cumsum(-1)
    needed = 1 + (total[..., :-1] < SHARE * total[..., -1:]).sum(-1)
    return torch.special.entr(p).sum(-1), ordered[..., 0], needed.to(p.dtype), _on_patterns(p, patterns)


def _at(weights: Tensor, tables: KeyTables) -> tuple[Tensor, Tensor, Tensor]:
    """On the first key or the sinks, the query's own position and the one before; 0 if there is no such key."""
    queries, start = tables.queries, tables.start
    own = [torch.where((at >= 0) & (at < weights.shape[-1]),
                       weights[..., torch.arange(len(at), device=at.device), at.clamp(0, weights.shape[-1] - 1)], 0.0)
           for at in (queries, queries - 1)]  # fmt: skip
    if tables.sinks is not None:
        return (weights * tables.sinks[:, None, None]).sum(-1), own[0], own[1]
    if start is None:
        return weights[..., 0], own[0], own[1]
    weights = weights.expand(len(start), -1, -1, -1)
    at_start = start[:, None, None, None].expand(*weights.shape[:3], 1)  # after padding on the left
    return weights.gather(-1, at_start)[..., 0], own[0], own[1]


def _on_patterns(weights: Tensor, patterns: Tensor | None) -> Tensor | None:
    """Weights (…, Q, S) on the keys of each pattern, (B, H, Q, N_PATTERNS)."""
    if patterns is None:
        return None
    return torch.stack([(weights * ((patterns >> i) & 1)[:, None]).sum(-1) for i in range(N_PATTERNS)], -1)


def _by(weights: Tensor, by_key: Tensor | None) -> Tensor | None:
    """Weights (…, H, Q, S) times the table of keys (B, S, n): (B, H, Q, n)."""
    if by_key is None:
        return None
    dtype = torch.float64 if weights.is_cuda else weights.dtype  # float32 products may use TF32
    return (weights.flatten(1, 2).to(dtype) @ by_key.to(dtype)).unflatten(1, weights.shape[1:3]).to(weights.dtype)


def _patterns(queries: Tensor, tokens: Tensor) -> Tensor:
    """Bits for keys with the same token (1), after such a key (2), and with the next token (4)."""
    key, query = torch.arange(tokens.shape[1], device=tokens.device), queries[:, None]
    of_query, of_key = tokens[:, queries][:, :, None], tokens[:, None, :]
    before = torch.cat([torch.full_like(of_key[..., :1], -1), of_key[..., :-1]], dim=-1)  # the token before a key
    following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -1)], dim=1)[:, queries][:, :, None]
    masks = [(of_key == of_query) & (key < query), (before == of_query) & (key <= query),
             (of_key == following) & (key <= query)]  # fmt: skip
    return sum(
        (mask.to(torch.uint8) << i for i, mask in enumerate(masks)), torch.zeros_like(masks[0], dtype=torch.uint8)
    )


def _by_key(distinctness: Tensor | None, decile: Tensor | None) -> Tensor | None:
    """Of each key its decile (one-hot), its distinctness (0 if unknown), and whether that is known."""
    if distinctness is None:
        if decile is None:
            return None
        distinctness = torch.full_like(decile, torch.nan, dtype=torch.float32)
    group = torch.full_like(distinctness, -1, dtype=torch.long) if decile is None else decile
    known = distinctness.isfinite()
    member = group[..., None] == torch.arange(DECILES, device=group.device)
    score = torch.where(known, distinctness, 0.0)
    return torch.cat([member.to(score), score[..., None], known[..., None].to(score)], -1)

"""One update of a model from a batch that is divided: over the processes of a group, and in each into parts in turn.

Process r of R has the windows from ⌊rE/R⌋ on of a batch of E; a part of b windows counts b/E, as a mean over all
positions needs it. The sum of directions is the same in every process, to the last bit, and so are the weights after
it. Exchanged are sums of whole directions where a model has them, and of touched tables ids and rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from scansnap.text.model import LanguageModel
from scansnap.text.parallel.directions import Directions, Portion, Sum, Touched
from scansnap.text.parallel.group import Group


def bounds(n: int, parts: int) -> list[int]:
    """Where parts of as equal a size as can be begin, and the end."""
    return [n * i // parts for i in range(parts + 1)]


def divided_step(
    model: LanguageModel, inputs: Tensor, targets: Tensor, accumulate: int = 1, group: Group | None = None
) -> Tensor:
    """One update on a batch (E, T) that every process has whole; the mean loss before it, as of ``train_step``."""
    windows = len(inputs)
    edges = bounds(windows, 1 if group is None else group.size)
    first, last = (0, windows) if group is None else edges[group.rank : group.rank + 2]
    parts = Sum()
    loss = torch.zeros((), dtype=torch.float64, device=inputs.device)
    for begin, end in _parts(first, last, accumulate):
        here, found = model.directions(inputs[begin:end], targets[begin:end], Portion(begin, windows))
        share = (end - begin) / windows
        parts.add(found, share)
        loss += here * share
    total = parts.result(summed=group is not None)
    if group is not None:
        total = _exchanged(total, loss, group, [b - a for a, b in pairwise(edges)])
    model.move(total)
    return loss


def _parts(first: int, last: int, n: int) -> Iterator[tuple[int, int]]:
    edges = [first + edge for edge in bounds(last - first, n)]
    return ((a, b) for a, b in pairwise(edges) if a < b)


def _exchanged(mine: Directions, loss: Tensor, group: Group, windows: list[int]) -> Directions:
    """Directions and loss (in place) summed over the group; ``windows`` are how many each process has."""
    dense = {name: d for name, d in mine.items() if isinstance(d, Tensor)}
    touched = {name: d for name, d in mine.items() if isinstance(d, Touched)}
    group.sum([*dense.values(), loss])
    found: Directions = dict(dense)
    lengths = {name: [len(d.ids) // windows[group.rank] * n for n in windows] for name, d in touched.items()}
    if any(d.distinct for d in touched.values()):  # how many tokens a part of the batch has, nobody else knows
        told = group.numbers([len(d.ids) for d in touched.values()])
        lengths = {name: [row[i] for row in told] for i, name in enumerate(touched)}
    for name, d in touched.items():
        found[name] = Touched(group.gather(d.ids, lengths[name]), group.gather(d.rows, lengths[name]), distinct=False)
    return {name: found[name] for name in mine}

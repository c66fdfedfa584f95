"""Initial values of YZ models: drawn for one, or kept for all models of a seed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import torch
from torch import Tensor

from scansnap.text.yz.settings import YZSettings

Draw = Callable[[tuple[int, int]], Tensor]  # initial values of a table or of a factor


class InitialTables:
    """Initial values of one seed, kept on a device for all models that begin with them, whatever their depth.

    Layers are drawn one after the other, so those of a deeper model begin with those of a shallower one. At 5,000 words
    drawing a table takes as long as a hundred steps: those that a deeper model may need are drawn while another learns.
    """

    AHEAD = 4  # tables: two layers

    def __init__(self, settings: YZSettings, device: str | torch.device) -> None:
        self.settings, self.device = settings, device
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.drawn: list[Tensor] = []
        self._coming: list[Future[Tensor]] = []
        self._one_by_one = ThreadPoolExecutor(1)  # does nothing on the device, which may be recording a step

    def draw(self) -> Draw:
        """For one model, from the first table on."""
        at = count()

        def next_one(shape: tuple[int, int]) -> Tensor:
            i = next(at)
            while len(self.drawn) + len(self._coming) <= i + self.AHEAD:
                self._coming.append(self._one_by_one.submit(self.settings.draw, shape, self.generator))
            if i == len(self.drawn):
                self.drawn.append(self._coming.pop(0).result().to(self.device))
            return self.drawn[i]

        return next_one

    def fits(self, settings: YZSettings) -> bool:
        """Whether these are the initial values of such a model."""
        names = ("vocab_size", "rank", "init", "seed", "dtype")
        return all(getattr(settings, name) == getattr(self.settings, name) for name in names)

"""A language model in the paper's own Y, Z parametrisation, over a whole vocabulary of real text.

One layer is exactly the model of the paper (Lemma 1) with every position of a window as a query. The tables are full
(M, M); what makes that affordable is that a batch touches few of their rows: attention, norms and gradients live
among the T positions of a window, and only logits have size M. Several layers and low-rank tables are variants of the
same equations, see :mod:`scansnap.text.yz.layers`. Gradients are written out, not traced, and a table moves as soon
as its own is known.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scansnap.checks import InputError, real
from scansnap.kernels.cuda import triton_available
from scansnap.text.on_cuda import RecordedSteps, Step, products_on
from scansnap.text.parallel.directions import Directions, Portion, Touched, asked_for
from scansnap.text.updates import Call, Collecting
from scansnap.text.yz.layers import Between, FirstLayer, SoftLayer, between, between_backward
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import FullTable, LowRankTable, WeightTable, in_turn
from scansnap.text.yz.window import allowed

LONGEST_FUSED = 64  # positions of a window that fit the kernels' tiles; longer ones go through plain torch


class YZTransformer:
    """A trainable YZ model; ``LanguageModel`` in its shape.

    fused      steps through the kernels of fused.py: one layer, full rank, float32, on CUDA; None: if possible
    graphs     steps on CUDA are recorded once for each batch shape and replayed
    listening  updates are made with attention kept uniform: Y learns, Z only gathers −η_Z ∇_Z along that run, which
               predicts Z of a training (:mod:`scansnap.text.prediction`); everything but an update goes by Z
    """

    def __init__(
        self,
        settings: YZSettings,
        device: str | torch.device = "cpu",
        *,
        fused: bool | None = None,
        graphs: bool = True,
        listening: bool = False,
    ) -> None:
        if listening:
            check_listening(settings)
        self.settings, self.listening = settings, listening
        self.vocab_size, self.layers = settings.vocab_size, settings.layers
        self.device = torch.device(device)
        generator = torch.Generator().manual_seed(settings.seed)
        kind = FullTable if settings.rank is None else LowRankTable
        self.y: list[WeightTable] = []
        self.z: list[WeightTable] = []
        for eta_y, eta_z in settings.rates:
            self.y.append(kind(settings, eta_y, generator, self.device))
            self.z.append(kind(settings, eta_z, generator, self.device))
        self.first = FirstLayer(settings, self.y[0], self.z[0])
        self.above = [SoftLayer(settings, y, z) for y, z in zip(self.y[1:], self.z[1:], strict=True)]
        self.step = torch.zeros((), dtype=torch.float64, device=self.device)  # updates done
        possible = (
            self.device.type == "cuda" and settings.layers == 1 and settings.rank is None
            and settings.dtype == "float32" and settings.norm in ("l2", "none")
            and settings.optimizer in ("sgd", "momentum", "adam") and not settings.weight_decay and triton_available()
        )  # fmt: skip
        if fused and not possible:
            raise InputError("fused", fused, "false unless on CUDA, with Triton, one layer, full rank and float32")
        self.fused = possible if fused is None else fused
        self._fused: dict[torch.Size, Step] = {}  # by batch shape
        self.steps, self.divided = RecordedSteps(self.device, graphs), RecordedSteps(self.device, graphs)
        self._kernels: dict[str, Any] = {}  # as _fused, of steps that move nothing
        self._asked: dict[torch.Size, list[Call]] = {}  # by them
        self._moving: list[Call] = []  # of the last of them

    @classmethod
    def from_description(cls, description: dict[str, Any], device: str | torch.device = "cpu") -> YZTransformer:
        """The model :meth:`describe` tells of, with its initial values."""
        values = {key: value for key, value in description.items() if key not in ("kind", "listening")}
        return cls(YZSettings.from_dict(values), device, listening=bool(description.get("listening", False)))

    def describe(self) -> dict[str, Any]:
        return {"kind": "yz", **({"listening": True} if self.listening else {}), **self.settings.to_dict()}

    def tensors(self) -> dict[str, Tensor]:
        """layer0.y, layer0.z, … (``.left`` and ``.right`` of low-rank ones), their moments, and the number of updates.

        On CUDA a full table is a view without its padding, so not contiguous; write into it with ``copy_``.
        """
        found = {"step": self.step}
        for layer, tables in enumerate(zip(self.y, self.z, strict=True)):
            for name, table in zip("yz", tables, strict=True):
                found |= {f"layer{layer}.{name}{part}": tensor for part, tensor in table.tensors().items()}
        return found

    def scale_rates(self, factor: float) -> None:
        """All rates to ``factor`` times those of the settings, for a schedule."""
        for y, z, (eta_y, eta_z) in zip(self.y, self.z, self.settings.rates, strict=True):
            y.eta.fill_(eta_y * factor)
            z.eta.fill_(eta_z * factor)

    @torch.no_grad()
    def logits(self, inputs: Tensor, keep: float | None = None) -> Tensor:
        """(B, T, M). ``keep``: in every layer, attention only to the fewest keys with this mass, renormalised."""
        if keep is not None:
            real("keep", keep, above=0, most=1)
        with products_on(self.device, self.settings.precision):
            return self._forward(inputs, keep)[0][-1].h

    @torch.no_grad()
    def attention(self, inputs: Tensor) -> list[Tensor]:
        with products_on(self.device, self.settings.precision):
            if self.layers == 1:
                return [self.first.attend(inputs)[1].b[:, None]]
            return [done.b[:, None] for done in self._forward(inputs)[0]]

    def keys(self, length: int) -> Tensor:
        return allowed(length, self.settings.query_in_keys, self.device)

    @torch.no_grad()
    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if inputs.shape != targets.shape or inputs.ndim != 2:
            raise InputError(
                "targets", tuple(targets.shape), f"of the inputs' shape (B, T), here {tuple(inputs.shape)}"
            )
        return self.steps.run(self._step, inputs, targets)

    @torch.no_grad()
    def directions(self, inputs: Tensor, targets: Tensor, part: Portion) -> tuple[Tensor, Directions]:
        """See the protocol; nothing is drawn here, so it does not matter which part it is."""
        loss = self.divided.run(self._part_step, inputs, targets)
        self._moving = self._asked[inputs.shape] if self.divided.on else self._asked.pop(inputs.shape)
        return loss, asked_for(self._moving)

    @torch.no_grad()
    def move(self, directions: Directions) -> None:
        self.step += 1
        for call, d in zip(self._moving, directions.values(), strict=True):
            if isinstance(d, Touched):
                self.settings.update.move_rows(call.table, d.ids, d.rows, call.moments, call.eta, self.step)
            else:
                self.settings.update.move(call.table, d, call.moments, call.eta, self.step)
        self._moving = []

    def _part_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """A step whose tables stay. What was asked of them is kept by shape, as a replayed graph fills it again."""
        tables, rule = [*self.y, *self.z], self.settings.update
        asked = Collecting(rule.optimizer, rule.momentum, rule.weight_decay)
        # kernels are made for a rule, so those of steps that move and of steps that do not are kept apart
        moving = {name: kept for name, kept in vars(self).items() if name.startswith("_fused")}
        vars(self).update(self._kernels or {name: {} for name in moving})
        for table in tables:
            table.update = asked
        try:
            loss = self._step(inputs, targets)
        finally:
            self._kernels = {name: getattr(self, name) for name in moving}
            vars(self).update(moving)
            for table in tables:
                table.update = rule
        self.step -= 1
        self._asked[inputs.shape] = asked.calls
        return loss

    def _step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if not self.fused or inputs.shape[1] > LONGEST_FUSED:
            return self._plain_step(inputs, targets)
        if inputs.shape not in self._fused:
            from scansnap.text.yz.fused import FusedStep  # imports Triton

            y, z = self.y[0], self.z[0]
            assert isinstance(y, FullTable)
            assert isinstance(z, FullTable)
            self._fused[inputs.shape] = FusedStep(y, z, self.settings, self.step, inputs.shape, uniform=self.listening)
        return self._fused[inputs.shape](inputs, targets)

    def _forward(
        self, inputs: Tensor, keep: float | None = None, *, uniform: bool = False
    ) -> tuple[list[Any], list[Between]]:
        """Passes of the layers, and what lies between them."""
        passes: list[Any] = [self.first.forward(inputs, keep, uniform=uniform)]
        steps: list[Between] = []
        for layer in self.above:
            f = passes[-1].f(passes[-1].h) if self.settings.residual != "none" else None
            steps.append(between(passes[-1].h, f, self.settings))
            passes.append(layer.forward(steps[-1].u, keep))
        return passes, steps

    def _plain_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update in torch."""
        with products_on(self.device, self.settings.precision):
            self.step += 1
            passes, steps = self._forward(inputs, uniform=self.listening)
            loss = cross_entropy_(passes[-1].h, targets)
            dh, df = passes[-1].h, None
            for layer, done, below in zip(self.above[::-1], passes[:0:-1], steps[::-1], strict=True):
                dh, dv = between_backward(below, layer.backward(done, dh, df, self.step), self.settings)
                df = dv if self.settings.residual != "none" else None
            self.first.backward(passes[0], dh, df, self.step)
            return loss


def check_listening(settings: YZSettings) -> None:
    """Whether a model of these settings can listen."""
    for name, needed, must in (
        ("layers", 1, "1 for a prediction, which is made for one layer"),
        ("rank", None, "left out for a prediction, which needs full tables"),
        ("init", "zero", "zero for a prediction, which begins with uniform attention"),
    ):
        if getattr(settings, name) != needed:
            raise InputError(name, getattr(settings, name), must)


def cross_entropy_(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of −log α_n over all positions; the logits (B, T, M) become its direction, (e_n − α)/N, in place."""
    losses, share = torch.empty_like(targets, dtype=logits.dtype), 1 / targets.numel()
    for w in in_turn(targets, logits.shape[-1]):
        h, n = logits[w], targets[w][..., None]
        h.sub_(h.amax(-1, keepdim=True))
        right = h.gather(-1, n)
        total = h.exp_().sum(-1, keepdim=True)
        torch.sub(total.log(), right, out=losses[w][..., None])
        h.mul_(-share / total)
        h.scatter_add_(-1, n, torch.full_like(total, share))  # one place in each row: no order to mind
    return losses.mean()

"""A language model in the paper's own Y, Z parametrisation, over a whole vocabulary of real text.

One layer is exactly the model of the paper (Lemma 1) with every position of a window as a query. The tables are full
(M, M); what makes that affordable is that a batch touches few of their rows: attention, norms and gradients live
among the T positions of a window, and only logits have size M. Several layers and low-rank tables are variants of the
same equations, see :mod:`scansnap.text.yz.layers`. Gradients are written out, not traced, and a table moves as soon
as its own is known.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scansnap.checks import InputError, check_float
from scansnap.kernels.cuda import triton_available
from scansnap.text.on_cuda import GraphedSteps, Step, products_on
from scansnap.text.yz.layers import (
    StateActivations,
    StateLayer,
    TokenActivations,
    TokenLayer,
    Transition,
    between,
    between_backward,
)
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.start import InitialTables
from scansnap.text.yz.tables import FullTable, LowRankTable, TableRows, WeightTable, in_turn
from scansnap.text.yz.window import allowed

IN_ONE_TILE = 64  # positions of a window up to which one layer has kernels for all of it, attention too


class YZTransformer:
    """A trainable YZ model; ``LanguageModel`` in its shape.

    fused      steps through the kernels of fused.py and fused_votes.py (one layer, full rank, float32, on CUDA); None:
               if possible
    graphs     steps on CUDA are recorded once for each batch shape and replayed
    listening  updates are made with attention kept uniform: Y learns, Z only gathers −η_Z ∇_Z along that run, which
               predicts Z of a training (:mod:`scansnap.text.prediction`); everything but an update goes by Z
    start      the initial values of the seed, where several models share them; None: they are drawn
    """

    def __init__(
        self,
        settings: YZSettings,
        device: str | torch.device = "cpu",
        *,
        fused: bool | None = None,
        graphs: bool = True,
        listening: bool = False,
        start: InitialTables | None = None,
    ) -> None:
        if listening:
            check_listening(settings)
        self.settings, self.listening = settings, listening
        self.vocab_size, self.layers = settings.vocab_size, settings.layers
        self.device = torch.device(device)
        if start is not None and not start.fits(settings):
            raise InputError("start", start.settings, "of the same vocabulary, rank, init, seed and dtype")
        generator = torch.Generator().manual_seed(settings.seed)
        draw = partial(settings.draw, generator=generator) if start is None else start.draw()
        kind = FullTable if settings.rank is None else LowRankTable
        self.y: list[WeightTable] = []
        self.z: list[WeightTable] = []
        for eta_y, eta_z in settings.rates:
            self.y.append(kind(settings, eta_y, draw, self.device))
            self.z.append(kind(settings, eta_z, draw, self.device))
        dense = self.device.type == "cuda" and settings.layers > 1 and settings.rank is None
        self.aside = torch.cuda.Stream(self.device) if dense else None
        for table in self.y[1:] + self.z[1:]:
            if isinstance(table, FullTable):
                table.aside = self.aside
        self.first = TokenLayer(settings, self.z[0])
        self.above = [StateLayer(settings, z) for z in self.z[1:]]
        self.step = torch.zeros((), dtype=torch.float64, device=self.device)  # updates done
        possible = (
            self.device.type == "cuda" and settings.rank is None and settings.layers == 1
            and settings.dtype == "float32" and settings.norm in ("l2", "none")
            and settings.optimizer in ("sgd", "momentum", "adam") and not settings.weight_decay and triton_available()
        )  # fmt: skip
        if fused and not possible:
            must = "false unless on CUDA, with Triton, full rank, float32 and one layer"
            raise InputError("fused", fused, must)
        self.fused = possible if fused is None else fused
        self._fused: dict[torch.Size, Step] = {}  # by batch shape
        self._fused_last: dict[Any, Any] = {}  # of one layer, by the shape of its f
        self.steps = GraphedSteps(self.device, graphs)

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
            check_float("keep", keep, above=0, most=1)
        with products_on(self.device, self.settings.precision):
            done = self._forward(inputs, keep)
            return done.y.apply(done.f)[..., : self.vocab_size]

    @torch.no_grad()
    def attention(self, inputs: Tensor) -> list[Tensor]:
        with products_on(self.device, self.settings.precision):
            return [b[:, None] for b in self._forward(inputs).b]

    def keys(self, length: int) -> Tensor:
        return allowed(length, self.settings.query_in_keys, self.device)

    @torch.no_grad()
    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if inputs.shape != targets.shape or inputs.ndim != 2:
            raise InputError(
                "targets", tuple(targets.shape), f"of the inputs' shape (B, T), here {tuple(inputs.shape)}"
            )
        return self.steps.run(self._step, inputs, targets)

    def _step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if not self.fused or inputs.shape[1] > IN_ONE_TILE:
            return self._step_by_layers(inputs, targets)
        if inputs.shape not in self._fused:
            from scansnap.text.yz.fused import FusedStep  # imports Triton

            y, z = self.y[0], self.z[0]
            assert isinstance(y, FullTable)
            assert isinstance(z, FullTable)
            self._fused[inputs.shape] = FusedStep(y, z, self.settings, self.step, inputs.shape, uniform=self.listening)
        return self._fused[inputs.shape](inputs, targets)

    def _forward(self, inputs: Tensor, keep: float | None = None, *, training: bool = False) -> _ForwardActivations:
        """Up to the last f. Its votes are left to whoever needs them."""
        uniform = training and self.listening
        s = self.settings
        done = _ForwardActivations(
            TableRows(self.y[0], inputs), self.first.forward(inputs, keep, uniform=uniform), [], []
        )
        y, f = done.first_y, done.first.f
        for layer, table in zip(self.above, self.y[1:], strict=True):
            h = y.apply(f)
            if not done.steps and s.residual != "none":
                f = done.first.on_vocabulary(table.width)
            done.steps.append(between(h, f if s.residual != "none" else None, s))
            done.above.append(layer.forward(done.steps[-1].u, keep))
            y, f = TableRows(table), done.above[-1].f
        return done._replace(y=y, f=f)

    def _step_by_layers(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update, layer after layer in torch; what has the size of the vocabulary in the last one may be fused."""
        with products_on(self.device, self.settings.precision):
            done = self._forward(inputs, training=True)
            if self.fused:
                loss, g = self._fused_votes(done, targets)
            else:
                h = done.y.apply(done.f)
                loss = cross_entropy_(h[..., : self.vocab_size], targets)
                g = done.y.apply_backward(done.f, h, self.step)
            self._backward(done, g)
            self.step += 1
            return loss

    def _fused_votes(self, done: _ForwardActivations, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss and the direction of f, weights of positions; Y moves."""
        from scansnap.text.yz.fused_votes import FusedVotes, WindowTokens  # imports Triton

        basis = WindowTokens.of(done.first.x)
        at = basis.places[:, None, :].expand_as(done.f)
        f = done.f.new_zeros(*targets.shape, basis.ids.shape[1]).scatter_add_(-1, at, done.first.on_tokens())
        if f.shape not in self._fused_last:
            y = self.y[0]
            assert isinstance(y, FullTable)
            self._fused_last[f.shape] = FusedVotes(y, self.settings, self.step, f.shape)
        loss, g = self._fused_last[f.shape](basis, f, targets)
        return loss, g.gather(-1, at)

    def _backward(self, done: _ForwardActivations, g: Tensor) -> None:
        """All that is below the last Y, from the direction g of the last f."""
        s, tables = self.settings, self.y[:-1]
        for i in reversed(range(len(self.above))):
            du = self.above[i].backward(done.above[i], g, self.step)
            dh, df = between_backward(done.steps[i], du, s)
            y, f = (TableRows(tables[i]), done.above[i - 1].f) if i > 0 else (done.first_y, done.first.f)
            g = y.apply_backward(f, dh, self.step)
            if s.residual != "none":
                if i == 0:
                    df = df.gather(-1, done.first.x[:, None, :].expand_as(g))
                g = g + df
        self.first.backward(done.first, g, self.step)
        if self.aside is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.aside)


class _ForwardActivations(NamedTuple):
    """The passes of all layers and the steps between them."""

    first_y: TableRows
    first: TokenActivations
    above: list[StateActivations]
    steps: list[Transition]
    y: TableRows = None  # type: ignore[assignment]  # of the last layer
    f: Tensor = None  # type: ignore[assignment]  # of the last layer

    @property
    def b(self) -> list[Tensor]:
        return [self.first.b, *(done.b for done in self.above)]


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
    if logits.is_cuda and logits.dtype == torch.float32 and triton_available():
        from scansnap.text.transformer import cross_entropy_triton as fused  # imports Triton

        return fused.cross_entropy_(logits.flatten(0, 1), targets.flatten(), -1 / targets.numel()).mean()
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

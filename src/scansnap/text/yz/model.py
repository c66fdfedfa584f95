"""A language model in the paper's own Y, Z parametrisation, over a whole vocabulary of real text.

One layer is exactly the model of the paper (Lemma 1) with every position of a window as a query. The tables are full
(M, M). A batch touches few of their rows: attention, norms and gradients are computed among the T positions of a
window, and only logits have size M. Several layers and low-rank tables are variants of the same equations, see
`scansnap.text.yz.layers`. The gradients are explicit, without autograd, and each table is updated as soon as its
own gradient is known.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scansnap.checks import InputError, check_float
from scansnap.kernels.cuda import triton_available
from scansnap.text.cuda import GraphedSteps, Step, matmul_precision
from scansnap.text.yz import layers
from scansnap.text.yz.layers import StateActivations, StateLayer, TokenActivations, TokenLayer, Transition
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import FullTable, InitialTables, LowRankTable, TableRows, WeightTable, window_slices

MAX_TILE = 64  # positions of a window up to which one layer has kernels for all of it, attention too


class YZTransformer:
    """A trainable YZ model; it implements ``LanguageModel``.

    Parameters
    ----------
    settings
        Vocabulary size, layers, rates and optimizer.
    device
        Where the tables are.
    fused
        Whether steps use the kernels of fused.py and fused_votes.py (one layer, full rank, float32, on CUDA); None: if
        possible.
    graphs
        Whether steps on CUDA are captured once for each batch shape and replayed.
    uniform_attention
        Keep attention uniform in updates: Y learns, and Z sums −η_Z ∇_Z along that run, which predicts Z of a training
        (`scansnap.text.prediction`). Everything but an update uses Z.
    initial_tables
        The initial values of the seed, where several models share them; None: they are drawn.

    Examples
    --------
    >>> model = YZTransformer(YZSettings(vocab_size=10, eta_y=20.0, eta_z=1.0))
    >>> model.logits(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """

    def __init__(
        self,
        settings: YZSettings,
        device: str | torch.device = "cpu",
        *,
        fused: bool | None = None,
        graphs: bool = True,
        uniform_attention: bool = False,
        initial_tables: InitialTables | None = None,
    ) -> None:
        if uniform_attention:
            check_predictable(settings)
        self.settings, self.uniform_attention = settings, uniform_attention
        self.vocab_size, self.layers = settings.vocab_size, settings.layers
        self.device = torch.device(device)
        if initial_tables is not None and not initial_tables.fits(settings):
            expected = "tables of the same vocabulary, rank, init, seed and dtype"
            raise InputError("initial_tables", initial_tables.settings, expected)
        generator = torch.Generator().manual_seed(settings.seed)
        draw = partial(settings.draw, generator=generator) if initial_tables is None else initial_tables.draw()
        kind = FullTable if settings.rank is None else LowRankTable
        self.y: list[WeightTable] = []
        self.z: list[WeightTable] = []
        for eta_y, eta_z in settings.rates:
            self.y.append(kind(settings, eta_y, draw, self.device))
            self.z.append(kind(settings, eta_z, draw, self.device))
        has_dense_updates = self.device.type == "cuda" and settings.layers > 1 and settings.rank is None
        self.stream = torch.cuda.Stream(self.device) if has_dense_updates else None
        for table in self.y[1:] + self.z[1:]:
            if isinstance(table, FullTable):
                table.stream = self.stream
        self.first = TokenLayer(settings, self.z[0])
        self.above = [StateLayer(settings, z) for z in self.z[1:]]
        self.step = torch.zeros((), dtype=torch.float64, device=self.device)  # updates done
        can_fuse = (
            self.device.type == "cuda" and settings.rank is None and settings.layers == 1
            and settings.dtype == "float32" and settings.norm in ("l2", "none")
            and settings.optimizer in ("sgd", "momentum", "adam") and not settings.weight_decay and triton_available()
        )  # fmt: skip
        if fused and not can_fuse:
            raise InputError("fused", fused, "False unless on CUDA, with Triton, full rank, float32 and one layer")
        self.fused = can_fuse if fused is None else fused
        self._fused: dict[torch.Size, Step] = {}  # by batch shape
        self._fused_votes: dict[Any, Any] = {}  # by the shape of f
        self.steps = GraphedSteps(self.device, graphs)

    @classmethod
    def from_description(cls, description: dict[str, Any], device: str | torch.device = "cpu") -> YZTransformer:
        """The model of a `describe`, with its initial values."""
        settings = {key: value for key, value in description.items() if key not in ("kind", "uniform_attention")}
        uniform = bool(description.get("uniform_attention", False))
        return cls(YZSettings.from_dict(settings), device, uniform_attention=uniform)

    def describe(self) -> dict[str, Any]:
        """The settings as plain values, with the ``kind`` of the model."""
        uniform = {"uniform_attention": True} if self.uniform_attention else {}
        return {"kind": "yz", **uniform, **self.settings.to_dict()}

    def tensors(self) -> dict[str, Tensor]:
        """layer0.y, layer0.z, … (``.left`` and ``.right`` of low-rank ones), their moments, and the number of updates.

        On CUDA a full table is a view without its padding, so not contiguous; write into it with ``copy_``.
        """
        tensors = {"step": self.step}
        for layer, tables in enumerate(zip(self.y, self.z, strict=True)):
            for name, table in zip("yz", tables, strict=True):
                tensors |= {f"layer{layer}.{name}{part}": tensor for part, tensor in table.tensors().items()}
        return tensors

    def scale_rates(self, factor: float) -> None:
        """Set all rates to ``factor`` times those of the settings, for a schedule."""
        for y, z, (eta_y, eta_z) in zip(self.y, self.z, self.settings.rates, strict=True):
            y.eta.fill_(eta_y * factor)
            z.eta.fill_(eta_z * factor)

    @torch.no_grad()
    def logits(self, inputs: Tensor, attention_mass: float | None = None) -> Tensor:
        """(B, T, M); ``attention_mass`` restricts attention to the smallest set of keys with this mass."""
        if attention_mass is not None:
            check_float("attention_mass", attention_mass, above=0, most=1)
        with matmul_precision(self.device, self.settings.precision):
            saved = self._forward(inputs, attention_mass)
            return saved.y.apply(saved.f)[..., : self.vocab_size]

    @torch.no_grad()
    def attention(self, inputs: Tensor) -> list[Tensor]:
        """For each layer (B, heads, T, T): row t is the attention of position t."""
        with matmul_precision(self.device, self.settings.precision):
            saved = self._forward(inputs)
            return [b[:, None] for b in (saved.first.b, *(layer.b for layer in saved.above))]

    def key_mask(self, length: int) -> Tensor:
        """(T, T) booleans: the positions that each position of a window may attend to."""
        return layers.key_mask(length, self.settings.query_in_keys, self.device)

    @torch.no_grad()
    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update on a batch, both (B, T); the mean loss before it."""
        if inputs.shape != targets.shape or inputs.ndim != 2:
            expected = f"the shape (B, T) of the inputs, {tuple(inputs.shape)}"
            raise InputError("targets", f"shape {tuple(targets.shape)}", expected)
        return self.steps.run(self._step, inputs, targets)

    def _step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if not self.fused or inputs.shape[1] > MAX_TILE:
            return self._step_by_layers(inputs, targets)
        if inputs.shape not in self._fused:
            from scansnap.text.yz.fused import FusedStep  # imports Triton

            y, z = self.y[0], self.z[0]
            assert isinstance(y, FullTable)
            assert isinstance(z, FullTable)
            uniform = self.uniform_attention
            self._fused[inputs.shape] = FusedStep(y, z, self.settings, self.step, inputs.shape, uniform=uniform)
        return self._fused[inputs.shape](inputs, targets)

    def _forward(
        self, inputs: Tensor, attention_mass: float | None = None, *, training: bool = False
    ) -> _ForwardActivations:
        """Up to the last f, without the logits."""
        s = self.settings
        first = self.first.forward(inputs, attention_mass, uniform=training and self.uniform_attention)
        saved = _ForwardActivations(TableRows(self.y[0], inputs), first, [], [])
        y, f = saved.first_y, first.f
        for layer, table in zip(self.above, self.y[1:], strict=True):
            h = y.apply(f)
            if not saved.transitions and s.residual != "none":
                f = first.f_over_vocabulary(table.width)
            saved.transitions.append(layers.transition(h, f if s.residual != "none" else None, s))
            saved.above.append(layer.forward(saved.transitions[-1].u, attention_mass))
            y, f = TableRows(table), saved.above[-1].f
        return saved._replace(y=y, f=f)

    def _step_by_layers(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update, layer after layer; the products of the last one over the vocabulary may be fused."""
        with matmul_precision(self.device, self.settings.precision):
            saved = self._forward(inputs, training=True)
            if self.fused:
                loss, g = self._update_fused_votes(saved, targets)
            else:
                h = saved.y.apply(saved.f)
                loss = cross_entropy_(h[..., : self.vocab_size], targets)
                g = saved.y.apply_backward(saved.f, h, self.step)
            self._backward(saved, g)
            self.step += 1
            return loss

    def _update_fused_votes(self, saved: _ForwardActivations, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss and the direction of f, weights of positions; Y is updated."""
        from scansnap.text.yz.fused_votes import FusedVotes, WindowTokens  # imports Triton

        tokens = WindowTokens.of(saved.first.x)
        index = tokens.positions[:, None, :].expand_as(saved.f)
        f = saved.f.new_zeros(*targets.shape, tokens.ids.shape[1]).scatter_add_(-1, index, saved.first.f_by_token())
        if f.shape not in self._fused_votes:
            y = self.y[0]
            assert isinstance(y, FullTable)
            self._fused_votes[f.shape] = FusedVotes(y, self.settings, self.step, f.shape)
        loss, g = self._fused_votes[f.shape](tokens, f, targets)
        return loss, g.gather(-1, index)

    def _backward(self, saved: _ForwardActivations, g: Tensor) -> None:
        """Everything below the last Y, from the direction g of the last f."""
        s, tables = self.settings, self.y[:-1]
        for i in reversed(range(len(self.above))):
            du = self.above[i].backward(saved.above[i], g, self.step)
            dh, df = layers.transition_backward(saved.transitions[i], du, s)
            y, f = (TableRows(tables[i]), saved.above[i - 1].f) if i > 0 else (saved.first_y, saved.first.f)
            g = y.apply_backward(f, dh, self.step)
            if s.residual != "none":
                g = g + (df if i > 0 else df.gather(-1, saved.first.x[:, None, :].expand_as(g)))
        self.first.backward(saved.first, g, self.step)
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


class _ForwardActivations(NamedTuple):
    """The activations of all layers, and the transitions between them."""

    first_y: TableRows
    first: TokenActivations
    above: list[StateActivations]
    transitions: list[Transition]
    y: TableRows = None  # type: ignore[assignment]  # of the last layer
    f: Tensor = None  # type: ignore[assignment]  # of the last layer


def check_predictable(settings: YZSettings) -> None:
    """Refuse settings for which a run with uniform attention predicts nothing."""
    for name, needed, expected in (
        ("layers", 1, "1 for a prediction, which is made for one layer"),
        ("rank", None, "None for a prediction, which needs full tables"),
        ("init", "zero", "zero for a prediction, which begins with uniform attention"),
    ):
        if getattr(settings, name) != needed:
            raise InputError(name, getattr(settings, name), expected)


def cross_entropy_(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of −log α_n over all positions; the logits (B, T, M) become its direction, (e_n − α)/N, in place."""
    if logits.is_cuda and logits.dtype == torch.float32 and triton_available():
        from scansnap.text.transformer import cross_entropy_triton as fused  # imports Triton

        return fused.cross_entropy_(logits.flatten(0, 1), targets.flatten(), -1 / targets.numel()).mean()
    losses, share = torch.empty_like(targets, dtype=logits.dtype), 1 / targets.numel()
    for w in window_slices(targets, logits.shape[-1]):
        h, n = logits[w], targets[w][..., None]
        h.sub_(h.amax(-1, keepdim=True))
        target_logit = h.gather(-1, n)
        total = h.exp_().sum(-1, keepdim=True)
        torch.sub(total.log(), target_logit, out=losses[w][..., None])
        h.mul_(-share / total)
        h.scatter_add_(-1, n, torch.full_like(total, share))  # one index in each row, so the order is fixed
    return losses.mean()

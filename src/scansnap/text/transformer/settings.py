"""Settings of a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scansnap.checks import InputError
from scansnap.settings import setting
from scansnap.text.settings import TextSettings

if TYPE_CHECKING:
    import torch

POSITIONS = ("none", "sinusoidal", "learned", "alibi", "rope")


@dataclass(frozen=True)
class TransformerSettings(TextSettings):
    """A transformer over a vocabulary. The defaults are the paper's setting for text.

    Examples
    --------
    >>> TransformerSettings(vocab_size=1000, layers=2, heads=4).width
    200
    """

    width: int = setting(200, "Width d of the embeddings.", least=1)
    heads: int = setting(1, "Attention heads.", least=1)
    feed_forward: int = setting(200, "Hidden width of the feed-forward layer (ReLU); 0: none.")
    norm: str = setting(
        "post", "LayerNorm after each residual sum (post), or before each sub-layer and at the end (pre).",
        choices=("post", "pre", "none"))  # fmt: skip
    residual: bool = setting(True, "Residual connections around sub-layers.")
    positions: str = setting("sinusoidal", "Position encoding.", choices=POSITIONS)
    max_length: int = setting(512, "Longest window with learned positions.", unit="tokens", least=1)
    bias: bool = setting(True, "Biases of linear layers and decoder.")
    mixing: bool = setting(True, "Output projection W_O of attention.")
    tied: bool = setting(False, "Tie the decoder to the embedding.")
    scaled: bool = setting(True, "Multiply embeddings by √d.")
    dropout: float = setting(0.2, "Dropout probability in training.", least=0, below=1)
    objective: str = setting(
        "next", "Predict the next token, or masked tokens of a window.", choices=("next", "masked")
    )
    mask_share: float = setting(0.15, "Share of masked tokens in a window.", above=0, below=1)
    init: float = setting(0.1, "Embeddings and decoder are initially uniform within ± this value.", above=0)
    eta: float = setting(5.0, "Learning rate on the mean loss.", least=0)
    clip: float | None = setting(0.5, "Largest gradient norm; none: no clipping.", above=0)
    precision: str = setting(
        "float32", "Precision on CUDA; with bf16 the weights stay in float32.",
        choices=("float32", "tf32", "bf16"))  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise InputError("heads", self.heads, f"a divisor of the width {self.width}")
        if self.positions == "sinusoidal" and self.width % 2:
            raise InputError("width", self.width, "an even integer with sinusoidal positions")
        if self.positions == "rope" and self.width // self.heads % 2:
            raise InputError("width", self.width, "an even integer for each head with rope positions")
        if self.dtype == "float64" and self.precision != "float32":
            raise InputError("precision", self.precision, "float32 with dtype float64")

    @property
    def work_dtype(self) -> torch.dtype:
        """The data type of products and activations."""
        import torch

        return torch.bfloat16 if self.precision == "bf16" else self.torch_dtype

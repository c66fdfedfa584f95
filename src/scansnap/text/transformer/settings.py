"""What a transformer of the original parametrisation is, in full."""

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
    """A transformer over a vocabulary and how it is trained. The defaults are the paper's setting for text."""

    width: int = setting(200, "Width d of the embeddings.", least=1)
    heads: int = setting(1, "Attention heads.", least=1)
    feed_forward: int = setting(200, "MaskedBatch width of the ReLU layer behind attention; 0 leaves it out.")
    norm: str = setting(
        "post", "After each residual sum, or before each sub-layer and once at the end.",
        choices=("post", "pre", "none"))  # fmt: skip
    residual: bool = setting(True, "Whether sub-layers add to what they read.")
    positions: str = setting("sinusoidal", "How the model knows where a token stands.", choices=POSITIONS)
    max_length: int = setting(512, "Longest window, with learned positions.", unit="tokens", least=1)
    bias: bool = setting(True, "Biases of the layers' matrices and of the decoder.")
    mixing: bool = setting(True, "The matrix W_O behind the heads.")
    tied: bool = setting(False, "Whether the decoder is the embedding.")
    scaled: bool = setting(True, "Whether embeddings are multiplied by √d.")
    dropout: float = setting(0.2, "Share of activations dropped in training.", least=0, below=1)
    objective: str = setting(
        "next", "The next token, or masked tokens of a window, told from both sides.", choices=("next", "masked")
    )
    mask_share: float = setting(0.15, "Share of a window that is masked.", above=0, below=1)
    init: float = setting(0.1, "Embeddings and decoder begin uniform within ± this.", above=0)
    eta: float = setting(5.0, "The one learning rate, on the mean loss.", least=0)
    clip: float | None = setting(0.5, "The gradient is shortened to this norm.", above=0)
    precision: str = setting(
        "float32", "On CUDA also tf32 products; bf16: products and activations in bfloat16, weights in float32.",
        choices=("float32", "tf32", "bf16"))  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise InputError("heads", self.heads, f"a divisor of the width, {self.width}")
        if self.positions == "sinusoidal" and self.width % 2:
            raise InputError("width", self.width, "even with sinusoidal positions")
        if self.positions == "rope" and self.width // self.heads % 2:
            raise InputError("width", self.width, "an even number for each head with rope positions")
        if self.dtype == "float64" and self.precision != "float32":
            raise InputError("precision", self.precision, "float32 (products as they are) with dtype float64")

    @property
    def work_dtype(self) -> torch.dtype:
        """Of products and activations."""
        import torch

        return torch.bfloat16 if self.precision == "bf16" else self.torch_dtype

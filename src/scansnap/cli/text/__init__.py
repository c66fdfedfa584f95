"""``scansnap text …``: train, predict, explain, sample from and evaluate language models, one file for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from scansnap.text.library import TrainedModel

Model = Annotated[Path, typer.Argument(help="A model that `scansnap text train` wrote: NAME.safetensors.")]


def opened(path: Path, device: str) -> TrainedModel:
    """The model of a file with its words, on a device."""
    from scansnap.dynamics.device import pick_device
    from scansnap.text.library import open_trained

    return open_trained(path, pick_device(device))

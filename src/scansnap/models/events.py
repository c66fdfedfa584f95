"""Numbers of a run as TensorBoard event files, where the package tensorboard is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scansnap.checks import InputError


class EventWriter:
    """Scalars by step; arrays are left out."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            allowed = "left out unless the package tensorboard is installed, as with pip install 'scansnap[text]'"
            raise InputError("tensorboard", str(folder), allowed) from None
        self.writer: Any = SummaryWriter(str(folder))

    def add(self, step: int, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, float | int):
                self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()

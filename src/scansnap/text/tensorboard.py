"""TensorBoard event files of a run, where the package tensorboard is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scansnap.checks.extras import missing_package
from scansnap.storage import WriteError, check_writable


def check_event_folder(folder: Path) -> Path:
    """The folder, if event files can be written there; nothing is created yet."""
    _summary_writer(folder)
    return check_writable("tensorboard", folder, inside=True)


class EventWriter:
    """Writes scalars by step and skips arrays."""

    def __init__(self, folder: Path, suffix: str = "") -> None:
        self.folder = folder
        try:
            self.writer: Any = _summary_writer(folder)(str(folder), filename_suffix=suffix)
        except OSError as error:
            raise WriteError(folder, error) from error

    def add(self, step: int, values: dict[str, Any]) -> None:
        try:
            for name, value in values.items():
                if isinstance(value, float | int):
                    self.writer.add_scalar(name, value, step)
        except OSError as error:
            raise WriteError(self.folder, error) from error

    def close(self) -> None:
        try:
            self.writer.close()
        except OSError as error:
            raise WriteError(self.folder, error) from error


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_package("tensorboard", str(folder), "left out", "tensorboard") from None
    return SummaryWriter

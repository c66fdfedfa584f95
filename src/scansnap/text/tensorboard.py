"""TensorBoard event files of a run, where the package tensorboard is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scansnap.checks.extras import missing_package
from scansnap.storage import WriteError, check_writable


def check_event_folder(folder: Path, field: str = "tensorboard") -> Path:
    """The folder, if event files can be written there; nothing is created yet."""
    _summary_writer(folder, field)
    return check_writable(field, folder, inside=True)


class EventWriter:
    """Writes scalars by step and skips arrays; readers ignore earlier files from the step ``first`` on."""

    def __init__(self, folder: Path, suffix: str = "", first: int | None = None) -> None:
        self.folder = folder
        try:
            self.writer: Any = _summary_writer(folder)(str(folder), purge_step=first, filename_suffix=suffix)
        except OSError as error:
            raise WriteError(folder, error) from error

    def add(self, step: int, values: dict[str, Any]) -> None:
        try:
            for name, value in values.items():
                if isinstance(value, float | int):
                    self.writer.add_scalar(name, value, step)
        except OSError as error:
            raise WriteError(self.folder, error) from error

    def flush(self) -> None:
        self.writer.flush()

    def close(self) -> None:
        try:
            self.writer.close()
        except OSError as error:
            raise WriteError(self.folder, error) from error


def _summary_writer(folder: Path, field: str = "tensorboard") -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_package(field, str(folder), "left out", "tensorboard") from None
    return SummaryWriter

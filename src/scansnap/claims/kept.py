"""Finished parts of a long piece of work, in a folder of their own: whoever does the same work does the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scansnap.checks import InputError
from scansnap.storage import put, remove


class Kept:
    """Parts by their number, a JSON file each, written whole or not at all.

    ``work`` is everything that decides their content, as JSON has it. A folder with parts of other work is refused, or
    emptied with ``overwrite``; nothing is written before the first part is there.
    """

    def __init__(self, folder: Path, work: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.folder, self.work = folder, dict(work)
        if folder.exists() and overwrite:
            self.discard()
        if folder.exists() and self._read("work") != self.work:
            allowed = "that of the same work, or away (--overwrite begins anew)"
            raise InputError("the folder with unfinished work", str(folder), allowed)

    def __getitem__(self, index: int) -> Any:
        """A finished part, or None."""
        return self._read(f"part-{index}")

    def __setitem__(self, index: int, part: Any) -> None:
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            put(self.folder / "work.json", json.dumps(self.work))
        put(self.folder / f"part-{index}.json", json.dumps(part))

    def discard(self) -> None:
        """When all is done, or not wanted any more."""
        remove(self.folder)

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # not there, or not whole: it is made again
            return None

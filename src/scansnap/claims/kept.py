"""Finished parts of a long piece of work, in a folder of their own: whoever does the same work does the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scansnap.checks import InputError
from scansnap.storage import put, remove
from scansnap.storage.checksums import sign, signed
from scansnap.storage.scratch import MARK
from scansnap.storage.versions import decisive_versions, refuse_other_versions

_FIELD = "the folder with unfinished work"


class Kept:
    """Parts by their number, a JSON file each, written whole or not at all, with its checksum.

    ``work`` is everything that decides their content, as JSON has it. A folder with parts of other work, or of other
    versions, is refused, or emptied with ``overwrite``; nothing is written before the first part is there.
    """

    def __init__(self, folder: Path, work: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.folder, self.work = folder, dict(work)
        if folder.exists() and overwrite:
            self.discard()
        if folder.exists() and not (folder.is_dir() and all(one.name.startswith(MARK) for one in folder.iterdir())):
            begun = self._read("work")
            if begun is None or begun["work"] != self.work:
                allowed = "a folder with parts of the same work (--overwrite starts again)"
                raise InputError(_FIELD, str(folder), allowed)
            refuse_other_versions(_FIELD, folder, begun["versions"])

    def __getitem__(self, index: int) -> Any:
        """A finished part, or None."""
        found = self._read(f"part-{index}")
        return None if found is None else found["part"]

    def __setitem__(self, index: int, part: Any) -> None:
        if not (self.folder / "work.json").exists():
            self._write("work", {"work": self.work, "versions": decisive_versions()})
        self._write(f"part-{index}", {"part": part})

    def discard(self) -> None:
        """When all is done, or not wanted any more."""
        remove(self.folder)

    def _write(self, name: str, table: Mapping[str, Any]) -> None:
        put(self.folder / f"{name}.json", sign(table))

    def _read(self, name: str) -> dict[str, Any] | None:
        """None for what is not there or damaged: it is made again."""
        try:
            return signed((self.folder / f"{name}.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, RecursionError):
            return None

"""The default run, shipped with the page: it is on screen before any worker process has started.

``python -m scansnap.explorer.live.first`` computes it anew and writes the file; a test says when that is due. The file
is a number of bytes (uint32), so many bytes of JSON (the message ``run``, its id empty: no server has this run), and
one binary message with all frames.
"""

from __future__ import annotations

import struct
from pathlib import Path

from scansnap.explorer.live.hosted import Hosted
from scansnap.explorer.messages.socket import RunText
from scansnap.explorer.protocol import dumps, pack_frames
from scansnap.explorer.setups.presets import DEFAULT

FILE = Path(__file__).parents[1] / "static" / "first.bin"
_LENGTH = struct.Struct("<I")


def first_run() -> bytes:
    """What the file holds."""
    run = Hosted("", DEFAULT, lambda message: None)
    while not run.live.over:
        run.live.advance(run.live.steps)
    told = dumps(run.describe().model_dump(warnings=False)).encode()
    told += b" " * (-len(told) % 4)  # numbers lie at multiples of their size
    return _LENGTH.pack(len(told)) + told + pack_frames(*run.live.film.after(-1))


def parts(file: bytes) -> tuple[RunText, bytes]:
    """The message and the frames of a file."""
    (length,) = _LENGTH.unpack_from(file)
    end = _LENGTH.size + length
    return RunText.model_validate_json(file[_LENGTH.size : end]), file[end:]


if __name__ == "__main__":
    FILE.write_bytes(first_run())

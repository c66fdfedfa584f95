"""How large a set-up of the page may be; the sliders and boxes of :mod:`scansnap.explorer.controls` end there."""

from __future__ import annotations

LIMITS: dict[str, int] = {
    "classes": 64,
    "tokens": 20_000,  # vocabulary
    "text_characters": 20_000,  # of a text to count classes in
    "address_characters": 8000,  # of a link to share; mail and chat programs cut longer ones
    "batch_size": 4096,
    "context": 1_000_000,
    "steps": 10_000_000,
    "heads": 16,
    "frame_floats": 20_000,  # numbers in a frame: 80 kB
    "run_bytes": 192 << 20,  # tables, moments of the optimiser and films of one run
    "step_products": 400_000_000,  # samples × (tokens × outputs + heads × tokens) of one step
    "film_bytes": 8 << 20,  # of a run's frames; beyond, they are thinned
    "marks": 100,  # changes of the rates in one run
    "points": 1000,  # times of a flow or closed form
    "table_size": 256,  # rows and columns of Y
    "csv_frames": 1000,
    "beats": 100,  # of a lecture
    "sentence": 240,  # characters of one of its sentences, so that it fits in large type
}

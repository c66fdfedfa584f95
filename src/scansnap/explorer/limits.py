"""The largest set-up that the page accepts; sliders and fields end there."""

from __future__ import annotations

LIMITS: dict[str, int] = {
    "classes": 64,
    "tokens": 20_000,  # vocabulary
    "text_characters": 20_000,  # of a pasted text
    "address_characters": 8000,  # of a link to share; mail and chat programs cut longer ones
    "batch_size": 4096,
    "context": 1_000_000,
    "steps": 10_000_000,
    "heads": 16,
    "frame_floats": 20_000,  # numbers in a frame: 80 kB
    "step_products": 400_000_000,  # samples × (tokens × outputs + heads × tokens) of one step
    "marks": 100,  # changes of the rates in one run
    "points": 1000,  # times of a flow or closed form
    "beats": 100,  # of a lecture
    "sentence": 240,  # characters of one of its sentences, so that it fits in large type
}

"""Makes the film of docs/explorer.md from a page of its own: python docs/scripts/film.py [--out FILE.webp].

The run that the explorer begins with, from its first step to the last, evenly in ln t as the page plays it. Each frame
is a picture of the page at rest, so that the film is the same on a slow machine.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
from browser import explorer, opened, to_the_end
from PIL import Image

RUN = "#classes=words&eta_y=2&steps=1000&preset=words"
FRAMES, WIDE = 36, 960
SHORT, LONG = 180, 2500  # milliseconds that a frame stays, and the first and the last
SEEK = """(at) => {
  const slider = document.querySelector('#scrub');
  slider.value = Math.round(at * slider.max);
  slider.dispatchEvent(new Event('input', { bubbles: true }));
}"""


def frames(page: Any) -> list[Image.Image]:
    """Pictures of the page along the run."""
    to_the_end(page)
    taken = []
    for at in np.linspace(0, 1, FRAMES):
        page.evaluate(SEEK, float(at))
        page.wait_for_timeout(250)  # the plots are drawn in the next frame of the browser, at the latest
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        taken.append(picture.resize((WIDE, round(picture.height * WIDE / picture.width)), Image.Resampling.LANCZOS))
    return taken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "explorer" / "run.webp")
    target = parser.parse_args().out
    with explorer() as (browser, address):
        first, *rest = frames(opened(browser, address + RUN, "light"))
    stay = [LONG, *[SHORT] * (len(rest) - 1), LONG]
    first.save(target, save_all=True, append_images=rest, duration=stay, loop=0, quality=70, method=6)
    print(f"{target}: {len(rest) + 1} frames, {target.stat().st_size / 1e6:.2f} MB")

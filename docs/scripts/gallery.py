"""Makes docs/gallery.md and its pictures from a folder of `scansnap reproduce all`, with the command below each figure.

    python docs/scripts/gallery.py out [--others FOLDER]

The figures of the reproduction are taken as they lie there; what the manifest says of them (command, setting,
versions) is written below. The figures that other commands draw are made here, in FOLDER (by default one that is thrown
away); one that is there already is not made again. What takes long is shown as the page that tells of it has it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from scansnap.paper.report.targets import BEYOND, TARGETS, TEXT, label

DOCS = Path(__file__).parents[1]
PICTURES = DOCS / "gallery"
WIDE, COLOURS = 1000, 256  # pixels; a palette keeps letters sharp where JPEG would not
SECTIONS = {
    "The paper's figures": [name for name in TARGETS if name not in TEXT and name not in BEYOND],
    "The paper's figures on text": [name for name in TEXT if name not in BEYOND],
    "Beyond the paper": list(BEYOND),
}


@dataclass(frozen=True)
class Other:
    """A figure that a command other than ``reproduce`` draws; ``fine`` has the exit codes of success."""

    name: str
    title: str
    command: str
    before: str = ""
    fine: tuple[int, ...] = (0,)


OTHERS = (
    Other("run", "A run", "scansnap run --preset syn-small --eta-y 10 --momentum 0.9 --out run.zarr"),
    Other("run-adam", "The same by Adam, from a file", "scansnap run examples/adam.toml --out run-adam.zarr"),
    Other("verify", "Every claim's curves in one setting",
          "scansnap verify --preset textbook --eta-y 0.9 --eta-z 0.02 --figure verify.png", fine=(0, 1)),
    Other("explain", "What a model of text looks at, and what that votes for",
          "scansnap text explain model.safetensors --query file --context 'the name of the' --figure explain.png",
          before="scansnap text train --data stdlib --steps 300 --out model.safetensors"),
)  # fmt: skip
ELSEWHERE = {  # a name: title, the picture below docs/, the command that makes it, what to read
    "moving": ("Two classes while they are learnt", "moving.svg", "python docs/scripts/moving.py", "overview.md"),
    "map": (
        "Where a theorem holds", "maps/theorem-1.png",
        "scansnap verify --map theorem-1 --x ratio=1:1000:log --y overlap=0.01:0.9 --out docs/maps/theorem-1.png",
        "claims.md",
    ),
    "map-sgd": (
        "The same by SGD, with an interval over seeds", "maps/sgd.png",
        "scansnap verify --map theorem-3 --sgd --points 30 --seeds 10 --out docs/maps/sgd.png", "claims.md",
    ),
    "explorer": ("The explorer", "explorer/run.png", "scansnap explorer", "explorer.md"),
    "lecture": ("A lecture", "explorer/lecture.png", "scansnap lecture paper --out lecture.html", "lecture.md"),
}  # fmt: skip
LONG = {  # targets of ``reproduce`` that ``all`` leaves out or another machine made
    "dial": ("Components between the YZ model and a transformer", "dial/dial.png", "scansnap dial", "dial.md"),
    "lever": ("Entropy against the query/key learning rate", "lever.png",
              "scansnap reproduce lever --data wikitext-2", "rates.md"),
    "probe": ("Heads of GPT-2 and Llama over training", "probe/probe.png",
              "scansnap reproduce probe --data wikitext-2 --device cuda", "probe_study.md"),
    "alerts": ("Early warnings of failing runs", "probe/alerts.png",
               "scansnap reproduce alerts --data wikitext-2", "warnings.md"),
}  # fmt: skip


def page(folder: Path, others: Path) -> Iterator[str]:
    """The page, a line after the other; the pictures are written on the way."""
    targets: Mapping[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["targets"]
    yield "# Gallery\n"
    first = "This page shows every figure of scansnap, each with the command that draws it; click one to enlarge it."
    yield f"{first} {_made(folder, targets)}\n"
    for title, names in SECTIONS.items():
        yield f"## {title}\n"
        for name in names:
            if name in targets:
                yield from _of_target(name, targets[name], folder)
            elif name in LONG:
                yield from _linked(*LONG[name])
    yield "## Other commands\n"
    for other in OTHERS:
        _make(other, others)
        more = f"{other.before}\n" if other.before else ""
        yield from _figure(other.title, other.name, others / f"{other.name}.png", more + other.command, "")
    for linked in ELSEWHERE.values():
        yield from _linked(*linked)


def _made(folder: Path, targets: Mapping[str, Any]) -> str:
    """Which reproduction this is, in a sentence or two."""
    days = sorted({_day(folder / f"{name}.png") for name in targets})
    versions = sorted({made["versions"]["scansnap"] for made in targets.values()})
    machines = sorted({f"{made['machine']['cores']} cores, {made['machine']['device']}" for made in targets.values()})
    quick = " (quick)" if any(made["quick"] for made in targets.values()) else ""
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"Those of `scansnap reproduce` are of one reproduction{quick}: {when}, scansnap {', '.join(versions)}, "
        f"{' and '.join(machines)}. This page is written by `docs/scripts/gallery.py` from its manifest."
    )


def _of_target(name: str, made: Mapping[str, Any], folder: Path) -> Iterator[str]:
    yield from _figure(f"{label(name)}: {made['title']}", name, folder / f"{name}.png", made["command"], made["note"])


def _figure(title: str, name: str, source: Path, command: str, note: str) -> Iterator[str]:
    picture = _small(source, PICTURES / f"{name}.webp")
    yield f"### {title}\n"
    yield f"![{title}](gallery/{picture.name})\n"
    yield f"```sh\n{command}\n```\n"
    if note:
        yield f"*{note}.*\n"


def _linked(title: str, picture: str, command: str, more: str) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"![{title}]({picture})\n"
    yield f"```sh\n{command}\n```\n"
    yield f"*More: [{more}]({more}).*\n"


def _make(other: Other, folder: Path) -> None:
    """The figure of another command, unless it is there; in the folder, with the examples beside it."""
    if (folder / f"{other.name}.png").exists():
        return
    examples = folder / "examples"
    if not examples.exists():
        examples.symlink_to(DOCS.parent / "examples")
    for command in filter(None, (other.before, other.command)):
        began = time.monotonic()
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        if done.returncode not in other.fine:
            raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        print(f"{command}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _small(source: Path, target: Path) -> Path:
    """The picture at the width of a page, with a palette."""
    with Image.open(source) as image:
        picture = Image.new("RGB", image.size, "white")
        picture.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    if picture.width > WIDE:
        picture = picture.resize((WIDE, round(picture.height * WIDE / picture.width)), Image.Resampling.LANCZOS)
    picture.quantize(COLOURS, kmeans=2, dither=Image.Dither.NONE).convert("RGB").save(target, lossless=True, method=6)
    return target


def _day(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).strftime("%Y-%m-%d")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `scansnap reproduce all --out FOLDER` wrote")
    parser.add_argument("--others", type=Path, help="where the figures of other commands are, or are put")
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        others = (given.others or Path(temporary)).resolve()
        others.mkdir(parents=True, exist_ok=True)
        text = "\n".join(page(given.folder, others))
    (DOCS / "gallery.md").write_text(text, encoding="utf-8")
    total = sum(file.stat().st_size for file in PICTURES.iterdir())
    print(f"{DOCS / 'gallery.md'}: {text.count('### ')} figures, {total / 1e6:.1f} MB of pictures")

"""``scansnap info``: what is in a set of classes, in a saved trajectory, or in this installation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from scansnap.classes import SequenceClasses
from scansnap.commands.console import out, say_json
from scansnap.commands.setup import find_classes

ROWS = 20  # classes shown unless all are asked for


def info(file: Path | None, preset: str | None, settings: dict[str, Any], every: bool, as_json: bool) -> int:
    """Classes of a preset or TOML file, a saved trajectory, or (with nothing given) the installation."""
    if file is not None and file.suffix in (".zarr", ".nc"):
        return _trajectory(file, as_json)
    if file is None and preset is None and not settings:
        return _installation(as_json)
    classes = find_classes(file, preset, settings)
    rows = [_row(classes, n) for n in range(classes.n_classes)]
    if as_json:
        say_json({**_totals(classes), "classes": rows})
        return 0
    totals = _totals(classes)
    sizes = f"vocabulary {totals['vocab_size']}, {totals['n_queries']} queries"
    out.print(f"[bold]{totals['n_classes']} classes[/], {sizes}, common tokens {_ids(classes.common)}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("class", "query", "next", "p_class", "tokens", "common", "distinct", "most likely"):
        table.add_column(name, justify="left" if name in ("distinct", "most likely") else "right")
    for row in rows if every else rows[:ROWS]:
        likely = "  ".join(f"{_named(classes, token)}: {p:.3g}" for token, p in row["most_likely"])
        cells = [row["class"], _named(classes, row["query"]), _named(classes, row["next_token"]),
                 f"{row['p_class']:.4g}", row["n_tokens"], row["n_common"], _ids(np.array(row["distinct"])),
                 likely]  # fmt: skip
        table.add_row(*[escape(str(cell)) for cell in cells])
    out.print(table)
    if len(rows) > ROWS and not every:
        out.print(f"… and {len(rows) - ROWS} more classes (--all shows them)")
    return 0


def _totals(classes: SequenceClasses) -> dict[str, Any]:
    return {
        "n_classes": classes.n_classes,
        "vocab_size": classes.vocab_size,
        "n_queries": len(classes.queries),
        "common": classes.common.tolist(),
    } | ({} if classes.words is None else {"words": list(classes.words)})


def _row(classes: SequenceClasses, n: int) -> dict[str, Any]:
    tokens, probs = classes.support(n)
    top = np.argsort(-probs, kind="stable")[:3]
    return {
        "class": n,
        "query": int(classes.query[n]),
        "next_token": int(classes.next_token[n]),
        "p_class": float(classes.p_class[n]),
        "n_tokens": len(tokens),
        "n_common": len(classes.common_of(n)),
        "distinct": classes.distinct(n).tolist(),
        "distinct_local": classes.distinct(n, local=True).tolist(),
        "most_likely": [(int(tokens[i]), float(probs[i])) for i in top],
    }


def _named(classes: SequenceClasses, token: int) -> str:
    """A token's id, and how it reads where that is known."""
    return str(token) if classes.words is None else f"{token} {classes.words[token]!r}"


def _ids(ids: np.ndarray) -> str:
    """Runs of consecutive ids as ranges."""
    if len(ids) == 0:
        return "none"
    parts = np.split(ids, np.flatnonzero(np.diff(ids) > 1) + 1)
    text = [f"{p[0]}–{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts]
    return ", ".join(text if len(text) <= 6 else [*text[:5], f"… ({len(ids)} in all)"])


def _trajectory(path: Path, as_json: bool) -> int:
    from scansnap.trajectory import classes_of, load

    data = load(path)
    about = {k: v for k, v in data.attrs.items() if k not in ("classes", "versions", "settings", "format")}
    settings = json.loads(data.attrs["settings"]) if "settings" in data.attrs else about  # a flow has plain ones
    if as_json:
        say_json({"sizes": dict(data.sizes), "variables": list(map(str, data.data_vars)), "settings": settings,
                  "versions": json.loads(data.attrs["versions"])})  # fmt: skip
        return 0
    out.print(f"[bold]{path}[/]: " + ", ".join(f"{n} {dim}" for dim, n in data.sizes.items()))
    classes = classes_of(data)
    out.print(f"made from {classes}", markup=False)
    if classes.words is not None:
        shown = ", ".join(map(repr, classes.words[:8])) + (" …" if len(classes.words) > 8 else "")
        out.print(f"words      {shown}", markup=False)
    out.print(f"variables  {', '.join(map(str, data.data_vars))}")
    for name in (name for name in ("eta_y", "eta_z", "seed") if name in data.coords):
        values = np.unique(data[name].values)
        shown = ", ".join(f"{v:g}" for v in values[:8]) + (" …" if len(values) > 8 else "")
        out.print(f"{name:<10} {shown}")
    out.print(f"settings   {json.dumps(settings, default=str)}")
    out.print(f"versions   {data.attrs['versions']}")
    return 0


def _installation(as_json: bool) -> int:
    import torch

    from scansnap import kernels
    from scansnap.classes import PRESETS
    from scansnap.trajectory import versions

    found = {
        "versions": versions(),
        "presets": list(PRESETS),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "compiled_kernels": kernels.available(),
    }
    if as_json:
        say_json(found)
        return 0
    for name, value in found.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        out.print(f"{name:<17} {', '.join(text) if isinstance(text, list) else text}")
    return 0

"""Time to add and to open the measurements of a probe on disk, in processor seconds.

python benchmarks/probe_store.py [--measurements 1000]

Of a model of 12 layers with 12 heads on 16 sequences of 127 tokens, 4 sampled queries each. The values are random.
Beside it stands the limit: the SHA-256 of as many bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import scansnap as ss
from scansnap.probe.measurement import AttentionLayer, Measurement
from scansnap.probe.schema import AGAINST, DECILES, VARIABLES
from scansnap.probe.store import open_measurements
from scansnap.results.trajectory import PROBED, check
from timing import timed

SIZES = {"layer": 12, "head": 12, "sequence": 16, "decile": DECILES, "against": len(AGAINST)}
QUERIES, TOKENS = 4, 127
LAYERS = tuple(AttentionLayer(f"layers.{i}", 0, "self", SIZES["head"]) for i in range(SIZES["layer"]))
ATTRS: dict[str, Any] = {"format": PROBED, "batch": "random", "queries": "all", "versions": "{}"}
IDS = torch.zeros(SIZES["sequence"], TOKENS, dtype=torch.long)


def measurement(draws: np.random.Generator) -> Measurement:
    values = {}
    for name, variable in VARIABLES.items():
        shape = [SIZES[dim] for dim in variable.dims if dim != "layer"]
        values[name] = [draws.random(shape) for _ in range(len(LAYERS) if "layer" in variable.dims else 1)]
    block = (SIZES["sequence"], SIZES["head"], QUERIES, TOKENS)
    samples = {(layer.path, 0): torch.from_numpy(draws.random(block, dtype=np.float32)) for layer in LAYERS}
    return Measurement(LAYERS, values, samples, {(layer.path, 0): torch.arange(QUERIES) for layer in LAYERS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", type=int, default=1000)
    n = parser.parse_args().measurements
    draws, times = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "probe.zarr"
        store = open_measurements(out, ATTRS, IDS)
        for step in range(n):
            new = measurement(draws)
            times.append(timed(store.add, step, new).processor)
        last = np.median(times[-max(1, n // 10) :])
        print(f"add       {np.median(times) * 1e3:6.1f} ms each; the last tenth {last * 1e3:.1f} ms")
        del store
        for name, work in (
            ("ss.load", ss.load),
            ("check", check),
            ("resume", lambda path: open_measurements(path, ATTRS, IDS)),
        ):
            print(f"{name:9} {timed(work, out).processor:6.2f} s")
        contents = [file.read_bytes() for file in out.rglob("*") if file.is_file()]
        hashing = timed(lambda: [hashlib.sha256(content).digest() for content in contents])
        print(f"limit     {hashing.processor:6.2f} s, the SHA-256 of {sum(map(len, contents)) / 1e6:.0f} MB "
              f"in {len(contents):,} files")  # fmt: skip


if __name__ == "__main__":
    main()

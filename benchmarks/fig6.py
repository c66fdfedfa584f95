"""The Figure 6 sweep against the plain loop; the same as ``scansnap bench``.

python benchmarks/fig6.py [--quick] [--device cuda]
"""

from __future__ import annotations

import argparse

from scansnap.cli.bench import bench

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    raise SystemExit(bench(arguments.quick, arguments.device, as_json=False))

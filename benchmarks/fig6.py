"""The Figure 6 sweep, or very many runs, against the plain loop; the same as ``scansnap bench``.

python benchmarks/fig6.py [--quick] [--device cuda]
python benchmarks/fig6.py --runs 1000000 [--queries 10] [--device cuda]
"""

from __future__ import annotations

import argparse

from scansnap.cli.bench import bench

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--queries", type=int, default=10)
    given = parser.parse_args()
    raise SystemExit(bench(given.quick, given.runs, given.queries, given.device, as_json=False))

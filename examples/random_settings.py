"""Our statements on random settings that were not used to find them: ``python examples/random_settings.py [scan] …``.

``scan``, ``fates`` and ``residual`` print a sentence with the counts of docs/theory.md; ``--seed`` and ``--settings``
choose other settings. All together take some minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import scansnap as ss
from scansnap import theory
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.ours import scan as scan_claims

ETA_Y = 0.9


def snap(classes: ss.SequenceClasses) -> float:
    return float(theory.t_snap(eta_y=ETA_Y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))


def scan(seed: int, settings: int) -> None:
    """1 to 6 queries of 1 to 3 classes, unequal p_n, 1 to 4 common tokens, z(0) = 0 or normal, ν from 0.2 to 300."""
    rng, checked, wrong = np.random.default_rng(seed), np.zeros(2, dtype=int), np.zeros(2, dtype=int)
    least: dict[str, list[float]] = {"zero": [], "normal": []}
    for i in range(settings):
        queries, per_query = int(rng.integers(1, 7)), int(rng.integers(1, 4))
        n_common, n_distinct, k = int(rng.integers(1, 5)), int(rng.integers(2, 8)), queries * per_query
        size = n_common + k * n_distinct
        m = max(int(rng.choice([60, 200, 600])), size + queries + k)
        p = np.zeros((k, m))
        for n, own in enumerate(range(n_common, size, n_distinct)):
            p[n, :n_common] = rng.uniform(0.02, 0.8) * rng.dirichlet(np.ones(n_common))
            p[n, own : own + n_distinct] = (1 - p[n].sum()) * rng.dirichlet(np.ones(n_distinct))
        query, next_token = size + np.arange(k) // per_query, size + queries + np.arange(k)
        classes = ss.SequenceClasses(p, query=query, next_token=next_token, p_class=rng.dirichlet(np.full(k, 3.0)))
        ratio, start = np.exp(rng.uniform(np.log(0.2), np.log(300))), ("zero", "normal")[i % 2]
        t = np.append(0.0, np.geomspace(1e-3, 100, 61) * snap(classes))
        flow = ss.flow(classes, ETA_Y, ETA_Y / ratio, t, z0=rng.normal(size=(queries, m)) if i % 2 else None,
                       variables=("z", "attention", "g", "gap"))  # fmt: skip
        evidence = from_trajectory(flow, classes)
        for n in range(k):
            ids, row = classes.distinct(n), evidence.class_query[n]
            gained, strength = evidence.z[:, row, ids] - evidence.z[0, row, ids], evidence.attention[0, n, ids]
            rising = scan_claims.rising_so_far(evidence, n)
            strong, weak = np.nonzero(strength[:, None] > strength)
            ahead = gained[:, strong] - gained[:, weak]
            known = np.abs(ahead) > 1e-9 * max(1.0, float(np.abs(gained).max()))
            for j, part in enumerate((known & rising[:, weak], known & ~rising[:, weak])):
                checked[j], wrong[j] = checked[j] + part.sum(), wrong[j] + (part & (ahead < 0)).sum()
            least[start].append(float((evidence.attention[:, n, ids] / strength).min()))
    print(f"scan: {settings} flows, seed {seed}: {wrong[0]} of {checked[0]} pairs and times are out of order while the "
          f"weaker token has not fallen; afterwards {wrong[1]} of {checked[1]}")  # fmt: skip
    for start, values in least.items():
        print(f"   z(0) {start}: in {np.mean(np.array(values) < 0.99):.0%} of {len(values)} classes a distinct token "
              f"has less than 0.99 of its first attention, the least {min(values):.3f}")  # fmt: skip


PARTS: dict[str, Callable[[int, int], None]] = {"scan": scan}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Our statements on random settings.")
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help=f"any of {', '.join(PARTS)}; all without")
    parser.add_argument("--seed", type=int, default=2028)
    parser.add_argument("--settings", type=int, default=60)
    options = parser.parse_args()
    for part in options.part or PARTS:
        PARTS[part](options.seed, options.settings)

"""Our statements on settings that were not used to find them: ``python examples/random_settings.py [PART …]``.

Each part (``scan``, ``fates``, …) prints a sentence or two with the counts of docs/theory.md;
``--seed`` and ``--settings`` choose other settings. All together take some minutes.
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


def random_classes(rng: np.random.Generator) -> ss.SequenceClasses:
    """1 to 6 queries of 1 to 3 classes, unequal p_n, 1 to 4 common tokens, 2 to 7 distinct ones in each class."""
    queries, per_query = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    n_common, n_distinct, k = int(rng.integers(1, 5)), int(rng.integers(2, 8)), queries * per_query
    size = n_common + k * n_distinct
    m = max(int(rng.choice([60, 200, 600])), size + queries + k)
    p = np.zeros((k, m))
    for n, own in enumerate(range(n_common, size, n_distinct)):
        p[n, :n_common] = rng.uniform(0.02, 0.8) * rng.dirichlet(np.ones(n_common))
        p[n, own : own + n_distinct] = (1 - p[n].sum()) * rng.dirichlet(np.ones(n_distinct))
    query, next_token = size + np.arange(k) // per_query, size + queries + np.arange(k)
    return ss.SequenceClasses(p, query=query, next_token=next_token, p_class=rng.dirichlet(np.full(k, 3.0)))


def scan(seed: int, settings: int) -> None:
    """1 to 6 queries of 1 to 3 classes, unequal p_n, 1 to 4 common tokens, z(0) = 0 or normal, ν from 0.2 to 300."""
    rng, checked, wrong = np.random.default_rng(seed), np.zeros(2, dtype=int), np.zeros(2, dtype=int)
    least: dict[str, list[float]] = {"zero": [], "normal": []}
    for i in range(settings):
        classes = random_classes(rng)
        queries, k, m = len(classes.queries), classes.n_classes, classes.vocab_size
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


def one_common_token(rng: np.random.Generator, m: int) -> tuple[ss.SequenceClasses, np.ndarray, np.ndarray]:
    """2 to 4 classes of one query with a common token and 1 to 5 distinct ones each; their f (K, L) and the numbers."""
    k = int(rng.integers(2, 5))
    n = rng.integers(1, 6, k)
    f, ends = np.zeros((k, 1 + n.sum())), 1 + np.cumsum(n)
    f[:, 0] = rng.uniform(0.02, 0.4, k)  # so that e^{ρu} stays below 0.03 M: leading order in 1/M
    for i, end in enumerate(ends):
        f[i, end - n[i] : end] = (1 - f[i, 0]) * rng.dirichlet(np.full(n[i], 3.0))
    f = np.sqrt(f)
    p, size = f / f.sum(1, keepdims=True), f.shape[1]
    rows = [np.flatnonzero(row) for row in p]
    classes = ss.SequenceClasses.from_support(
        rows, [p[i, row] for i, row in enumerate(rows)], vocab_size=m, query=np.full(k, size),
        next_token=size + 1 + np.arange(k),
    )  # fmt: skip
    return classes, f, n


def fates(seed: int, settings: int) -> None:
    """2 to 4 classes of one query with one common token, 1 to 5 distinct tokens each, ν = ½, M = 10⁶, at 10⁴ t₀."""
    rng, ratio, m = np.random.default_rng(seed), 0.5, 10**6
    right, falling, known = {"condition": 0, "equation": 0, "Theorem 2(a)": 0}, 0, 0
    for _ in range(settings):
        classes, f, n = one_common_token(rng, m)
        k, size = f.shape
        t = 1e4 * snap(classes)
        rises = ss.flow(classes, ETA_Y, ETA_Y / ratio, [t], variables="z_rate").z_rate.values[0, 0, 1:size] > 0
        u = theory.u(t / k, eta_y=ETA_Y, vocab_size=m)
        _, held = theory.held_speed_one_common(u, f_common=f[:, 0], n_distinct=n, vocab_size=m)
        memory = theory.memory_by_token(u, eta_y=ETA_Y, eta_z=ETA_Y / ratio, f=f, vocab_size=m)
        for name, predicted in (("condition", np.repeat(held > 0, n)), ("equation", memory.v[1:] > 0),
                                ("Theorem 2(a)", np.ones(size - 1, dtype=bool))):  # fmt: skip
            right[name] += int((predicted == rises).sum())
        falling, known = falling + int((~rises).sum()), known + size - 1
    print(f"fates: {settings} settings, seed {seed}: {falling} of {known} distinct tokens fall; signs right by",
          ", ".join(f"{name} {number}" for name, number in right.items()))  # fmt: skip


def memory(seed: int, settings: int) -> None:
    """The memory equation on the classes of ``fates``, M = 10⁶, ν from 3 to 1000, at 0.1, 1 and 10 t₀."""
    rng, m, spans = np.random.default_rng(seed), 10**6, np.array([0.1, 1, 10])
    errors, drives = [], []
    for _ in range(settings):
        classes, f, _ = one_common_token(rng, m)
        eta_z = ETA_Y / np.exp(rng.uniform(np.log(3), np.log(1000)))
        t = spans * snap(classes)
        z = ss.flow(classes, ETA_Y, eta_z, t, variables="z", rtol=1e-9, atol=1e-15).z.values[:, 0, : f.shape[1]]
        u = theory.u(t / len(f), eta_y=ETA_Y, vocab_size=m)
        for store, rate in ((errors, eta_z), (drives, 1e-9 * ETA_Y)):  # hardly any memory at ν = 10⁹
            predicted = theory.memory_by_token(u, eta_y=ETA_Y, eta_z=rate, f=f, vocab_size=m).z * (eta_z / rate)
            store.append(np.abs(predicted - z).max(1) / np.abs(z).max(1))
    for name, store in (("drive and memory", errors), ("drive alone", drives)):
        median, most = (", ".join(f"{x:.1%}" for x in of(store, axis=0)) for of in (np.median, np.max))
        print(f"memory: {settings} settings, seed {seed}, {name}: largest error of z over the largest z at 0.1, 1 and "
              f"10 t₀: {median} (median); {most} (most)")  # fmt: skip


def response(seed: int, settings: int) -> None:
    """The linear response on the classes of ``scan``, ν from 1 to 1000, to 100 t₀, where it trusts itself."""
    rng, errors, right, total = np.random.default_rng(seed), [], 0, 0
    for _ in range(settings):
        classes = random_classes(rng)
        eta_z = ETA_Y / np.exp(rng.uniform(0, np.log(1000)))
        t = np.geomspace(0.1, 100, 13) * snap(classes)
        linear = ss.response(classes, ETA_Y, eta_z, t, variables=["z"], stop=1.0)
        z = ss.flow(classes, ETA_Y, eta_z, t, variables="z").z.values[: linear.sizes["t"]]
        known = linear.t.values < linear.attrs["trusted_until"]  # the first time at which it does not
        known &= np.abs(z).max((1, 2)) > 1e-9  # a class without overlap moves nothing
        error = (np.abs(linear.z.values - z).max((1, 2)) / np.abs(z).max((1, 2)))[known]
        errors += list(error)
        right, total = right + int((error <= 0.1).sum()), total + int(known.sum())
    middle, most = np.median(errors), max(errors)
    print(f"response: {settings} settings, seed {seed}: right to a tenth in {right} of {total} settings and times at "
          f"which it trusts itself; error over the largest z {middle:.2%} (median), {most:.1%} (most)")  # fmt: skip


def residual(seed: int, settings: int) -> None:
    """Two queries of two classes; a token of one class in each and the common one have random shares; ν = 1000."""
    rng, m = np.random.default_rng(seed), 3000
    errors, never, right = [], 0, 0
    for _ in range(settings):
        common, shared = rng.uniform(0, 0.2) * rng.integers(0, 2), rng.uniform(0.05, 0.4)
        p = np.zeros((4, m))
        p[:, 0], p[[0, 2], 1] = common, shared
        for n, own in enumerate((2, 5, 8, 11)):
            p[n, own : own + 3] = (1 - common - shared * (n % 2 == 0)) * rng.dirichlet(np.full(3, 3.0))
        f = np.sqrt(p)
        classes = ss.SequenceClasses(f / f.sum(1, keepdims=True), query=[20, 20, 21, 21], next_token=[22, 23, 24, 25])
        t = snap(classes) * np.geomspace(0.02, 3, 300)
        rate = ss.flow(classes, ETA_Y, ETA_Y / 1000, t, residual="normed", variables=("z_rate",)).z_rate.values[:, 0, 1]
        time = theory.rise_time(eta_y=ETA_Y, f=f[:, :14], vocab_size=m, query=[0, 0, 1, 1])[0, 1]
        falls = np.flatnonzero(rate <= 0)
        measured = 0.0 if not len(falls) else float(np.append(t, np.inf)[falls[-1] + 1])
        same = (measured > t[0], measured < np.inf) == (time > t[0], time <= t[-1])
        right, never = right + same, never + (measured == np.inf)
        if same and 0 < measured < np.inf:
            errors.append(abs(time / measured - 1))
    late, most = np.median(errors), max(errors)
    print(
        f"residual: {settings} settings, seed {seed}: {right} of {settings} tokens rise from the start, later, or "
        f"not until 3 t₀ ({never}) as predicted; {len(errors)} times: off by {late:.1%} (median), {most:.1%} (most)"
    )


def crossover(seed: int, settings: int) -> None:
    """The symmetric family: sign of ∂ln z/∂ln η_Y on the flow, by the closed form, and by Theorem 4 (C₀ = 1)."""
    rng, done, wrong, paper, errors = np.random.default_rng(seed), 0, 0, 0, []
    while done < settings:
        queries, per_query = int(rng.integers(1, 3)), int(rng.integers(2, 4))
        k, n, common, m = queries * per_query, int(rng.integers(1, 8)), int(rng.integers(1, 4)), 10**5
        rho, ratio, spans = (
            rng.uniform(0.05, 0.5),
            np.exp(rng.uniform(np.log(0.5), np.log(200))),
            10 ** rng.uniform(-1, 3),
        )
        t = float(spans * theory.t_snap(eta_y=ratio, n_classes=k, vocab_size=m))
        if np.exp(rho * theory.u(t / k, eta_y=ratio, vocab_size=m)) > 0.03 * m:
            continue  # beyond leading order in 1/M
        classes = ss.SequenceClasses.synthetic(
            queries, per_query, common=common, distinct=n, common_weight=np.sqrt(rho / common),
            distinct_weights=[np.sqrt((1 - rho) / n)] * n, unused=m - common - k * n - queries - k,
        )  # fmt: skip
        token, rates = int(classes.distinct(0)[0]), ratio * np.exp([-0.02, 0.02])
        z = [float(ss.flow(classes, rate, 1.0, [t], rtol=1e-9, variables="z").z[0, 0, token]) for rate in rates]
        measured = np.log(z[1] / z[0]) / 0.04
        predicted = theory.decoder_slope(t, eta_y=ratio, eta_z=1.0, n_classes=k, vocab_size=m, overlap=rho,
                                         n_distinct=n, n_common=common, n_queries=queries)  # fmt: skip
        growth = theory.growth(t, eta_y=rates, eta_z=1.0, n_classes=k, vocab_size=m)
        done, wrong = done + 1, wrong + ((measured > 0) != (predicted > 0))
        paper += int((measured > 0) != (growth[1] > growth[0]))
        errors.append(abs(measured - predicted))
    print(f"crossover: {settings} settings, seed {seed}: {wrong} signs wrong by the closed form, {paper} by Theorem 4; "
          f"the slope is off by {np.median(errors):.4f} (median), at most {max(errors):.3f}")  # fmt: skip


def force(seed: int, settings: int) -> None:
    """ξ_n/γ of the paper's proof over q₁‖F E′e_n‖², random classes, M = 10⁶."""
    rng, off, n_classes = np.random.default_rng(seed), [0.0], 0
    for _ in range(settings):
        k, m = int(rng.integers(2, 9)), 10**6
        f = rng.gamma(0.3, size=(k, 4 * k)) * (rng.random((k, 4 * k)) < 0.3)
        f[np.arange(k), np.arange(k)] += 1  # each class has a token of its own beside shared ones
        f /= np.linalg.norm(f, axis=1, keepdims=True)
        decoder = theory.modified_decoder(f @ f.T, np.full(k, 300.0), eta_y=0.5, vocab_size=m, steps=False)
        known = decoder.force > 1e-3  # so that 1/M is small beside it
        length = (m / (m - 1) * (f.T @ decoder.e_prime) ** 2).sum(0)  # q₁‖F E′e_n‖² from the vectors themselves
        off += list(np.abs(decoder.xi[known] / decoder.gamma / length[known] - 1))
        n_classes += int(known.sum())
    print(f"force: {n_classes} classes, seed {seed}: ξ_n/γ is q₁‖F E′e_n‖² to {max(off):.1e}")


PARTS: dict[str, Callable[[int, int], None]] = {
    "scan": scan, "force": force, "memory": memory, "response": response, "fates": fates, "crossover": crossover,
    "residual": residual,
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Our statements on random settings.")
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help=f"any of {', '.join(PARTS)}; all without")
    parser.add_argument("--seed", type=int, default=2028)
    parser.add_argument("--settings", type=int, default=60)
    options = parser.parse_args()
    for part in options.part or PARTS:
        PARTS[part](options.seed, options.settings)

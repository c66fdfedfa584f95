"""The numbers of docs/derivations.md: ``python examples/theory_numbers.py [drive] [memory] [response] [late]``.

Each part prints the tables and sentences of its section with the numbers as they come out; all together takes a minute.
"""

from __future__ import annotations

import argparse

import numpy as np

import scansnap as ss
from scansnap import theory

ETA_Y = 0.9
TEXTBOOK = ss.SequenceClasses.textbook()
K, M = TEXTBOOK.n_classes, TEXTBOOK.vocab_size
TIMES = np.array([0.1, 1, 10, 100])  # in t₀
TIGHT = {"rtol": 1e-11, "atol": 1e-18}  # z is small, and what is compared is smaller


def snap(classes: ss.SequenceClasses) -> float:
    return float(theory.t_snap(eta_y=ETA_Y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))


def shares() -> tuple[np.ndarray, float, int]:
    """f of textbook's distinct tokens in its first class, ρ, and the token that has most."""
    f = TEXTBOOK.p_context[0] / np.linalg.norm(TEXTBOOK.p_context[0])
    distinct = TEXTBOOK.distinct(0)
    return f[distinct], float(1 - (f[distinct] ** 2).sum()), int(distinct[np.argmax(f[distinct])])


def drive() -> None:
    _, rho, _ = shares()
    known = {"eta_y": ETA_Y, "eta_z": 1.0, "n_classes": K, "vocab_size": M, "overlap": rho}
    leading, exact = (theory.growth_drive(100 * snap(TEXTBOOK), **known, form=form) for form in ("leading", "exact"))
    print(f"1. textbook: K = {K}, M = {M}, ρ = {rho:.3f}; at 100 t₀ leading B is {leading / exact - 1:.1%} too large")


def memory() -> None:
    f, rho, top = shares()
    t = TIMES * snap(TEXTBOOK)
    sizes = {"eta_y": ETA_Y, "n_classes": K, "vocab_size": M}
    gap = theory.u(t / K, eta_y=ETA_Y, vocab_size=M)
    x = theory.frozen_decoder(t, **sizes, overlap=rho).x
    print("2. z of the dominant token, predicted over the flow's, at t/t₀ =", *(f"{x:g}" for x in TIMES))
    for ratio in (1000, 45, 1):
        rates = sizes | {"eta_z": ETA_Y / ratio}
        z = ss.flow(TEXTBOOK, ETA_Y, ETA_Y / ratio, t, variables=("z",), rtol=1e-10).z.values[:, 0, top]
        index = int(np.argmax(f))
        rows = {
            "leading": theory.memory_tokens(gap, **rates, f_distinct=f).z[:, index],
            "exact": theory.memory_tokens(x, **rates, f_distinct=f, form="exact").z[:, index],
            "exact, without v̄": theory.memory_gain(x, **rates, overlap=rho, f=f[index], form="exact"),
            "drive alone, exact": f[index] ** 2 * theory.growth_drive(t, **rates, overlap=rho, form="exact"),
        }
        for name, predicted in rows.items():
            print(f"   ratio {ratio:<5d} {name:20s}", *(f"{x:.4f}" for x in predicted / z))


def apart(classes: ss.SequenceClasses, ratio: float, until: float = 100) -> tuple[np.ndarray, np.ndarray]:
    """Largest difference of response and flow over the largest z, and its estimate, from 0.1 t₀ on; (t,) each."""
    t = snap(classes) * np.geomspace(0.1, until, 1 + round(10 * np.log10(until / 0.1)))
    linear = ss.response(classes, ETA_Y, ETA_Y / ratio, t, **TIGHT, variables=["z"])
    z = ss.flow(classes, ETA_Y, ETA_Y / ratio, t, **TIGHT, variables=["z"]).z.values
    return np.abs(linear.z.values - z).max((1, 2)) / np.abs(z).max((1, 2)), linear.error.max("query").values


def response() -> None:
    print(
        "3. largest error of z at 100 t₀ over the largest z, textbook, all of first order (the memory alone: 2, exact)"
    )
    for ratio in (1000, 45, 1):
        error, estimate = apart(TEXTBOOK, ratio)
        known = error > 1e-9
        print(f"   ratio {ratio:<5d} {error[-1]:.1e}, estimated {(estimate / error)[known].min():.2f} to "
              f"{(estimate / error)[known].max():.2f} times what it is")  # fmt: skip
    medium = ss.SequenceClasses.syn_medium(3)
    first, second = (apart(medium, ratio, until=10)[0][-1] for ratio in (500, 5000))
    print(f"   Syn-Medium(3): falls by {first / second:.0f} from ratio 500 to 5000 (10 t₀)")
    for ratio in (2, 50, 5000):
        error, estimate = apart(medium, ratio)
        times = (estimate / error)[(error > 1e-9) & (estimate < 0.5)]
        print(f"   Syn-Medium(3), ratio {ratio:<5d} estimated {times.min():.2f} to {times.max():.2f} times what it is")
    classes = ss.SequenceClasses.syn_medium(1)
    until = ss.response(classes, ETA_Y, ETA_Y / 2, snap(classes) * np.geomspace(0.1, 100, 31)).attrs["trusted_until"]
    print(f"   Syn-Medium(1), ratio 2: trusted until {until / snap(classes):.1f} t₀")
    small = simple(2, 44)
    t = TIMES * snap(small)
    rates = {"eta_y": ETA_Y, "n_classes": 2, "vocab_size": 44}
    clock = theory.frozen_decoder(t, **rates, overlap=0.5).x
    alone = theory.memory_tokens(clock, **rates, eta_z=ETA_Y / 2, f_distinct=[np.sqrt(0.5)], form="exact").z[:, 0]
    z = ss.flow(small, ETA_Y, ETA_Y / 2, t, variables=["z"]).z.values[:, 0, 1]
    full = ss.response(small, ETA_Y, ETA_Y / 2, t)
    print("   K = 2, M = 44, ρ = ½, ratio 2, distinct token, predicted over the flow's, at t/t₀ =", *TIMES)
    print("   the memory alone", *(f"{x:.3f}" for x in alone / z))
    print("   all of first order", *(f"{x:.3f}" for x in full.z.values[:, 0, 1] / z), "of z =", z.round(3))
    print(f"   trusted until {full.attrs['trusted_until'] / snap(small):g} t₀ (of these)")


def simple(k: int, m: int) -> ss.SequenceClasses:
    """K classes of one query with half their attention on a common token, half on one of their own."""
    p = np.zeros((k, m))
    p[:, 0], p[np.arange(k), 1 + np.arange(k)] = 0.5, 0.5
    return ss.SequenceClasses(p_context=p, query=np.full(k, k + 1), next_token=k + 2 + np.arange(k))


def late() -> None:
    print("4. −d ln ρ/d ln u of the flow, of the law at the same ρ, and to first order")
    for name, classes, ratio, gaps, decades in (
        ("K = 2, M = 44", simple(2, 44), 2.0, (24, 40, 144), 66),
        ("K = 4, M = 100", simple(4, 100), 1.0, (145,), 66),
        ("textbook", TEXTBOOK, 45.0, (52, 93, 149), 66),
    ):
        k, common = classes.n_classes, int(classes.common[0])
        t = snap(classes) * np.logspace(0, decades, 4 * decades)
        flow = ss.flow(classes, ETA_Y, ETA_Y / ratio, t, variables=("f", "gap", "z"))
        u, rho = np.log(flow.gap.values[:, 0]), flow.f.values[:, 0, common] ** 2
        slope, slope_z = (-np.gradient(values, u) for values in (np.log(rho), flow.z.values[:, 0, common]))
        grid = np.linspace(0.01, 8, 800)
        start = float(classes.p_context[0, common] ** 2 / (classes.p_context[0] ** 2).sum())
        path = theory.late_overlap(grid, n_classes=k, overlap=start)
        held = -np.gradient(np.log(path), grid)
        for gap in gaps:
            at, window = np.interp(np.log(gap), u, slope), np.interp(np.log(gap), u, rho)
            law, first = np.interp(-window, -path, held), theory.late_exponent(window, n_classes=k)
            print(f"   {name}, ratio {ratio:g}, gap {gap}: ρ = {window:.3f}; {at:.3f}, {law:.3f}, {first:.3f}; "
                  f"{at / (4 * (k - 1) * window):.2f} of 4(K − 1)ρ")  # fmt: skip
        for level in (0.24, 0.1):
            if rho[-1] < level < rho[0]:
                pair = (np.interp(-level, -rho, values) for values in (slope, slope_z))
                print(f"   {name}, where ρ = {level}: −d ln ρ/d ln u, −dz_c/d ln u =", *(f"{x:.2f}" for x in pair))


PARTS = {"drive": drive, "memory": memory, "response": response, "late": late}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The numbers of docs/derivations.md.")
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help=f"any of {', '.join(PARTS)}; all without")
    for part in parser.parse_args().part or PARTS:
        PARTS[part]()

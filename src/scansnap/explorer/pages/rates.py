"""The map of the rates: where attention ends up for 9 × 9 pairs (η_Y, η_Z) of one set-up, all in one simulation."""

from __future__ import annotations

import dataclasses
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.explorer.controls import BY_NAME
from scansnap.explorer.pages.predict import Cancelled
from scansnap.explorer.protocol import LIMITS
from scansnap.explorer.setups.blueprint import Blueprint
from scansnap.interrupt import Stopped
from scansnap.runs import grid

SIDE = 9


def axis(name: str) -> np.ndarray:
    """The rates of one side, even in their logarithm, from one end of the slider to the other."""
    page = BY_NAME[name].page
    assert page.low is not None
    assert page.high is not None
    return np.array([float(f"{rate:.3g}") for rate in np.geomspace(page.low, page.high, SIDE)])


def key(blueprint: Blueprint) -> str:
    """Set-ups that differ in nothing but their rates have the same map."""
    return json.dumps({k: v for k, v in blueprint.setup.items() if k not in ("eta_y", "eta_z")}, sort_keys=True)


def check_map(blueprint: Blueprint) -> None:
    """81 runs at once must have room."""
    own = blueprint.state_memory * SIDE**2
    if own > LIMITS["map_bytes"]:
        most = f"at most {LIMITS['map_bytes'] / 2**20:.0f} MiB: fewer tokens or classes, or a smaller batch"
        raise InputError("the memory of the map, which is 81 runs,", f"{own / 2**20:.0f} MiB", most)


def common_share(attention: np.ndarray, classes: SequenceClasses) -> np.ndarray:
    """Attention on common tokens, mean over classes weighted by their probability p_n; attention (R, K, M) → (R,)."""
    share = np.zeros(len(attention))
    for n, p in enumerate(classes.p_class):
        tokens = np.setdiff1d(classes.support(n)[0], classes.distinct(n))
        share += p * attention[:, n, tokens].sum(-1)
    return share / classes.p_class.sum()


def rate_map(blueprint: Blueprint, seconds: float, stop: Callable[[], bool]) -> dict[str, Any]:
    """``MapSaid`` of the protocol. After ``seconds`` it is told as it is then, with the step it has come to."""
    began, runs, last = time.monotonic(), blueprint.runs, blueprint.settings.steps
    rest = {name: float(getattr(runs, name)[0]) for name in ("momentum", "weight_decay")}
    all_runs = grid(eta_y=axis("eta_y"), eta_z=axis("eta_z"), seed=int(runs.seed[0]), **rest)
    settings = dataclasses.replace(blueprint.settings, record=(last,), variables=("attention",))

    def progress(done: int, total: int) -> None:
        if stop():
            raise Cancelled
        if time.monotonic() - began > seconds:
            raise KeyboardInterrupt  # what it has come to is the answer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Stopped)
        data = simulate(blueprint.classes, all_runs, settings=settings, device="cpu", progress=progress)
    failed = data.failed_step.values
    share = common_share(data.attention.values[:, -1].astype(float), blueprint.classes)
    share[failed >= 0] = np.nan
    return {
        "eta_y": axis("eta_y"), "eta_z": axis("eta_z"), "share": share.reshape(SIDE, SIDE),
        "failed_step": [[int(step) if step >= 0 else None for step in row] for row in failed.reshape(SIDE, SIDE)],
        "step": int(data.step.values[-1]), "steps": last, "seconds": time.monotonic() - began,
    }  # fmt: skip

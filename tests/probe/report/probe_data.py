"""A probe's data made up, with everything that findings and store add to it: heads of every kind, over ln t."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap.probe.schema import AGAINST, DECILES, PARTS, STATISTICS, VARIABLES

KINDS = ("scans and snaps", "snaps", "scans", "sink", "positional", "other", "undecided", "sink and snaps", "collapsed",
         "dead and idle")  # fmt: skip
WORDS = ("Ġthe", "Ġof", "Ġand", "Ġin", "Ġriver", "Ġking", "dom", "Ġstation", "Ġ1912", ",", ".", "Ġwas", "Ġdiscovered",
         "Ġby", "Ġa", "Ġcomet", "Ġobserv", "atory", "Ġto", "ĠThe")  # fmt: skip


def made(
    layers: int = 4, heads: int = 6, steps: int = 60, last: int = 10_000, sequences: int = 4, length: int = 48,
    fewer: int | None = None, cross: bool = False, seed: int = 0,
) -> xr.Dataset:  # fmt: skip
    """A Dataset as ``Probe.dataset`` returns it; ``fewer``: the heads that the first layer has."""
    rng = np.random.default_rng(seed)
    times = np.unique(np.r_[0, np.geomspace(1, last, max(steps - 1, 1)).round()]).astype(int)[:steps]
    u = np.log1p(times) / np.log1p(last)
    kinds = np.array([[KINDS[rng.integers(len(KINDS))] for _ in range(heads)] for _ in range(layers)], dtype=object)
    kinds[-1, -1] = KINDS[0]
    kinds[0] = KINDS[1]  # more heads snap than scan
    shape = (len(times), layers, heads)
    at = rng.uniform(0.35, 0.6, (layers, heads)) + 0.2 * np.arange(layers)[:, None] / layers
    rise = 1 / (1 + np.exp(-(u[:, None, None] - at) * 25))
    wobble = 0.01 * rng.standard_normal(shape).cumsum(0) / np.sqrt(len(times))
    has = {word: np.vectorize(lambda k, w=word: w in k)(kinds) for word in ("scans", "snaps", "sink", "positional")}
    moving = has["scans"] | has["snaps"] | has["sink"] | has["positional"]
    values: dict[str, Any] = {name: np.full([_size(dim, shape, sequences) for dim in ("step", *v.dims)], np.nan)
                              for name, v in VARIABLES.items()}  # fmt: skip
    for name in STATISTICS:
        values[name] = 0.05 + 0.1 * rng.random(shape[1:]) + wobble
        values[f"{name}_uniform"] = np.full(shape, 0.06)
    values["entropy_rel"] = np.clip(0.97 - rise * moving * rng.uniform(0.25, 0.7, shape[1:]) + wobble, 0, 1)
    values["entropy_rel_uniform"] = np.ones(shape)
    values["sink"] = np.clip(0.04 + 0.7 * rise * has["sink"] + np.abs(wobble), 0, 1)
    values["previous"] = np.clip(0.04 + 0.8 * rise * has["positional"] + np.abs(wobble), 0, 1)
    scan = rise * has["scans"] * rng.uniform(0.05, 0.2, shape[1:]) + wobble / 2
    values["distinctness"] = (0.45 + scan)[:, None] + 0.01 * rng.standard_normal((1, sequences, layers, heads))
    values["distinctness_uniform"] = np.full((len(times), sequences, layers, heads), 0.46)
    values["moved_from_start"] = np.clip(0.6 * rise * moving + np.abs(wobble), 0, 1)
    values["moved"] = np.abs(np.diff(values["moved_from_start"], axis=0, prepend=np.nan))
    values["rank_corr"][..., 0] = scan * 3 + wobble
    tilt = np.linspace(-1, 1, DECILES)
    mass = np.exp(tilt * 6 * scan[..., None])
    values["mass_by_decile"] = mass / mass.sum(-1, keepdims=True)
    values["uniform_by_decile"] = np.full((*shape, DECILES), 1 / DECILES)
    values["n_queries"] = np.full(shape, 64.0)
    values["train_loss"] = 2.2 + 4.5 / (1 + np.exp((u - 0.4) * 9)) + 0.02 * rng.standard_normal(len(times))
    if fewer is not None:
        for name, value in values.items():
            if {"layer", "head"} <= set(VARIABLES[name].dims):
                dims = ("step", *VARIABLES[name].dims)
                value[
                    tuple(0 if d == "layer" else slice(fewer, None) if d == "head" else slice(None) for d in dims)
                ] = np.nan
    data = {name: (("step", *VARIABLES[name].dims), value) for name, value in values.items()}
    t_snap = np.exp(at * np.log1p(last))
    data |= {
        "scan_index": (("layer", "head"), scan[-1]), "scan_low": (("layer", "head"), scan[-1] - 0.02),
        "scan_high": (("layer", "head"), scan[-1] + 0.02), "verdict": (("layer", "head"), kinds.astype(np.str_)),
        "t_snap_reason": (("layer", "head"), np.where(has["snaps"], "", "not yet")),
        "t_snap": (("layer", "head"), np.where(has["snaps"], t_snap, np.nan)),
        "t_snap_ln": (("layer", "head"), np.where(has["snaps"], t_snap, np.nan)),
        "frozenness_ln": (("layer", "head"), np.where(moving, 0.9, 0.2)),
        **_samples(rng, layers, heads, sequences, length),
    }  # fmt: skip
    kind = ["self"] * layers
    if cross:
        kind[-1] = "cross"
    coords = {"step": times, "decile": np.arange(DECILES), "against": list(AGAINST), "kind": ("layer", kind),
              "path": ("layer", [f"transformer.h.{i}.attn" for i in range(layers)]), "call": ("layer", [0] * layers),
              "words": ("token", np.array(WORDS))}  # fmt: skip
    attrs = {"model": "GPT2LMHeadModel", "batch": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
             "coverage": f"all {layers} of {layers} attention modules were seen",
             "versions": '{"scansnap": "0.1.0", "torch": "2.13"}'}  # fmt: skip
    return xr.Dataset(data, coords=coords, attrs=attrs)


def _size(dim: str, shape: tuple[int, ...], sequences: int) -> int:
    return {"step": shape[0], "layer": shape[1], "head": shape[2], "sequence": sequences, "decile": DECILES,
            "against": len(AGAINST), "part": len(PARTS)}[dim]  # fmt: skip


def _samples(rng: np.random.Generator, layers: int, heads: int, sequences: int, length: int) -> dict[str, Any]:
    """Tokens, and causal attention of three queries: at first spread evenly, at last on a token or two."""
    positions = np.array([length // 3, length // 2, length - 1])
    tokens = rng.integers(0, len(WORDS), (sequences, length))
    keys = np.arange(length)
    visible = keys <= positions[:, None]
    first = np.broadcast_to(
        visible / visible.sum(-1, keepdims=True), (layers, sequences, heads, len(positions), length)
    )
    last = np.where(visible, rng.random(first.shape) ** 12, 0.0)
    dims = ("layer", "sequence", "head", "sampled", "position")
    return {"tokens": (("sequence", "position"), tokens), "attention_first": (dims, first.astype(np.float32)),
            "attention_last": (dims, (last / last.sum(-1, keepdims=True)).astype(np.float32)),
            "sampled_position": ("sampled", positions)}  # fmt: skip

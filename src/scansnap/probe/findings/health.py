"""What is wrong with a head at the last measurement, before any question about scanning.

    non-finite  some queries have NaN or infinite attention; ``nonfinite_from`` is the step since when
    exploding   the largest logit is above ``MAX_LOGIT`` and still grows
    collapsed   entropy is near 0 relative to uniform attention over the visible keys, and no fixed position explains it
    dead        the head adds nearly nothing to the residual stream
    idle        attention has hardly moved since the first measurement

A head that puts its attention on the first key, on its own or the previous position, or on induction targets has an
entropy near 0 and does its work; it is not collapsed. A large logit alone is no failure either: models train well with
constant logits above 100. A value that was not captured leaves its verdict undecided (NaN).
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import xarray as xr

MAX_LOGIT = 100.0  # the threshold at which Kimi K2 clips queries and keys
GROWING = 0.05  # least growth per e-fold of steps, relative to the largest logit
COLLAPSED = 0.05  # entropy relative to uniform attention
EXPLAINED = 0.5  # of attention on fixed positions and induction targets
DEAD = 1e-3  # share of the residual stream
IDLE = 0.05  # total variation
LISTED = 8  # heads named in the headline

WORDS = {"is_nonfinite": "non-finite", "is_exploding": "exploding", "is_collapsed": "collapsed", "is_dead": "dead"}
_EXPLAINING = ("sink", "self", "previous", "induction_all")


def health_findings(data: xr.Dataset) -> xr.Dataset:
    """Each verdict on each head as 1, 0 or NaN (undecided), with ``max_logit_growth`` and ``nonfinite_from``."""
    steps = np.asarray(data["step"].values, dtype=np.float64)
    largest, nonfinite, moved = (_by_head(data, name) for name in ("max_logit", "n_nonfinite", "moved_from_start"))
    growth = logit_growth(steps, largest)
    top = largest[-1]
    exploding = np.where(top <= MAX_LOGIT, 0.0, _decide(growth, growth > GROWING * top))
    exploding[np.isnan(top)] = np.nan
    entropy = _by_head(data, "entropy_rel")[-1]
    explained = np.nansum([_by_head(data, name)[-1] for name in _EXPLAINING], axis=0)
    collapsed = _decide(entropy, (entropy < COLLAPSED) & (explained < EXPLAINED))
    norm, share = _by_head(data, "output_norm")[-1], _by_head(data, "output_share")[-1]
    dead = np.where(norm == 0, 1.0, _decide(share, share < DEAD))
    idle = np.full(top.shape, np.nan)
    if len(steps) > 1:
        farthest = np.where(np.isnan(moved[1:]), -np.inf, moved[1:]).max(0)
        idle = _decide(np.where(np.isinf(farthest), np.nan, farthest), farthest < IDLE)
    bad = nonfinite > 0
    finite_at_last = np.where(bad.all(0), -1, len(steps) - 1 - np.argmin(bad[::-1], axis=0))  # the last finite one
    since = np.where(bad[-1], steps[np.minimum(finite_at_last + 1, len(steps) - 1)], np.nan)
    variables = {
        "is_nonfinite": (_decide(nonfinite[-1], bad[-1]), "1: NaN or infinite attention, 0: none"),
        "nonfinite_from": (since, "step of the first of the last measurements that all have NaN or infinite attention"),
        "is_exploding": (exploding, f"1: largest logit above {MAX_LOGIT:g} and growing, 0: not, NaN: unknown"),
        "max_logit_growth": (growth, "growth of the largest logit per e-fold of steps, over the last e-fold"),
        "is_collapsed": (collapsed, f"1: entropy below {COLLAPSED:g} of uniform attention, 0: not, NaN: unknown"),
        "is_dead": (dead, f"1: below {DEAD:g} of the residual stream, 0: not, NaN: unknown"),
        "is_idle": (idle, f"1: moved by less than {IDLE:g} since the first measurement, 0: more, NaN: unknown"),
    }
    return xr.Dataset({name: (("layer", "head"), v, {"long_name": text}) for name, (v, text) in variables.items()})


def logit_growth(steps: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Growth per e-fold of steps, (layer, head), since the last measurement at least an e-fold earlier; NaN without."""
    earlier = np.flatnonzero((steps > 0) & (steps <= steps[-1] / math.e * (1 + 1e-9)))
    if not len(earlier):
        return np.full(largest.shape[1:], np.nan)
    i = earlier[-1]
    with np.errstate(invalid="ignore"):
        return (largest[-1] - largest[i]) / math.log(steps[-1] / steps[i])


def headline(data: xr.Dataset) -> str:
    """One sentence that names what is wrong at the last measurement.

    Parameters
    ----------
    data : xarray.Dataset
        What `scansnap.Probe.dataset` returns.

    Returns
    -------
    str
        Heads with each problem by layer, and the largest logit.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    >>> probe = ss.Probe(torch.nn.Sequential(torch.nn.Embedding(7, 8), layer), torch.arange(18).reshape(2, 9) % 7)
    >>> probe.dataset().attrs["headline"]
    'Nothing has been measured'
    """
    if not data.sizes.get("step") or not data.sizes.get("layer"):
        return "No attention was captured" if data.sizes.get("step") else "Nothing has been measured"
    step = int(data["step"].values[-1])
    exists = np.isfinite(_by_head(data, "n_queries")[-1])
    problems = []
    since = json.loads(data.attrs.get("nonfinite_since", "{}"))
    if since:
        parts = ", ".join(part.replace("_", " ") for part in since)
        problems.append(f"NaN or infinite values since step {min(since.values()):,} ({parts})")
    for name, word in WORDS.items():
        heads = np.argwhere(_by_head(data, name)[-1] == 1)
        if len(heads) and not (name == "is_nonfinite" and len(heads) == exists.sum()):
            problems.append(f"{_number(len(heads), int(exists.sum()))} {word}{_places(heads)}")
    n = int(exists.sum())
    text = "; ".join(problems) or f"No problem found in {_number(n, 0)}"
    largest = _by_head(data, "max_logit")[-1]
    if np.isfinite(largest).any():
        text += f", max logit {np.nanmax(np.where(np.isinf(largest), np.nan, largest)):.3g}"
    text += f" at step {step:,}"
    unknown = [word for name, word in WORDS.items() if np.isnan(_by_head(data, name)[-1][exists]).all()]
    if unknown and n and not since:
        text += f" (unknown: whether heads are {' or '.join(unknown)})"
    return text


def _number(n: int, of: int) -> str:
    return f"{'all ' if n == of > 1 else ''}{n} head{'' if n == 1 else 's'}"


def _places(heads: np.ndarray) -> str:
    """Heads by layer: ' (layer 0: heads 1, 3; layer 2: head 0)'."""
    layers: dict[int, list[int]] = {}
    for layer, head in heads[:LISTED].tolist():
        layers.setdefault(layer, []).append(head)
    parts = [f"layer {layer}: head{'s' if len(some) > 1 else ''} {', '.join(map(str, some))}"
             for layer, some in layers.items()]  # fmt: skip
    more = f"; and {len(heads) - LISTED} more" if len(heads) > LISTED else ""
    return f" ({'; '.join(parts)}{more})"


def _by_head(data: xr.Dataset, name: str) -> np.ndarray:
    """(step, layer, head); one step for a finding, all NaN for a variable that an older file lacks."""
    if name not in data:
        return np.full([data.sizes[dim] for dim in ("step", "layer", "head")], np.nan)
    array = data[name] if "step" in data[name].dims else data[name].expand_dims("step")
    values: np.ndarray[Any, np.dtype[np.float64]] = array.transpose("step", "layer", "head").values.astype(np.float64)
    return values


def _decide(known: np.ndarray, holds: np.ndarray) -> np.ndarray:
    """1 where it holds, 0 where not, NaN where the number behind it is unknown."""
    return np.where(np.isnan(known), np.nan, np.asarray(holds, dtype=np.float64))

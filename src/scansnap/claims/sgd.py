"""Regime maps by SGD: at every setting of a grid a theorem's claims, judged on the runs of several seeds.

The settings are those of the flow's maps (:mod:`scansnap.claims.maps`), trained by plain SGD from Y = Z = 0 to 10 t₀.
Settings with the same classes and decoder rate differ in η_Z alone: they are runs of one simulation, which all of a
CPU's or GPU's batching serves, and see the same sequences. Of a run only what the claims look at is kept, the rows of
Y and the logits of the context's tokens, so that M may be large.

A claim is judged on each seed; what stands on the map is the mean of its margins with a 95% t interval over seeds. A
margin below −1 counts as −1: how badly a seed fails must not outweigh the others. Claims about signs that noise may
hide (Theorem 2) pool the seeds themselves (:func:`scansnap.measure.comparison.sure_signs`), and bring the
interval with them.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from scipy.interpolate import RegularGridInterpolator
from scipy.special import log_softmax

from scansnap.checks import InputError, check_integer
from scansnap.claims.evidence import Evidence
from scansnap.claims.maps import T_END, MapLayout, MapPoint, Place
from scansnap.claims.registry import CHECKS
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.looking import Seen
from scansnap.dynamics.settings import ModelConfig
from scansnap.dynamics.simulate import simulate
from scansnap.interrupt import deaf_children
from scansnap.measure.comparison import mean_interval
from scansnap.measure.entropy import attention_of
from scansnap.processes import ending_at_once, single_threaded_children
from scansnap.progress import Progress
from scansnap.runs import grid
from scansnap.storage.versions import decisive_versions
from scansnap.storage.work_cache import WorkCache
from scansnap.theory import t_snap

FLOOR = -1.0  # of one seed's margin
_TIMES = 48  # of a run that are looked at, as in the flow's maps
_GROUP = 1000  # runs of one simulation: what is lost when it is stopped
_LONGEST = 1e7  # updates of a run
_AHEAD = 2  # groups that are trained while others are judged

Numbers = dict[str, dict[str, float]]  # by claim: margin, low and high
Judged = tuple[Numbers, bool]  # and whether all assumptions are met


@dataclass(frozen=True)
class Training:
    """How every setting is trained. ``context`` is T; infinite, with batch_size None, is gradient descent itself."""

    seeds: int = 10
    batch_size: int | None = 128
    context: float = 128

    def __post_init__(self) -> None:
        check_integer("seeds", self.seeds, least=2 if self.sampled else 1)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, least=1)
        if not math.isinf(self.context):
            check_integer("context", self.context, least=2)

    @property
    def sampled(self) -> bool:
        """Whether seeds differ."""
        return self.batch_size is not None

    def __str__(self) -> str:
        length = "∞" if math.isinf(self.context) else f"{self.context:g}"
        return f"{self.seeds} seeds, batch {self.batch_size or 'of all classes'}, T = {length}"


@dataclass(frozen=True)
class Group:
    """Settings that differ in η_Z alone, and where they stand on the map."""

    places: tuple[Place, ...]
    points: tuple[MapPoint, ...]

    @property
    def steps(self) -> int:
        """10 t₀; the last is inside the window of the claims."""
        one = self.points[0]
        steps = T_END * float(t_snap(eta_y=one.eta_y, n_classes=one.n_classes, vocab_size=one.vocab_size))
        if steps > _LONGEST:
            raise InputError(
                "eta_y", one.eta_y, f"larger: 10 t₀ are {steps:.2g} updates, and at most {_LONGEST:.0e} are made"
            )
        return max(int(steps), 1)


def groups(layout: MapLayout, training: Training) -> list[Group]:
    """The simulations of a map, in the order in which they are made."""
    alike: dict[MapPoint, list[Place]] = {}
    for place, point in layout.points.items():
        alike.setdefault(replace(point, ratio=1.0), []).append(place)
    size = max(1, _GROUP // training.seeds)
    return [
        Group(tuple(part), tuple(layout.points[place] for place in part))
        for places in alike.values() for part in (places[i : i + size] for i in range(0, len(places), size))
    ]  # fmt: skip


def map_cache(folder: Path, layout: MapLayout, training: Training, *, overwrite: bool = False) -> WorkCache:
    """The cache of the finished groups of this map, from which it is continued."""
    axes = {name: [axis.name, list(axis.values)] for name, axis in (("x", layout.x), ("y", layout.y))}
    work = {"theorem": layout.theorem, "base": repr(layout.base), "training": str(training), "times": _TIMES}
    cache = WorkCache(folder, json.dumps(work | axes), decisive_versions(), damaged="missing",
                      field="the folder with unfinished work")  # fmt: skip
    if overwrite:
        cache.discard()
    cache.refuse_other_work("--overwrite starts again")
    return cache


def finished(cache: WorkCache | None, n: int) -> dict[int, list[Judged]]:
    """What the cache has of n groups, by their number."""
    names = {f"group-{i}": i for i in range(n)}
    pieces = [] if cache is None else cache.pieces(names)
    return {names[name]: piece.values["judged"] for name, piece in pieces if piece is not None}


def sgd_map(
    layout: MapLayout,
    training: Training,
    *,
    device: str = "auto",
    cache: WorkCache | None = None,
    progress: Progress | None = None,
    processes: int | None = None,
) -> xr.Dataset:
    """Variables ``margin``, ``low`` and ``high`` (claim, y, x), ``assumptions_met`` and ``possible`` (y, x).

    Simulations are made here, one group after the other, and judged by other processes meanwhile.
    """
    todo = groups(layout, training)
    found = finished(cache, len(todo))
    before = sum(len(todo[i].places) for i in found) * training.seeds
    total = len(layout.points) * training.seeds
    missing = [i for i in range(len(todo)) if i not in found]
    if progress is not None and before:
        progress(before, total)
    if missing:
        n = processes or os.cpu_count() or 1
        with single_threaded_children(), ending_at_once(n) as pool:
            for i, judged in _in_turn(pool, 2 * n, layout.theorem, todo, missing, training, device):
                found[i] = judged
                if cache is not None:
                    cache.put(f"group-{i}", {"judged": judged})
                if progress is not None:
                    progress(sum(len(todo[k].places) for k in found) * training.seeds, total)
    by_place = {place: one for i, part in found.items() for place, one in zip(todo[i].places, part, strict=True)}
    data = layout.dataset({place: numbers for place, (numbers, _) in by_place.items()},
                          {place: bool(met) for place, (_, met) in by_place.items()})  # fmt: skip
    return data.assign_attrs(sgd=str(training), **{k: str(v) for k, v in asdict(training).items()})


def beside(data: xr.Dataset, flow: xr.Dataset) -> xr.Dataset:
    """With ``flow_margin``, the flow's margins at the same settings: between those of a coarser map interpolated."""

    def scale(values: xr.DataArray, axis: str) -> np.ndarray:
        return np.log(values.values) if data.attrs[f"{axis}_log"] else values.values

    grid_ = [scale(flow[axis], axis) for axis in "yx"]
    wanted = np.stack(np.meshgrid(*(scale(data[axis], axis) for axis in "yx"), indexing="ij"), axis=-1)
    found = np.full(data.margin.shape, np.nan)
    for k, claim in enumerate(data.claim.values):
        if claim in flow.claim.values:
            margin = np.maximum(flow.margin.sel(claim=claim).values, FLOOR)
            found[k] = RegularGridInterpolator(grid_, margin, bounds_error=False)(wanted)
    return data.assign(flow_margin=(("claim", "y", "x"), found))


def estimate(
    layout: MapLayout, training: Training, cache: WorkCache | None = None, device: str = "auto"
) -> tuple[int, float]:
    """How many runs are missing, and the seconds they will take about: from short simulations and a verdict here."""
    todo = groups(layout, training)
    done = finished(cache, len(todo))
    missing = [group for i, group in enumerate(todo) if i not in done]
    n_settings = sum(len(group.points) for group in missing)
    if not missing:
        return 0, 0.0
    longest = max(missing, key=lambda group: group.steps * len(group.points))
    took, sizes = [], (1, min(4, len(longest.points)))
    for n in (sizes[0], *sizes):  # the first of all loads libraries
        began = time.perf_counter()
        runs = train(Group(longest.places[:n], longest.points[:n]), training, device)
        took.append(time.perf_counter() - began)
    began = time.perf_counter()
    judge(layout.theorem, longest.points[0], training, *runs[0])
    verdict = (time.perf_counter() - began) / (os.cpu_count() or 1)
    each = max(took[2] - took[1], 0.0) / max(sizes[1] - 1, 1)
    return n_settings * training.seeds, len(missing) * took[1] + n_settings * (each + verdict)


def _in_turn(
    pool: Any, parts: int, theorem: str, todo: list[Group], missing: list[int], training: Training, device: str
) -> Iterator[tuple[int, list[Judged]]]:
    """Groups as they are judged, each in so many parts; a few are trained ahead."""
    waiting: dict[int, list[Future[list[Judged]]]] = {}
    for i in missing:
        if len(waiting) >= _AHEAD:
            for k in list(islice(waiting, 1)):
                yield k, _joined(waiting.pop(k))
        points, runs = todo[i].points, train(todo[i], training, device)
        size = -(-len(points) // parts)
        with deaf_children():
            waiting[i] = [pool.submit(_judge_all, theorem, points[k : k + size], training, runs[k : k + size])
                          for k in range(0, len(points), size)]  # fmt: skip
    for k in list(waiting):
        yield k, _joined(waiting.pop(k))


def _joined(jobs: list[Future[list[Judged]]]) -> list[Judged]:
    return [one for job in jobs for one in job.result()]


Run = tuple[np.ndarray, np.ndarray, np.ndarray]  # steps (n,), z (R, n, L) and y (R, n, L, J) of the finite runs


def train(group: Group, training: Training, device: str) -> list[Run]:
    """The runs of each setting of a group."""
    classes, eta_y = group.points[0].classes(), group.points[0].eta_y
    rows = make_layout(classes, ModelConfig(), decays=False).rows
    steps = np.unique(np.append(0, np.rint(np.geomspace(1, group.steps, _TIMES)))).astype(int)

    def context(seen: Seen) -> dict[str, Any]:
        y, z = seen.tables["y"], seen.tables["z"][:, 0, 0, :]
        z = z[:, torch.as_tensor(rows, device=z.device)]
        return {"rows_y": (("row", "column"), y.cpu().numpy()), "row_z": (("row",), z.cpu().numpy())}

    data = simulate(
        classes, grid(eta_y=eta_y, eta_z=[eta_y / point.ratio for point in group.points], seed=range(training.seeds)),
        steps=group.steps, record=steps.tolist(), batch_size=training.batch_size, context=training.context,
        variables=(), record_fn=context, device=device,
    )  # fmt: skip
    shape = len(group.points), training.seeds
    z, y = (data[name].values.reshape(*shape, *data[name].shape[1:]) for name in ("row_z", "rows_y"))
    finite = (data["failed_step"].values < 0).reshape(shape)
    return [(steps, z[i][finite[i]], y[i][finite[i]]) for i in range(len(group.points))]


def _judge_all(theorem: str, points: Sequence[MapPoint], training: Training, runs: list[Run]) -> list[Judged]:
    return [judge(theorem, point, training, *one) for point, one in zip(points, runs, strict=True)]


def judge(theorem: str, point: MapPoint, training: Training, t: np.ndarray, z: np.ndarray, y: np.ndarray) -> Judged:
    """The theorem's claims at one setting, from the runs of its seeds."""
    classes = point.classes()
    seeds = [_evidence(classes, point, training, t, *one) for one in zip(z, y, strict=True)]
    if len(seeds) < training.seeds and len(seeds) < 2:  # the others became non-finite
        return {}, False
    if training.sampled:
        seeds[0] = replace(seeds[0], z_seeds=np.stack([one.z for one in seeds]))
    margins: dict[str, list[float]] = {}
    found: Numbers = {}
    for evidence in seeds:
        checked = CHECKS[theorem](evidence)
        for claim in checked if isinstance(checked, list) else [checked]:
            if claim.margin is None or claim.tolerance is None or claim.name in found:
                continue
            if evidence is seeds[0] and claim.interval is not None:  # of all seeds together
                low, high = (1 - end / claim.tolerance for end in reversed(claim.interval))
                found[claim.name] = {"margin": max(claim.margin, FLOOR), "low": max(low, FLOOR), "high": high}
            else:
                margins.setdefault(claim.name, []).append(max(claim.margin, FLOOR))
    for name, values in margins.items():
        alone = (values[0], -math.inf, math.inf) if training.sampled else (values[0],) * 3
        ends = mean_interval(values) if len(values) > 1 else alone
        found[name] = dict(zip(("margin", "low", "high"), ends, strict=True))
    return found, all(a.met for a in seeds[0].assumptions.values())


def _evidence(
    classes: SequenceClasses, point: MapPoint, training: Training, t: np.ndarray, z: np.ndarray, y: np.ndarray
) -> Evidence:
    """One run as the claims look at it; z (n, L) and y (n, L, J) of the context's tokens."""
    layout = make_layout(classes, ModelConfig(), decays=False)
    z, y = z.astype(np.float64), y.astype(np.float64)
    p = classes.p_context[:, layout.rows]  # (K, L)
    attention = attention_of(p, z[:, None])  # (n, K, L)
    f = attention / np.linalg.norm(attention, axis=-1, keepdims=True)
    logits = f @ y  # (n, K, J)
    k = np.arange(classes.n_classes)
    r = -np.exp(log_softmax(logits + np.log(layout.multiplicity), axis=-1))
    r[:, k, layout.target] = 0
    r[:, k, layout.target] = -r.sum(-1)  # e_n − α_n
    g = np.where(p > 0, r @ y.transpose(0, 2, 1), 0.0)
    never = np.setdiff1d(np.arange(len(layout.columns)), layout.target)
    gap = logits[:, k, layout.target] - logits[:, :, never].mean(-1) if len(never) else None

    def spread(values: np.ndarray) -> np.ndarray:
        full = np.zeros((*values.shape[:-1], layout.rows[-1] + 1))  # tokens after that are in no context
        full[..., layout.rows] = values
        return full

    return Evidence(classes, point.eta_y, point.eta_y / point.ratio, "sgd", training.context, t.astype(np.float64),
                    spread(z)[:, None], spread(attention), spread(g), gap,
                    sampled=training.sampled)  # fmt: skip

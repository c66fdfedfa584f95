"""Regime maps by SGD: at every setting of a grid a theorem's claims, judged on the runs of several seeds.

The settings are those of the flow's maps (`scansnap.claims.regime_map`), trained by plain SGD from Y = Z = 0 to
10 t₀. Settings with the same classes and decoder rate differ in η_Z alone: they are one batched simulation on CPU or
GPU, with the same sequences. Only what the claims use is recorded, the rows of Y and the logits of the context's
tokens, so that M may be large.

Each seed gets a margin; the map shows the mean over seeds with a 95% t interval. A margin below −1 counts as −1, so
that one seed does not outweigh the others. Claims about signs that noise may hide (Theorem 2) combine the seeds
themselves (`scansnap.measure.comparison.sure_signs`) and return the interval.
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
from scansnap.claims.assumptions import met_level
from scansnap.claims.evidence import Evidence
from scansnap.claims.regime_map import T_END, GridIndex, MapLayout, MapPoint
from scansnap.claims.registry import BUILT_IN
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import ModelConfig
from scansnap.dynamics.simulate import simulate
from scansnap.dynamics.state_view import StateView
from scansnap.interrupt import block_signals_in_children
from scansnap.measure.comparison import mean_interval
from scansnap.measure.entropy import attention_of
from scansnap.processes import killable_pool, single_threaded_children
from scansnap.progress import Progress
from scansnap.runs import grid
from scansnap.storage.versions import decisive_versions
from scansnap.storage.work_cache import WorkCache
from scansnap.theory import t_snap

FLOOR = -1.0  # of one seed's margin
_TIMES = 48  # recorded steps of a run, as in the flow's maps
_GROUP = 1000  # runs of one simulation: what an interruption can lose
_LONGEST = 1e7  # updates of a run
_AHEAD = 2  # groups trained while others are judged

Margins = dict[str, dict[str, float]]  # by claim: margin, low and high
PointVerdict = tuple[Margins, int]  # and which assumptions are met (`met_level`)


@dataclass(frozen=True)
class SgdRuns:
    """The runs of every setting. ``context`` is T; ∞ with batch_size None is full-expectation gradient descent."""

    seeds: int = 10
    batch_size: int | None = 128
    context: float = 128

    def __post_init__(self) -> None:
        check_integer("seeds", self.seeds, least=2 if self.is_sampled else 1)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, least=1)
        if not math.isinf(self.context):
            check_integer("context", self.context, least=2)

    @property
    def is_sampled(self) -> bool:
        """Whether seeds differ."""
        return self.batch_size is not None

    def __str__(self) -> str:
        length = "∞" if math.isinf(self.context) else f"{self.context:g}"
        return f"{self.seeds} seeds, batch {self.batch_size or 'of all classes'}, T = {length}"


@dataclass(frozen=True)
class MapGroup:
    """Settings that differ in η_Z alone, with their indices on the map."""

    indices: tuple[GridIndex, ...]
    points: tuple[MapPoint, ...]

    @property
    def steps(self) -> int:
        """10 t₀; the last step is inside the window of the claims."""
        point = self.points[0]
        steps = T_END * float(t_snap(eta_y=point.eta_y, n_classes=point.n_classes, vocab_size=point.vocab_size))
        if steps > _LONGEST:
            expected = f"a larger rate: 10 t₀ are {steps:.2g} updates, of at most {_LONGEST:.0e}"
            raise InputError("eta_y", point.eta_y, expected)
        return max(int(steps), 1)


def plan_groups(layout: MapLayout, settings: SgdRuns) -> list[MapGroup]:
    """The simulations of a map, in their order."""
    by_problem: dict[MapPoint, list[GridIndex]] = {}
    for index, point in layout.points.items():
        by_problem.setdefault(replace(point, ratio=1.0), []).append(index)
    size = max(1, _GROUP // settings.seeds)
    return [
        MapGroup(tuple(part), tuple(layout.points[index] for index in part))
        for indices in by_problem.values() for part in (indices[i : i + size] for i in range(0, len(indices), size))
    ]  # fmt: skip


def map_cache(folder: Path, layout: MapLayout, settings: SgdRuns, *, overwrite: bool = False) -> WorkCache:
    """The cache of the finished groups of this map, from which it continues."""
    axes = {name: [axis.name, list(axis.values)] for name, axis in (("x", layout.x), ("y", layout.y))}
    work = {
        "theorem": layout.theorem,
        "base": repr(layout.base),
        "training": str(settings),
        "times": _TIMES,
        "assumptions": 2,
    }
    cache = WorkCache(folder, json.dumps(work | axes), decisive_versions(), damaged="missing",
                      field="the folder with unfinished work")  # fmt: skip
    if overwrite:
        cache.discard()
    cache.refuse_other_work("--overwrite starts again")
    return cache


def load_finished(cache: WorkCache | None, n: int) -> dict[int, list[PointVerdict]]:
    """The cached ones of n groups, by number."""
    names = {f"group-{i}": i for i in range(n)}
    pieces = [] if cache is None else cache.pieces(names)
    return {names[name]: piece.values["judged"] for name, piece in pieces if piece is not None}


def sgd_map(
    layout: MapLayout,
    settings: SgdRuns,
    *,
    device: str = "auto",
    cache: WorkCache | None = None,
    progress: Progress | None = None,
    processes: int | None = None,
) -> xr.Dataset:
    """Variables ``margin``, ``low`` and ``high`` (claim, y, x), ``assumptions_met``, ``paper_assumptions_met`` and
    ``possible`` (y, x).

    This process trains, one group after the other; other processes judge meanwhile.
    """
    groups = plan_groups(layout, settings)
    verdicts = load_finished(cache, len(groups))
    n_done = sum(len(groups[i].indices) for i in verdicts) * settings.seeds
    n_runs = len(layout.points) * settings.seeds
    missing = [i for i in range(len(groups)) if i not in verdicts]
    if progress is not None and n_done:
        progress(n_done, n_runs)
    if missing:
        n = processes or os.cpu_count() or 1
        with single_threaded_children(), killable_pool(n) as pool:
            for i, judged in _train_and_judge(pool, 2 * n, layout.theorem, groups, missing, settings, device):
                verdicts[i] = judged
                if cache is not None:
                    cache.put(f"group-{i}", {"judged": judged})
                n_done += len(groups[i].indices) * settings.seeds
                if progress is not None:
                    progress(n_done, n_runs)
    by_index = {index: verdict for i, judged in verdicts.items()
                for index, verdict in zip(groups[i].indices, judged, strict=True)}  # fmt: skip
    data = layout.dataset({index: margins for index, (margins, _) in by_index.items()},
                          {index: int(met) for index, (_, met) in by_index.items()})  # fmt: skip
    return data.assign_attrs(sgd=str(settings), **{name: str(value) for name, value in asdict(settings).items()})


def add_flow_margins(data: xr.Dataset, flow: xr.Dataset) -> xr.Dataset:
    """With ``flow_margin``: the flow's margins at the same settings, interpolated from a coarser map."""

    def scaled(values: xr.DataArray, axis: str) -> np.ndarray:
        return np.log(values.values) if data.attrs[f"{axis}_log"] else values.values

    axes = [scaled(flow[axis], axis) for axis in "yx"]
    points = np.stack(np.meshgrid(*(scaled(data[axis], axis) for axis in "yx"), indexing="ij"), axis=-1)
    margins = np.full(data.margin.shape, np.nan)
    for k, claim in enumerate(data.claim.values):
        if claim in flow.claim.values:
            margin = np.maximum(flow.margin.sel(claim=claim).values, FLOOR)
            margins[k] = RegularGridInterpolator(axes, margin, bounds_error=False)(points)
    return data.assign(flow_margin=(("claim", "y", "x"), margins))


def estimate_work(
    layout: MapLayout, settings: SgdRuns, cache: WorkCache | None = None, device: str = "auto"
) -> tuple[int, float]:
    """The number of missing runs, and an estimate of their seconds from short simulations and one verdict."""
    groups = plan_groups(layout, settings)
    finished = load_finished(cache, len(groups))
    missing = [group for i, group in enumerate(groups) if i not in finished]
    n_settings = sum(len(group.points) for group in missing)
    if not missing:
        return 0, 0.0
    longest = max(missing, key=lambda group: group.steps * len(group.points))
    seconds, sizes = [], (1, min(4, len(longest.points)))
    for n in (sizes[0], *sizes):  # the first call loads libraries
        start = time.perf_counter()
        runs = train_group(MapGroup(longest.indices[:n], longest.points[:n]), settings, device)
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    judge_point(layout.theorem, longest.points[0], settings, *runs[0])
    verdict = (time.perf_counter() - start) / (os.cpu_count() or 1)
    per_setting = max(seconds[2] - seconds[1], 0.0) / max(sizes[1] - 1, 1)
    return n_settings * settings.seeds, len(missing) * seconds[1] + n_settings * (per_setting + verdict)


def _train_and_judge(
    pool: Any, parts: int, theorem: str, groups: list[MapGroup], missing: list[int], settings: SgdRuns, device: str
) -> Iterator[tuple[int, list[PointVerdict]]]:
    """Judged groups in order, each judged in so many parts; a few are trained ahead."""
    waiting: dict[int, list[Future[list[PointVerdict]]]] = {}
    for i in missing:
        if len(waiting) >= _AHEAD:
            for k in list(islice(waiting, 1)):
                yield k, _results(waiting.pop(k))
        points, runs = groups[i].points, train_group(groups[i], settings, device)
        size = -(-len(points) // parts)
        with block_signals_in_children():
            waiting[i] = [pool.submit(_judge_points, theorem, points[k : k + size], settings, runs[k : k + size])
                          for k in range(0, len(points), size)]  # fmt: skip
    for k in list(waiting):
        yield k, _results(waiting.pop(k))


def _results(jobs: list[Future[list[PointVerdict]]]) -> list[PointVerdict]:
    return [verdict for job in jobs for verdict in job.result()]


PointRuns = tuple[np.ndarray, np.ndarray, np.ndarray]  # steps (n,), z (R, n, L) and y (R, n, L, J) of the finite runs


def train_group(group: MapGroup, settings: SgdRuns, device: str) -> list[PointRuns]:
    """The runs of each setting of a group."""
    classes, eta_y = group.points[0].classes(), group.points[0].eta_y
    rows = make_layout(classes, ModelConfig(), decays=False).rows
    steps = np.unique(np.append(0, np.rint(np.geomspace(1, group.steps, _TIMES)))).astype(int)

    def context_rows(state: StateView) -> dict[str, Any]:
        y, z = state.tables["y"], state.tables["z"][:, 0, 0, :]
        z = z[:, torch.as_tensor(rows, device=z.device)]
        return {"rows_y": (("row", "column"), y.cpu().numpy()), "row_z": (("row",), z.cpu().numpy())}

    data = simulate(
        classes, grid(eta_y=eta_y, eta_z=[eta_y / point.ratio for point in group.points], seed=range(settings.seeds)),
        steps=group.steps, record=steps.tolist(), batch_size=settings.batch_size, context=settings.context,
        variables=(), record_fn=context_rows, device=device,
    )  # fmt: skip
    shape = len(group.points), settings.seeds
    z, y = (data[name].values.reshape(*shape, *data[name].shape[1:]) for name in ("row_z", "rows_y"))
    finite = (data["failed_step"].values < 0).reshape(shape)
    return [(steps, z[i][finite[i]], y[i][finite[i]]) for i in range(len(group.points))]


def _judge_points(
    theorem: str, points: Sequence[MapPoint], settings: SgdRuns, runs: list[PointRuns]
) -> list[PointVerdict]:
    return [judge_point(theorem, point, settings, *run) for point, run in zip(points, runs, strict=True)]


def judge_point(
    theorem: str, point: MapPoint, settings: SgdRuns, t: np.ndarray, z: np.ndarray, y: np.ndarray
) -> PointVerdict:
    """The theorem's claims at one setting, from the runs of its seeds."""
    classes = point.classes()
    seeds = [_evidence(classes, point, settings, t, *run) for run in zip(z, y, strict=True)]
    if len(seeds) < settings.seeds and len(seeds) < 2:  # the others became non-finite
        return {}, 0
    if settings.is_sampled:
        seeds[0] = replace(seeds[0], z_seeds=np.stack([evidence.z for evidence in seeds]))
    by_seed: dict[str, list[float]] = {}
    margins: Margins = {}
    for evidence in seeds:
        for claim in BUILT_IN[theorem].judge(evidence):
            if claim.margin is None or claim.tolerance is None or claim.name in margins:
                continue
            if evidence is seeds[0] and claim.interval is not None:  # of all seeds together
                low, high = (1 - end / claim.tolerance for end in reversed(claim.interval))
                margins[claim.name] = {"margin": max(claim.margin, FLOOR), "low": max(low, FLOOR), "high": high}
            else:
                by_seed.setdefault(claim.name, []).append(max(claim.margin, FLOOR))
    for name, values in by_seed.items():
        single = (values[0], -math.inf, math.inf) if settings.is_sampled else (values[0],) * 3
        ends = mean_interval(values) if len(values) > 1 else single
        margins[name] = dict(zip(("margin", "low", "high"), ends, strict=True))
    return margins, met_level(seeds[0].assumptions.values())


def _evidence(
    classes: SequenceClasses, point: MapPoint, settings: SgdRuns, t: np.ndarray, z: np.ndarray, y: np.ndarray
) -> Evidence:
    """One run as evidence; z (n, L) and y (n, L, J) of the context's tokens."""
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

    def to_tokens(values: np.ndarray) -> np.ndarray:
        full = np.zeros((*values.shape[:-1], layout.rows[-1] + 1))  # later tokens are in no context
        full[..., layout.rows] = values
        return full

    return Evidence(classes, point.eta_y, point.eta_y / point.ratio, "sgd", settings.context, t.astype(np.float64),
                    to_tokens(z)[:, None], to_tokens(attention), to_tokens(g), gap,
                    sampled=settings.is_sampled, batch_size=settings.batch_size)  # fmt: skip

"""``scansnap verify --map``: regime maps, by the exact flow and by SGD runs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scansnap.cli.console import duration, err, out, progress_bar
from scansnap.cli.places import PICTURES, place
from scansnap.interrupt import working
from scansnap.storage import put

if TYPE_CHECKING:
    import xarray as xr

_FLOWS = 20  # points along each axis of the flow's map beside one by SGD, at most: between them it is smooth


def regime_map(theorem: str, x: str, y: str, points: int, target: Path, overwrite: bool) -> int:
    """Compute and draw a map; the data goes beside the picture as CSV."""
    place("--out", target, *PICTURES, overwrite=overwrite)
    place("the data beside --out", target.with_suffix(".csv"), overwrite=overwrite)
    from scansnap.claims.regime_map import MapAxis
    from scansnap.claims.regime_map import regime_map as compute
    from scansnap.plots import regime_map as figure
    from scansnap.plots.style import save_figure

    axes = MapAxis.parse(x, points), MapAxis.parse(y, points)
    with progress_bar("flows") as progress:
        data = compute(theorem, *axes, progress=progress)
    save_figure(figure.draw(data), target)
    _put_data(data, target)
    # where a claim has nothing to measure it neither holds nor fails
    shares = (data.margin >= 0).where(data.margin.notnull()).mean(("y", "x"))
    for name in data.claim.values:
        out.print(f"{name}: holds on {100 * float(shares.sel(claim=name)):.0f}% of the map")
    _tell_where(data, target)
    return 0


def sgd_map(
    theorem: str, x: str, y: str, points: int, target: Path, overwrite: bool, seeds: int, batch_size: int, context: int,
    device: str,
) -> int:  # fmt: skip
    """The map by SGD, and the flow's beside it. What is finished is kept until the picture is drawn."""
    place("--out", target, *PICTURES, overwrite=overwrite)
    place("the data beside --out", target.with_suffix(".csv"), overwrite=overwrite)
    from scansnap.claims import regime_map_sgd
    from scansnap.claims.regime_map import MapAxis, MapLayout, MapPoint
    from scansnap.claims.regime_map import regime_map as compute
    from scansnap.dynamics.device import pick_device
    from scansnap.plots import regime_map as figure
    from scansnap.plots.style import save_figure

    layout = MapLayout.of(theorem, MapAxis.parse(x, points), MapAxis.parse(y, points), MapPoint())
    training, on = regime_map_sgd.SgdRuns(seeds, batch_size, context), pick_device(device).type
    across, up = (MapAxis.parse(text, min(points, _FLOWS)) for text in (x, y))
    cache = regime_map_sgd.map_cache(target.with_suffix(".unfinished"), layout, training, overwrite=overwrite)
    try:
        with working():
            missing, seconds = regime_map_sgd.estimate_work(layout, training, cache, device)
            n = len(layout.points) * seeds
            there = f" ({n - missing} are there already)" if missing < n else ""
            flows = f"then {len(across.values) * len(up.values)} flows beside them"
            err.print(f"{n} runs on {on}, {training}{there}: about {duration(seconds)}, {flows}", markup=False)
            with progress_bar("runs") as progress:
                data = regime_map_sgd.sgd_map(layout, training, device=device, cache=cache, progress=progress)
            with progress_bar("flows beside them") as progress:
                flow = compute(theorem, across, up, progress=progress)
    except KeyboardInterrupt:
        rest = f"Finished settings are in {cache.path}: the same command does the rest."
        err.print(f"Stopped. {rest if cache.place.exists() else 'Nothing was finished.'}", markup=False)
        return 130
    data = regime_map_sgd.add_flow_margins(data, flow)
    save_figure(figure.draw_both(data, flow), target)
    _put_data(data, target)
    cache.discard()
    for name in data.claim.values:
        out.print(_shares(data, str(name)), markup=False)
    _tell_where(data, target)
    return 0


def _shares(data: xr.Dataset, name: str) -> str:
    one = data.sel(claim=name)
    known = one.margin.notnull()
    holds, fails = one.low >= 0, one.high < 0
    shares = [100 * float(part.where(known).mean()) for part in (holds, fails, ~(holds | fails))]
    both = known & (holds | fails) & one.flow_margin.notnull()
    same = 100 * float((holds == (one.flow_margin >= 0)).where(both).mean())
    words = (
        f"{name}: by SGD holds on {shares[0]:.0f}% of the map, fails on {shares[1]:.0f}%, undecided on {shares[2]:.0f}%"
    )
    return f"{words}; where it is decided the flow says the same on {same:.0f}%"


def _put_data(data: xr.Dataset, target: Path) -> None:
    put(target.with_suffix(".csv"), data.to_dataframe().reset_index().to_csv(index=False))


def _tell_where(data: xr.Dataset, target: Path) -> None:
    if data.attrs["left_out"]:
        out.print(data.attrs["left_out"])
    met = float(data.assumptions_met.where(data.possible).mean())
    out.print(f"all assumptions of the paper are met on {100 * met:.0f}% of it\nmap {target}", markup=False)

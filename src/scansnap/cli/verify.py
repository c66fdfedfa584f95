"""``scansnap verify``: verdicts on one setting, the table of all numbered statements, and regime maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from scansnap.checks import InputError, check_float
from scansnap.cli.console import duration, err, finite, json_text, new_table, out, progress_bar
from scansnap.cli.options import (
    PICTURES,
    Device,
    Overwrite,
    Preset,
    Set,
    check_output,
    default_output,
    find_classes,
    preset_settings,
    refuse_existing,
)
from scansnap.interrupt import raise_during_imports
from scansnap.storage import put

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from scansnap.claims.claim import Claim
    from scansnap.claims.report import Report
    from scansnap.claims.statements import PaperRow

STYLE = {"holds": "green", "fails": "bold red", "undecided": "yellow", "not applicable": "dim"}
_FLOWS = 20  # points along each axis of the flow's map beside one by SGD, at most: between them it is smooth


def verify(
    file: Annotated[Path | None, typer.Argument(help="A TOML file with classes, or a saved trajectory.")] = None,
    preset: Preset = None,
    preset_set: Set = None,
    eta_y: Annotated[float, typer.Option(help="Learning rate η_Y of the decoder.")] = 0.9,
    eta_z: Annotated[float, typer.Option(help="Learning rate η_Z of attention.")] = 0.02,
    finite_t: Annotated[
        int | None,
        typer.Option(
            "--finite-T", help="Check an SGD run with sequences of this length T. [default of a map by SGD: 128]"
        ),
    ] = None,
    t_end: Annotated[
        float | None, typer.Option(help="End of training in time units of the flow. [default: 100 t₀, SGD 10 t₀]")
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Check all 31 numbered statements of the paper on built-in settings instead."),
    ] = False,
    run: Annotated[int, typer.Option(help="Number of the run in a saved trajectory.")] = 0,
    three_way: Annotated[
        bool, typer.Option("--three-way", help="Print when closed form, flow and SGD begin to differ.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report to this file; - prints it.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the claims' curves into this PNG, PDF or SVG.")] = None,
    map_of: Annotated[
        str | None, typer.Option("--map", help="Draw a map of where this theorem holds instead, such as theorem-1.")
    ] = None,
    sgd: Annotated[
        bool, typer.Option("--sgd", help="Add a map by SGD runs, with an interval over seeds, beside the flow's.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="SGD runs for each setting of the map.")] = 10,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Check SGD with this many sequences per update; 1 is Theorem 1's case. [default of SGD: 128]"
        ),
    ] = None,
    device: Device = "auto",
    x: Annotated[str, typer.Option(help="Horizontal axis of the map: field=low:high, or :log.")] = "ratio=1:1000:log",
    y: Annotated[str, typer.Option(help="Vertical axis of the map: field=low:high, or :log.")] = "overlap=0.01:0.9",
    points: Annotated[int, typer.Option(help="Points along each axis of the map.")] = 30,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the map here, and its data beside it as CSV; with --paper the table as Markdown. "
            "[default: out/map.png or out/statements.md; if that exists out/map-2.png, and so on]",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> int:
    """Check the paper's statements about training on your setting.

    Each statement holds, fails or is not applicable, with numbers. By default the claims are checked on the exact T → ∞
    flow. The exit code is 0 when nothing fails, 1 when something does. --paper checks all 31 numbered statements, the
    appendix included; its exit code is 0 whatever the verdicts.

    A map by SGD first prints how long it takes. After a stop, the same command computes the rest.
    """
    if paper:
        if any((file, preset, preset_set, map_of, three_way, figure)):
            raise InputError("--paper", True, "no classes, --map, --three-way or --figure", "its settings are built in")
        target = target or default_output(Path("out/statements.md"), overwrite=overwrite)
        return paper_table(target, json_file, overwrite)
    if sgd and map_of is None:
        raise InputError("--sgd", True, "--map as well", "to check one setting by SGD pass --finite-T")
    if map_of is not None:
        target = target or default_output(Path("out/map.png"), ".csv", overwrite=overwrite)
        check_output("--out", target, *PICTURES)
        check_output("the data beside --out", target.with_suffix(".csv"))
        if sgd:
            length = 128 if finite_t is None else finite_t
            batch_size = 128 if batch_size is None else batch_size
            return sgd_map(map_of, x, y, points, target, overwrite, seeds, batch_size, length, device)
        return regime_map(map_of, x, y, points, target, overwrite)
    preset_options, to_screen = preset_settings(preset_set), str(json_file) == "-"
    if figure is not None:
        check_output("--figure", figure, *PICTURES)
    if json_file is not None and not to_screen:
        check_output("--json", json_file, stream=True)
        if figure is not None and json_file.absolute() == figure.absolute():
            raise InputError("--json", str(json_file), "another file than --figure")
    is_saved = file is not None and file.suffix in (".zarr", ".nc")
    if is_saved and three_way:
        raise InputError("--three-way", True, "no value for a saved trajectory", "pass a preset or classes")
    from scansnap.claims.verify import verify as check_claims

    data = None
    if file is not None and is_saved:
        from scansnap.results.trajectory import load

        data = load(file)
        last = data.sizes.get("run", 1) - 1  # a flow is one run
        if not 0 <= run <= last:
            raise InputError("--run", run, f"an integer between 0 and {last}")
        classes = None
    else:
        from scansnap.dynamics.settings import settings
        from scansnap.runs import grid

        classes = find_classes(file, preset, preset_options)
        grid(eta_y=eta_y, eta_z=eta_z)  # like the next lines: report what was typed before clashes of files
        sgd_options = {"context": finite_t, "batch_size": batch_size}
        settings({name: value for name, value in sgd_options.items() if value is not None})
        t_end = None if t_end is None else check_float("t_end", t_end, above=0)
    if figure is not None:
        refuse_existing("--figure", figure, overwrite)
    if json_file is not None and not to_screen:
        refuse_existing("--json", json_file, overwrite)
    with progress_bar("claims") as progress:
        if data is not None:
            report = check_claims(data=data, run=run, progress=progress)
        else:
            report = check_claims(
                classes, eta_y=eta_y, eta_z=eta_z, context=math.inf if finite_t is None else finite_t,
                batch_size=batch_size, t_end=t_end, progress=progress,
            )  # fmt: skip
    print_report(report)
    if three_way:
        _print_agreement(classes, eta_y, eta_z, finite_t or 128)
    if figure is not None:
        from scansnap.plots import claim_curves
        from scansnap.plots.style import save_figure

        save_figure(claim_curves.draw(claim_curves.compute(report)), figure)
        out.print(f"figure {figure}", markup=False)
    if json_file is not None:
        text = json_text(report_as_dict(report))
        print(text) if to_screen else put(json_file, text + "\n")
    return 1 if report.failures else 0


def print_report(report: Report) -> None:
    out.print(report.setting)
    numbers = ("measured", "predicted", "margin")
    table = new_table("claim", "reference", "kind", "verdict", *numbers, right=numbers,
                      no_wrap=("claim", "reference", *numbers))  # fmt: skip
    for claim in report:
        cells = ["" if x is None else f"{x:.4g}" for x in (claim.measured, claim.predicted, claim.margin)]
        kind = claim.kind if claim.kind == "measured" else f"[dim]{claim.relation or claim.kind}[/]"
        observed = f" (measured: {claim.observed})" if claim.status != claim.observed else ""
        table.add_row(claim.name, claim.reference, kind, f"[{STYLE[claim.status]}]{claim.status}{observed}[/]", *cells)
    out.print(table)
    for claim in report.failures:
        out.print(f"[{STYLE['fails']}]{claim.name}[/] fails: {escape(claim.reason)} ({escape(claim.quantity)})")
        if claim.alternative is not None:
            out.print(f"  [{STYLE[claim.alternative.claim.status]}]{escape(str(claim.alternative))}[/]")
    for ours, names in beyond(report).items():
        out.print(f"[dim]fail where an assumption is not met: {', '.join(names)}; {escape(ours)}[/]")
    for claim in report:
        if claim.status == "undecided":
            out.print(f"[{STYLE['undecided']}]{claim.name}[/] undecided: {escape(claim.reason)}")
    for claim in report:
        if claim.margin is None:
            out.print(f"[dim]{claim.name}: {escape(claim.reason)}[/]")
    unmet = {a.name: a for claim in report for a in claim.assumptions if not a.met}
    for a in unmet.values():
        out.print(f"not met: {a.name}, {a.value:.4g} against {a.threshold:.4g} ({a.statement})", markup=False)
    out.print(report.summary, markup=False)
    for kind, counts in totals(report).items():
        listed = ", ".join(f"{n} {status}" for status, n in counts.items() if n or kind == "measured")
        out.print(f"{kind}: {listed}")


def beyond(report: Report) -> dict[str, list[str]]:
    """Claims that fail only beyond their assumptions, by what holds instead."""
    names: dict[str, list[str]] = {}
    for claim in report:
        if claim.alternative is not None and claim.status != "fails":
            names.setdefault(claim.alternative.verdict, []).append(claim.name)
    return names


def totals(report: Report) -> dict[str, dict[str, int]]:
    """How many claims have each status, by kind; measured claims come first, the other kinds are no evidence."""
    kinds = sorted({claim.kind for claim in report}, key=lambda kind: (kind != "measured", kind))
    return {kind: {str(status): n for status, n in report.counts(kind).items()} for kind in kinds}


def _print_agreement(classes: Any, eta_y: float, eta_z: float, context: int) -> None:
    from scansnap.claims.three_way import divergence_times, three_way

    with progress_bar("closed form, flow and SGD") as progress:
        data = three_way(classes, eta_y=eta_y, eta_z=eta_z, context=context, progress=progress)
    differences = divergence_times(data)
    out.print("\nWhen closed form, flow and SGD differ by 10% on the same setting")
    for quantity in differences["quantity"].values:
        for pair in differences["pair"].values:
            difference = differences.sel(quantity=quantity, pair=pair)
            if not bool(difference.compared):
                continue
            t = float(difference.divergence_t)
            when = "never" if math.isnan(t) else f"at t = {t:.4g}"
            largest, final = (100 * float(difference[name]) for name in ("largest", "final"))
            sizes = f"largest difference {largest:.1f}%, at the end {final:.1f}%"
            out.print(f"  {quantity:<7} {pair:<20} {when:<14} {sizes}", markup=False)


def report_as_dict(report: Report) -> dict[str, Any]:
    return {"setting": report.setting, "failures": len(report.failures), "summary": report.summary,
            "totals": totals(report), "claims": [_claim_as_dict(claim) for claim in report]}  # fmt: skip


def _claim_as_dict(claim: Claim) -> dict[str, Any]:
    """A claim without its curve, and what holds instead in short."""
    fields = asdict(replace(claim, curve=None, alternative=None)) | {"observed": claim.observed}
    del fields["curve"], fields["alternatives"]
    if (alternative := claim.alternative) is not None:
        ours = alternative.claim
        fields["alternative"] = {"name": ours.name, "reference": ours.reference, "statement": ours.statement,
                             "status": ours.status, "observed": ours.observed, "margin": ours.margin,
                             "until": alternative.until, "error": alternative.error,
                             "paper_error": alternative.paper_error}  # fmt: skip
    return {name: finite(value) for name, value in fields.items()}


# --- the paper's numbered statements -------------------------------------------------------------------------------


def paper_table(target: Path, json_file: Path | None, overwrite: bool) -> int:
    """Judge every numbered statement; print and write the table. A cache holds finished settings until then."""
    from scansnap.claims import statements

    check_output("--out", target, ".md")
    refuse_existing("--out", target, overwrite)
    to_file = json_file is not None and str(json_file) != "-"
    if json_file is not None and to_file:
        check_output("--json", json_file)
        refuse_existing("--json", json_file, overwrite)
    cache = statements.paper_cache(target.with_suffix(".unfinished"), overwrite=overwrite)
    try:
        with progress_bar("claims") as progress:
            rows = statements.check_paper(progress, cache)
    except KeyboardInterrupt:
        err.print(f"Stopped. Finished settings are in {cache.path}: the same command computes the rest.", markup=False)
        return 130
    text = json_text({"summary": statements.count(rows), "statements": [row.to_dict() for row in rows]})
    if json_file is not None and not to_file:
        print(text)
    else:
        print_paper(rows)
    put(target, statements.as_markdown(rows))
    if json_file is not None and to_file:
        put(json_file, text + "\n")
    cache.discard()
    return 0


def print_paper(rows: Sequence[PaperRow]) -> None:
    from scansnap.claims.statements import count

    columns = ("statement", "kind", "verdict", "what fails", "what holds instead")
    table = new_table(*columns, no_wrap=("statement", "verdict"))
    for row in rows:
        fails = ", ".join(dict.fromkeys(part.claim for part in row.fails))
        verdict = f"[{STYLE.get(row.verdict, 'yellow')}]{row.verdict}[/]"
        table.add_row(row.statement.name, row.statement.kind, verdict, fails, escape(row.statement.instead))
    out.print(table)
    out.print(count(rows), markup=False)


# --- regime maps --------------------------------------------------------------------------------------------------


def regime_map(theorem: str, x: str, y: str, points: int, target: Path, overwrite: bool) -> int:
    """Compute and draw a map by the exact flow; write its data beside it as CSV."""
    from scansnap.claims.regime_map import MapAxis, MapLayout, MapPoint
    from scansnap.claims.regime_map import regime_map as compute
    from scansnap.plots import regime_map as figure

    axes = MapAxis.parse(x, points), MapAxis.parse(y, points)
    MapLayout.of(theorem, *axes, MapPoint())  # refuse an unknown theorem before clashes of files
    _refuse_existing_map(target, overwrite)
    with progress_bar("flows") as progress:
        data = compute(theorem, *axes, progress=progress)
    # where a claim has nothing to measure it neither holds nor fails
    shares = (data.margin >= 0).where(data.margin.notnull()).mean(("y", "x"))
    lines = [f"{name}: holds on {100 * float(shares.sel(claim=name)):.0f}% of the map" for name in data.claim.values]
    return _write_map(data, figure.draw(data), target, lines)


def sgd_map(
    theorem: str, x: str, y: str, points: int, target: Path, overwrite: bool, seeds: int, batch_size: int, context: int,
    device: str,
) -> int:  # fmt: skip
    """The map by SGD beside that of the flow. A cache holds finished settings until the picture is drawn."""
    from scansnap.claims import regime_map_sgd
    from scansnap.claims.regime_map import MapAxis, MapLayout, MapPoint
    from scansnap.claims.regime_map import regime_map as compute
    from scansnap.dynamics.device import pick_device
    from scansnap.plots import regime_map as figure

    layout = MapLayout.of(theorem, MapAxis.parse(x, points), MapAxis.parse(y, points), MapPoint())
    training, device_type = regime_map_sgd.SgdRuns(seeds, batch_size, context), pick_device(device).type
    across, up = (MapAxis.parse(text, min(points, _FLOWS)) for text in (x, y))
    _refuse_existing_map(target, overwrite)
    cache = regime_map_sgd.map_cache(target.with_suffix(".unfinished"), layout, training, overwrite=overwrite)
    try:
        with raise_during_imports():
            missing, seconds = regime_map_sgd.estimate_work(layout, training, cache, device)
            n = len(layout.points) * seeds
            finished = f" ({n - missing} are finished already)" if missing < n else ""
            flows = f"then {len(across.values) * len(up.values)} flows beside them"
            err.print(f"{n} runs on {device_type}, {training}{finished}: about {duration(seconds)}, {flows}",
                      markup=False)  # fmt: skip
            with progress_bar("runs") as progress:
                data = regime_map_sgd.sgd_map(layout, training, device=device, cache=cache, progress=progress)
            with progress_bar("flows beside them") as progress:
                flow = compute(theorem, across, up, progress=progress)
    except KeyboardInterrupt:
        rest = f"Finished settings are in {cache.path}: the same command computes the rest."
        err.print(f"Stopped. {rest if cache.place.exists() else 'Nothing was finished.'}", markup=False)
        return 130
    data = regime_map_sgd.add_flow_margins(data, flow)
    code = _write_map(
        data, figure.draw_both(data, flow), target, [_shares(data, str(name)) for name in data.claim.values]
    )
    cache.discard()
    return code


def _refuse_existing_map(target: Path, overwrite: bool) -> None:
    refuse_existing("--out", target, overwrite)
    refuse_existing("the data beside --out", target.with_suffix(".csv"), overwrite)


def _shares(data: xr.Dataset, name: str) -> str:
    claim = data.sel(claim=name)
    known = claim.margin.notnull()
    holds, fails = claim.low >= 0, claim.high < 0
    shares = [100 * float(part.where(known).mean()) for part in (holds, fails, ~(holds | fails))]
    decided = known & (holds | fails) & claim.flow_margin.notnull()
    same = 100 * float((holds == (claim.flow_margin >= 0)).where(decided).mean())
    by_sgd = "by SGD holds on {:.0f}% of the map, fails on {:.0f}%, undecided on {:.0f}%".format(*shares)
    return f"{name}: {by_sgd}; where it is decided the flow agrees on {same:.0f}%"


def _write_map(data: xr.Dataset, figure: Figure, target: Path, lines: list[str]) -> int:
    """Write the picture and its data; print the lines about the claims."""
    from scansnap.plots.style import save_figure

    save_figure(figure, target)
    put(target.with_suffix(".csv"), data.to_dataframe().reset_index().to_csv(index=False))
    for line in lines:
        out.print(line, markup=False)
    if data.attrs["left_out"]:
        out.print(data.attrs["left_out"])
    met, paper = (100 * float(data[name].where(data.possible).mean())
                  for name in ("assumptions_met", "paper_assumptions_met"))  # fmt: skip
    out.print(
        f"the assumptions are met on {met:.0f}% of it, in the paper's stronger form on {paper:.0f}%", markup=False
    )
    out.print(f"map {target}", markup=False)
    return 0

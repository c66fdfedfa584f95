"""``scansnap verify``: the verdict on every lemma and theorem, and regime maps."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from scansnap.checks import InputError
from scansnap.cli.console import out, progress_bar
from scansnap.cli.maps import regime_map, sgd_map
from scansnap.cli.options import Device, Overwrite, Preset, Set, preset_settings
from scansnap.cli.places import PICTURES, place
from scansnap.cli.run_file import find_classes
from scansnap.storage import put

if TYPE_CHECKING:
    from scansnap.claims.claim import Claim
    from scansnap.claims.report import Report

STYLE = {"holds": "green", "fails": "bold red", "undecided": "yellow", "not applicable": "dim"}


def verify(
    file: Annotated[Path | None, typer.Argument(help="A TOML file with classes, or a saved trajectory.")] = None,
    classes_file: Annotated[
        Path | None, typer.Option("--classes", help="A TOML file with classes (the same as FILE).")
    ] = None,
    preset: Preset = None,
    preset_set: Set = None,
    eta_y: Annotated[float, typer.Option(help="Decoder rate η_Y.")] = 0.9,
    eta_z: Annotated[float, typer.Option(help="Attention rate η_Z.")] = 0.02,
    finite_t: Annotated[
        int | None, typer.Option("--finite-T", help="Judge an SGD run at this length T. [default of a map by SGD: 128]")
    ] = None,
    t_end: Annotated[float | None, typer.Option(help="How far to go. [default: 100 t₀, SGD 10 t₀]")] = None,
    run: Annotated[int, typer.Option(help="Which run of a saved trajectory.")] = 0,
    three_way: Annotated[bool, typer.Option("--three-way", help="When closed form, flow and SGD part.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report here (- is the screen).")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the claims' curves into this PNG, PDF or SVG.")] = None,
    map_of: Annotated[str | None, typer.Option("--map", help="Draw a regime map of this theorem instead.")] = None,
    sgd: Annotated[
        bool, typer.Option("--sgd", help="The map by SGD runs as well, with an interval over seeds, beside the flow's.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="SGD runs behind each setting of the map.")] = 10,
    batch_size: Annotated[int, typer.Option(help="Sequences per update of the map's SGD runs.")] = 128,
    device: Device = "auto",
    x: Annotated[str, typer.Option(help="Horizontal axis of the map.")] = "ratio=1:1000:log",
    y: Annotated[str, typer.Option(help="Vertical axis of the map.")] = "overlap=0.01:0.9",
    points: Annotated[int, typer.Option(help="Points along each axis of the map.")] = 30,
    target: Annotated[Path, typer.Option("--out", help="Where the map goes; its data goes beside it as CSV.")] = Path(
        "out/map.png"
    ),
    overwrite: Overwrite = False,
) -> int:
    """Hold every lemma and theorem against a setting: holds, fails, or not applicable, with numbers.

    Exit code 0 when nothing fails, 1 when something does. By default on the exact T → ∞ flow.

    A map by SGD tells how long it will take, and can be stopped at any time: the same command does the rest.
    """
    if map_of is not None and sgd:
        length = 128 if finite_t is None else finite_t
        return sgd_map(map_of, x, y, points, target, overwrite, seeds, batch_size, length, device)
    if map_of is not None:
        return regime_map(map_of, x, y, points, target, overwrite)
    if sgd:
        raise InputError("--sgd", True, "given together with --map (one setting is judged by SGD with --finite-T)")
    if file is not None and classes_file is not None:
        raise InputError("--classes", str(classes_file), "left out when FILE is given")
    file, knobs = file or classes_file, preset_settings(preset_set)
    if figure is not None:
        place("--figure", figure, *PICTURES, overwrite=overwrite)
    if json_file is not None and str(json_file) != "-":
        place("--json", json_file, overwrite=overwrite, stream=True)
        if figure is not None and json_file.absolute() == figure.absolute():
            raise InputError("--json", str(json_file), "another file than --figure")
    saved = file is not None and file.suffix in (".zarr", ".nc")
    if saved and three_way:
        raise InputError("--three-way", True, "left out for a saved trajectory (give a preset or classes)")
    from scansnap.claims.verify import verify as judge_all

    with progress_bar("claims") as progress:
        if file is not None and saved:
            from scansnap.results.trajectory import load

            data = load(file)
            n_runs = data.sizes.get("run", 1)  # a flow is one
            if not 0 <= run < n_runs:
                raise InputError("--run", run, f"from 0 to {n_runs - 1}")
            classes = None
            report = judge_all(data=data, run=run, progress=progress)
        else:
            classes = find_classes(file, preset, knobs)
            context = math.inf if finite_t is None else finite_t
            report = judge_all(classes, eta_y=eta_y, eta_z=eta_z, context=context, t_end=t_end, progress=progress)
    _tell(report)
    if three_way:
        _tell_agreement(classes, eta_y, eta_z, finite_t or 128)
    if figure is not None:
        from scansnap.plots import claim_curves
        from scansnap.plots.style import save_figure

        save_figure(claim_curves.draw(claim_curves.compute(report)), figure)
        out.print(f"figure {figure}", markup=False)
    if json_file is not None:
        text = json.dumps(_as_json(report), indent=2)
        if str(json_file) == "-":
            print(text)
        else:
            put(json_file, text + "\n")
    return 1 if report.failures else 0


def _tell(report: Report) -> None:
    out.print(report.setting)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("claim", "reference", "kind", "verdict"):
        table.add_column(name, no_wrap=name in ("claim", "reference"))
    for name in ("measured", "predicted", "margin"):
        table.add_column(name, justify="right", no_wrap=True)
    for claim in report:
        numbers = [_number(x) for x in (claim.measured, claim.predicted, claim.margin)]
        kind = claim.kind if claim.kind == "measured" else f"[dim]{claim.relation or claim.kind}[/]"
        table.add_row(claim.name, claim.reference, kind, _verdict(claim), *numbers)
    out.print(table)
    for claim in report.failures:
        out.print(f"[{STYLE['fails']}]{claim.name}[/] fails: {escape(claim.reason)} ({escape(claim.quantity)})")
        if claim.alternative is not None:
            out.print(
                f"  [{STYLE[claim.alternative.claim.status]}]{escape(str(claim.alternative))}[/]", highlight=False
            )
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
        told = ", ".join(f"{n} {status}" for status, n in counts.items() if n or kind == "measured")
        out.print(f"{kind}: {told}")


def beyond(report: Report) -> dict[str, list[str]]:
    """What fails beyond its assumptions, by what holds instead."""
    found: dict[str, list[str]] = {}
    for claim in report:
        if claim.alternative is not None and claim.status != "fails":
            found.setdefault(claim.alternative.verdict, []).append(claim.name)
    return found


def totals(report: Report) -> dict[str, dict[str, int]]:
    """How many claims have each status, the measured ones first and the other kinds, which are no evidence, apart."""
    kinds = sorted({claim.kind for claim in report}, key=lambda kind: (kind != "measured", kind))
    return {kind: {str(status): n for status, n in report.counts(kind).items()} for kind in kinds}


def _verdict(claim: Claim) -> str:
    """With what was measured in brackets where an assumption is not met."""
    observed = f" (measured: {claim.observed})" if claim.status != claim.observed else ""
    return f"[{STYLE[claim.status]}]{claim.status}{observed}[/]"


def _tell_agreement(classes: Any, eta_y: float, eta_z: float, context: int) -> None:
    from scansnap.claims.three_way import divergence_times, three_way

    with progress_bar("three ways") as progress:
        data = three_way(classes, eta_y=eta_y, eta_z=eta_z, context=context, progress=progress)
    parted = divergence_times(data)
    out.print("\nClosed form, flow and SGD on the same setting: when they part by 10%")
    for quantity in parted["quantity"].values:
        for pair in parted["pair"].values:
            one = parted.sel(quantity=quantity, pair=pair)
            if not bool(one.compared):
                continue
            t = float(one.divergence_t)
            when = "never" if math.isnan(t) else f"at t = {t:.4g}"
            sizes = f"largest difference {100 * float(one.largest):.1f}%, at the end {100 * float(one.final):.1f}%"
            out.print(f"  {quantity:<7} {pair:<20} {when:<14} {sizes}", markup=False)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _as_json(report: Report) -> dict[str, Any]:
    claims = [_plain(claim) for claim in report]
    return {"setting": report.setting, "failures": len(report.failures), "summary": report.summary,
            "totals": totals(report), "claims": claims}  # fmt: skip


def _plain(claim: Claim) -> dict[str, Any]:
    """A claim without its curve, and what holds instead in short; JSON has no infinity."""
    flat = asdict(replace(claim, curve=None, alternative=None)) | {"observed": claim.observed}
    del flat["curve"], flat["alternatives"]
    if (alternative := claim.alternative) is not None:
        ours = alternative.claim
        flat["alternative"] = {"name": ours.name, "reference": ours.reference, "statement": ours.statement,
                           "status": ours.status, "observed": ours.observed, "margin": _finite(ours.margin),
                           "until": alternative.until, "error": _finite(alternative.error),
                           "paper_error": _finite(alternative.paper_error)}  # fmt: skip
    numbers = ("measured", "predicted", "margin", "tolerance")
    flat |= {k: _finite(flat[k]) for k in numbers}
    if flat["interval"] is not None:
        flat["interval"] = [bound if math.isfinite(bound) else None for bound in flat["interval"]]
    for assumption in flat["assumptions"]:
        for key in ("value", "threshold"):
            if not math.isfinite(assumption[key]):
                assumption[key] = None
    return flat

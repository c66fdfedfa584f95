"""The verdict on each head with the numbers behind it, sinks and positional heads, and all of it as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from scansnap.probe.findings.health import WORDS as HEALTH_WORDS
from scansnap.probe.findings.health import headline, health_findings
from scansnap.probe.findings.scan import scan_findings, why_scanning_is_unknown
from scansnap.probe.findings.snap import snap_findings

SINK = 0.3  # excess of attention on the first key (the threshold of Gu et al. 2024, there without the uniform share) …
SEQUENCES = 0.5  # … and the share of sequences above it
POSITIONAL = 0.5  # excess on the query's own and the previous position
HEADS = {"layer", "head"}
NOTE = ("a learning rate that decays to zero stops any attention; only a constant rate shows whether heads snap by "
        "themselves")  # fmt: skip


def position_findings(data: xr.Dataset) -> xr.Dataset:
    """Attention to fixed positions at the last measurement, as an excess (value − uniform)/(1 − uniform).

    The excess is 0 for uniform attention and 1 for all of it on the position, so that short windows have no sinks. The
    values describe the batch and have no interval. Heads with another fixed lag are not positional.
    """
    last = data.isel(step=-1)
    sink = _excess(last["sink"], last["sink_uniform"])
    near = _excess(_near(last), _near(last, "_uniform"))
    is_sink = ((sink >= SINK) & (last["sink_share"] > SEQUENCES)).where(np.isfinite(sink))
    variables = {
        "sink_excess": (sink, "attention to the first key beyond uniform attention"),
        "near": (_near(last), "attention to the own and the previous position"),
        "near_uniform": (_near(last, "_uniform"), "the same for uniform attention"),
        "positional_excess": (near, "attention to the own and the previous position beyond uniform attention"),
        "is_sink": (is_sink, "1: a sink, 0: not, NaN: unknown"),
        "is_positional": ((near >= POSITIONAL).where(np.isfinite(near)), "1: positional, 0: not, NaN: unknown"),
    }
    return xr.Dataset(
        {
            name: value.transpose("layer", "head").assign_attrs(long_name=text)
            for name, (value, text) in variables.items()
        }
    ).drop_vars("step", errors="ignore")


FINDINGS: tuple[Callable[[xr.Dataset], xr.Dataset], ...] = (
    health_findings, scan_findings, snap_findings, position_findings,
)  # fmt: skip
BEHAVIOUR_WORDS = {"is_sink": "sink", "scans": "scans", "snaps": "snaps", "is_positional": "positional"}
VERDICT_WORDS = {**HEALTH_WORDS, "is_idle": "idle", **BEHAVIOUR_WORDS}  # by variable, health first
OTHER = "other"  # none of these holds


def add_findings(data: xr.Dataset) -> xr.Dataset:
    """A probe's measurements with the findings: scan index, snapping times, frozenness, verdicts."""
    if not data.sizes.get("step", 0) or not data.sizes.get("layer", 0):
        return data.assign_attrs(headline=headline(data))
    new = xr.merge([finding(data) for finding in FINDINGS], join="exact", combine_attrs="drop_conflicts")
    new["snaps"] = new["snaps"].where(new["is_idle"] != 1, 0.0).assign_attrs(new["snaps"].attrs)
    exists = np.isfinite(
        data["n_queries"].isel(step=-1).transpose("layer", "head").values
    )  # layers may have fewer heads
    holds = np.stack([new[name].transpose("layer", "head").values for name in VERDICT_WORDS], -1)
    unknown = why_scanning_is_unknown(data)
    last = data.merge(new, compat="no_conflicts").isel(step=-1)
    by_head = {
        str(name): array.transpose("layer", "head").values for name, array in last.items() if set(array.dims) == HEADS
    }
    verdicts, numbers = np.full((2, *exists.shape), "", dtype=object)
    for layer, head in np.argwhere(exists):
        verdicts[layer, head] = join_verdict(holds[layer, head])
        values = {name: array[layer, head] for name, array in by_head.items()}
        numbers[layer, head] = describe_numbers(values.__getitem__, unknown)
    heads = ("layer", "head")
    data = data.merge(new, compat="no_conflicts")
    return data.assign(
        verdict=(heads, verdicts.astype(np.str_), {"long_name": "what holds of the head"}),
        verdict_numbers=(heads, numbers.astype(np.str_), {"long_name": "the numbers behind the verdict"}),
    ).assign_attrs(headline=headline(data), findings_note=NOTE)  # fmt: skip


def join_verdict(holds: np.ndarray) -> str:
    """From yes (1), no (0) and undecided (NaN) for each of VERDICT_WORDS.

    Health that is unknown (a number was not captured) leaves no head undecided.
    """
    words = [word for word, value in zip(VERDICT_WORDS.values(), holds, strict=True) if value == 1]
    behaviour = holds[len(VERDICT_WORDS) - len(BEHAVIOUR_WORDS) :]
    return " and ".join(words) or ("undecided" if np.isnan(behaviour).any() else OTHER)


def describe_numbers(value: Callable[[str], Any], unknown: str) -> str:
    """One line for a head; ``value`` returns its variables, ``unknown`` says why scanning is undecided."""
    sizes = [f"entropy {value('entropy_rel'):.2f} of uniform"]
    if math.isfinite(value("max_logit")):
        sizes.append(f"max logit {value('max_logit'):.3g}")
    if math.isfinite(value("output_share")):
        sizes.append(f"output {100 * value('output_share'):.2g} % of the residual stream")
    scan_index = f"scan index {value('scan_index'):+.3f} ({value('scan_low'):+.3f} to {value('scan_high'):+.3f}"
    return "; ".join([
        ", ".join(sizes),
        f"scanning undecided ({unknown})" if unknown else f"{scan_index}, by chance ±{value('scan_chance'):.3f})",
        f"attention moved by {value('moved_from_start'):.3f}{_slowing(value)}",
        f"on the first key {value('sink'):.2f} (uniform {value('sink_uniform'):.2f})",
        f"on own and previous position {value('near'):.2f} (uniform {value('near_uniform'):.2f})",
    ])  # fmt: skip


def _slowing(value: Callable[[str], Any]) -> str:
    """When attention moved fastest per e-fold of steps, and how much of that speed is left."""
    if not math.isfinite(value("frozenness_ln")):
        return "" if math.isnan(value("snaps")) and not value("t_snap_ln_reason") else f" ({value('t_snap_ln_reason')})"
    low, high = (max(0.0, 1 - value(f"frozenness_ln_{end}")) for end in ("high", "low"))
    left = f"{100 * low:.0f}" if high - low < 0.005 else f"{100 * low:.0f} to {100 * high:.0f}"
    fastest = value("t_fastest_ln")
    when = f", fastest around step {fastest:,.0f}" if 0 < fastest < math.inf else ""
    return f"{when}, last e-fold of steps at {left} % of its greatest speed"


def summary(data: xr.Dataset) -> str:
    """Describe the findings as text.

    Parameters
    ----------
    data : xarray.Dataset
        What `scansnap.Probe.dataset` returns, or a probe's file opened with `scansnap.load`.

    Returns
    -------
    str
        What is wrong in one sentence, the number of heads with each verdict, then one line per head.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> from scansnap.probe.findings import summary
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    >>> probe = ss.Probe(torch.nn.Sequential(torch.nn.Embedding(7, 8), layer), torch.arange(18).reshape(2, 9) % 7)
    >>> probe.measure(0)
    >>> print(summary(probe.dataset()).splitlines()[1])
    2 heads, 1 measurement from step 0 to 0: 2 undecided
    """
    data = data if "verdict" in data else add_findings(data)
    if "verdict" not in data:
        return "no measurements"
    heads = [at for at in np.ndindex(data["verdict"].shape) if str(data["verdict"].values[at])]
    names = {(layer, head): f"{_layer_name(data, layer)} head {head}" for layer, head in heads}
    verdicts = {at: str(data["verdict"].values[at]) for at in heads}
    width, wide = (max((len(text) for text in texts.values()), default=0) for texts in (names, verdicts))
    steps = data["step"].values
    counts = ", ".join(f"{n} {word}" for word, n in Counter(verdicts.values()).most_common())
    n_steps = f"{len(steps)} measurement{'' if len(steps) == 1 else 's'}"
    lines = [data.attrs.get("headline", headline(data)) + "."]
    lines.append(f"{len(heads)} heads, {n_steps} from step {steps[0]} to {steps[-1]}: {counts}")
    if unknown := why_scanning_is_unknown(data):
        lines.append(f"whether heads scan is undecided: {unknown}; it needs several sequences and a corpus")
    lines += [f"{names[at]:{width}}  {verdicts[at]:{wide}}  {data['verdict_numbers'].values[at]}" for at in heads]
    return "\n".join([*lines, f"({NOTE})"])


def _layer_name(data: xr.Dataset, layer: int) -> str:
    path, call = str(data["path"].values[layer]), int(data["call"].values[layer])
    return (path or "the model") + (f" call {call}" if call else "")


def _near(last: xr.Dataset, suffix: str = "") -> xr.DataArray:
    """Attention to the own and the previous position, or to the one of them that is visible."""
    own, previous = last["self" + suffix], last["previous" + suffix]
    return (own.fillna(0) + previous.fillna(0)).where(np.isfinite(own) | np.isfinite(previous))


def _excess(value: xr.DataArray, uniform: xr.DataArray) -> xr.DataArray:
    room = 1 - uniform
    return (value - uniform) / room.where(room > 1e-6)

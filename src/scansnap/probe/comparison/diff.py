"""The differences between the heads of two runs, with intervals, and the order of events in each run.

Both runs have measured the same batch, so that differences are paired by sequence: a t test over sequences, adjusted by
Holm over all heads and quantities (`scansnap.measure.comparison`). Differences within ``MARGIN`` count as none.

The interval is about these two models. It says nothing about other seeds of the same settings: two seeds of one setting
differ in most heads, too. Pass the measurements of another seed as ``seed_of_a`` to see how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
import xarray as xr
from scipy.optimize import linear_sum_assignment

from scansnap.checks import InputError, check_choice
from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.measure.comparison import compare
from scansnap.probe.capture import AttentionRows
from scansnap.probe.findings.health import COLLAPSED
from scansnap.probe.schema import STATISTICS
from scansnap.probe.statistics import plain

QUANTITIES = ("entropy_rel", "sink", "self", "previous", "same_token", "induction", "distinctness")  # all from 0 to 1
MARGIN = 0.05  # the largest difference that counts as none
MATCHES = ("index", "similarity")
SAMPLES = "attention_last"

# The variable and the excess over uniform attention, (value − uniform)/(1 − uniform), from which an event has happened;
# a collapsed head has less than a twentieth of the entropy of uniform attention.
EVENTS = {"previous token": ("previous", 0.5), "induction": ("induction", 0.3), "sink": ("sink", 0.3),
          "collapse": ("entropy_rel", COLLAPSED - 1)}  # fmt: skip


def diff(a: xr.Dataset, b: xr.Dataset, *, match: str = "index", seed_of_a: xr.Dataset | None = None) -> xr.Dataset:
    """Compare the heads of two runs at their last measurement.

    Parameters
    ----------
    a, b : xarray.Dataset
        Measurements of the same batch: from `scansnap.Probe.dataset`, or probe files opened with `scansnap.load`.
    match : {"index", "similarity"}
        Compare heads with the same layer and number, or pair the heads of each layer so that their attention is as
        similar as possible, since the heads of two seeds come in any order.
    seed_of_a : xarray.Dataset, optional
        Another seed of the settings of ``a``. The share of its differences from ``a`` that are significant is the
        false-positive rate of a statement about the settings.

    Returns
    -------
    xarray.Dataset
        By ``quantity``, ``layer`` and ``head`` of ``a``: ``value_a``, ``value_b``, ``difference`` (b − a), its 95%
        interval over sequences (``low``, ``high``) and ``verdict`` (rises, falls, level, undecided or failed), adjusted
        for all heads and quantities; ``layer_b``, ``head_b`` and ``similarity`` (1 − total variation) of the pair
        ``event_a`` and ``event_b``, the first measured step of each event.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    >>> probe = ss.Probe(torch.nn.Sequential(torch.nn.Embedding(7, 8), layer), torch.arange(18).reshape(2, 9) % 7)
    >>> probe.measure(0)
    >>> ss.probe.diff(probe.dataset(), probe.dataset()).similarity.values
    array([[1., 1.]])
    """
    check_choice("match", match, MATCHES)
    check_comparable(a, b, "b", match)
    pairs = list(_pairs(a, b, match))
    at_a, at_b = (tuple(np.array(side).T) for side in zip(*[(pair[:2], pair[2:4]) for pair in pairs], strict=True))
    rows_a, rows_b = (values_by_sequence(data)[:, at[0], at[1]] for data, at in ((a, at_a), (b, at_b)))
    known = np.isfinite(rows_a).any(-1) & np.isfinite(rows_b).any(-1)  # (quantity, pair)
    shape = (len(QUANTITIES), a.sizes["layer"], a.sizes["head"])
    variables: dict[str, np.ndarray] = {
        name: np.full(shape, np.nan) for name in ("value_a", "value_b", "difference", "low", "high")
    }
    verdict = np.full(shape, "", dtype=object)
    where = tuple(np.broadcast_to(i, known.shape)[known] for i in (np.arange(shape[0])[:, None], *at_a))
    if known.any():
        comparison = compare(_without_gaps(rows_b[known] - rows_a[known]), margin=MARGIN)
        results = {"value_a": _means(rows_a[known]), "value_b": _means(rows_b[known]), "difference": comparison.mean,
                   "low": comparison.low, "high": comparison.high}  # fmt: skip
        for name, values in results.items():
            variables[name][where] = values
        verdict[where] = comparison.verdict
    of_pair = {
        name: np.full(shape[1:], fill) for name, fill in (("layer_b", -1), ("head_b", -1), ("similarity", np.nan))
    }
    for i, name in enumerate(of_pair, 2):
        of_pair[name][at_a] = [pair[i] for pair in pairs]
    heads = ("layer", "head")
    events = {f"event_{name}": (("event", *heads), np.full((len(EVENTS), *shape[1:]), np.nan)) for name in "ab"}
    for (_, steps), data, at in zip(events.values(), (a, b), (at_a, at_b), strict=True):
        steps[:, *at_a] = event_steps(data)[:, *at]
    result = xr.Dataset(
        {name: (("quantity", *heads), values) for name, values in {**variables, "verdict": verdict}.items()}
        | {name: (heads, values) for name, values in of_pair.items()}
        | events,
        {"quantity": list(QUANTITIES), "event": list(EVENTS), "path": a["path"]},
        {"match": match, "margin": MARGIN, "steps": [int(a.step[-1]), int(b.step[-1])]},
    )
    for name, data in (("rates_a", a), ("rates_b", b)):
        if "rates" in data.attrs:
            result.attrs[name] = data.attrs["rates"]
    if seed_of_a is not None:
        check_comparable(a, seed_of_a, "seed_of_a", match)
        result.attrs["between_seeds"] = share_that_differs(diff(a, seed_of_a, match=match))
    return result


def check_comparable(a: xr.Dataset, b: xr.Dataset, field: str, match: str) -> None:
    """Refuse measurements that cannot be paired."""
    for name, data in (("a", a), (field, b)):
        if not data.sizes.get("step", 0) or SAMPLES not in data:
            raise InputError(name, "no stored attention", "measurements with at least one step and its samples")
    if a.attrs.get("batch") != b.attrs.get("batch"):
        raise InputError(field, "another batch", "measurements of the same batch as a", "measure both on one batch")
    rows = ("sequence", "sampled")
    if any(a.sizes[dim] != b.sizes[dim] for dim in rows) or (a.sampled_position != b.sampled_position).any():
        raise InputError(field, "other queries", "measurements of the same queries as a", "pass the same queries=")
    if a.sizes["layer"] != b.sizes["layer"] or (match == "index" and a.sizes["head"] != b.sizes["head"]):
        sizes = f"{b.sizes['layer']} layers of up to {b.sizes['head']} heads"
        raise InputError(field, sizes, f"{a.sizes['layer']} layers of up to {a.sizes['head']} heads")


def values_by_sequence(data: xr.Dataset) -> FloatArray:
    """QUANTITIES of the stored queries of the last measurement, (quantity, layer, head, sequence); NaN if unknown."""
    samples = torch.from_numpy(data[SAMPLES].transpose("layer", "sequence", "head", "sampled", ...).values)
    tokens = torch.from_numpy(data["tokens"].values) if "tokens" in data else None
    if tokens is not None and tokens.shape[1] != samples.shape[-1]:
        tokens = None
    tables = plain.KeyTables(torch.from_numpy(data["sampled_position"].values), tokens, None, None)
    values = np.full((len(QUANTITIES), *(data.sizes[dim] for dim in ("layer", "head", "sequence"))), np.nan)
    for layer, p in enumerate(samples):
        if p.isfinite().all():
            sums = plain.sums(AttentionRows(p, (p > 0).any(1, keepdim=True)), tables)[0]
            of_layer = (sums[..., 0] / sums[..., 2]).mT.double().numpy()  # (statistic, head, sequence)
            for i, name in enumerate(QUANTITIES):
                if name in STATISTICS:
                    values[i, layer] = of_layer[list(STATISTICS).index(name)]
    if "distinctness" in data:
        last = data["distinctness"].isel(step=-1).transpose("layer", "head", "sequence")
        values[QUANTITIES.index("distinctness")] = last.values
    return values


def event_steps(data: xr.Dataset) -> FloatArray:
    """The first measured step of each event, (event, layer, head); NaN if it has not happened."""
    steps = np.full((len(EVENTS), data.sizes["layer"], data.sizes["head"]), np.nan)
    for i, (name, threshold) in enumerate(EVENTS.values()):
        value, uniform = (data[n].transpose("step", "layer", "head").values for n in (name, f"{name}_uniform"))
        room = np.where(threshold > 0, 1 - uniform, uniform)  # entropy falls from its uniform value
        excess = np.divide(value - uniform, room, out=np.full_like(value, np.nan), where=room > 1e-6)
        happened = excess >= threshold if threshold > 0 else excess <= threshold
        steps[i] = np.where(happened.any(0), data["step"].values[happened.argmax(0)], np.nan)
    return steps


def share_that_differs(result: xr.Dataset) -> float:
    """The share of heads and quantities with a verdict that rise or fall."""
    verdicts = result["verdict"].values
    judged = verdicts != ""
    return float(np.isin(verdicts[judged], ("rises", "falls")).mean()) if judged.any() else float("nan")


def describe(result: xr.Dataset, names: tuple[str, str] = ("a", "b")) -> str:
    """The comparison as text: counts, the largest differences, and the order of events."""
    a, b = names
    verdicts = Counter(str(verdict) for verdict in result["verdict"].values.flat if verdict)
    words = {"rises": f"higher in {b}", "falls": f"lower in {b}", "level": f"equal within {MARGIN:g}"}
    counts = ", ".join(f"{n} {words.get(verdict, verdict)}" for verdict, n in verdicts.most_common())
    lines = [
        f"{result.sizes['layer'] * result.sizes['head']} heads × {len(QUANTITIES)} quantities: {counts or 'nothing'}"
    ]
    if "between_seeds" in result.attrs:
        share = result.attrs["between_seeds"]
        lines.append(f"Another seed of {a}: {share:.0%} of its comparisons differ significantly.")
    else:
        lines.append("The intervals are over sequences. They do not say what another seed would give.")
    for quantity, layer, head in largest_differences(result):
        row = result.sel(quantity=quantity).isel(layer=layer, head=head)
        pair = f"layer {layer} head {head}"
        if (int(row.layer_b), int(row.head_b)) != (layer, head):
            pair += f" (with layer {int(row.layer_b)} head {int(row.head_b)})"
        lines.append(f"{pair}: {quantity} {float(row.value_a):.3f} → {float(row.value_b):.3f}, difference "
                     f"{float(row.difference):+.3f} ({float(row.low):+.3f} to {float(row.high):+.3f})")  # fmt: skip
    for side, name in zip("ab", names, strict=True):
        order = events_in_order(result[f"event_{side}"])
        lines.append(f"events in {name}: " + (", ".join(f"{event} at {step:g}" for event, step in order) or "none"))
    return "\n".join(lines)


def largest_differences(result: xr.Dataset, most: int = 10) -> list[tuple[str, int, int]]:
    """Quantity, layer and head of the largest significant differences."""
    significant = np.isin(result["verdict"].values, ("rises", "falls"))
    size = np.where(significant, np.abs(result["difference"].values), 0)
    order = np.argsort(-size, axis=None)[: min(most, int(significant.sum()))]
    return [
        (QUANTITIES[q], int(layer), int(head))
        for q, layer, head in zip(*np.unravel_index(order, size.shape), strict=True)
    ]


def events_in_order(steps: xr.DataArray) -> list[tuple[str, float]]:
    """The events that happened in some head, with the first step, in order."""
    first = [(str(event), float(np.nanmin(steps.sel(event=event)))) for event in steps.event.values
             if np.isfinite(steps.sel(event=event)).any()]  # fmt: skip
    return sorted(first, key=lambda event: event[1])


def _pairs(a: xr.Dataset, b: xr.Dataset, match: str) -> Iterator[tuple[int, int, int, int, float]]:
    """Layer and head in a, layer and head in b, and the similarity of their attention."""
    samples = [data[SAMPLES].transpose("layer", "head", "sequence", "sampled", ...).values for data in (a, b)]
    for layer, (rows_a, rows_b) in enumerate(zip(*samples, strict=True)):  # (head, sequence, sampled, key)
        similarity = np.array([[1 - np.abs(p - q).sum(-1).mean() / 2 for q in rows_b] for p in rows_a])
        if match == "index" or not np.isfinite(similarity).all():
            heads: IntArray = np.arange(min(similarity.shape))
            partners = heads
        else:
            heads, partners = linear_sum_assignment(-similarity)
        for head, partner in zip(heads, partners, strict=True):
            yield layer, int(head), layer, int(partner), float(similarity[head, partner])


def _means(rows: FloatArray) -> FloatArray:
    return np.nanmean(rows, axis=-1)


def _without_gaps(rows: FloatArray) -> FloatArray:
    """Sequences without the pattern of a quantity have no value: judge those that have one in every case."""
    complete = np.isfinite(rows).all(0)
    return rows[:, complete] if complete.sum() > 1 else rows

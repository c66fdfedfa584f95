"""The verdicts that the page ships: every claim checked on the run of each preset.

``python -m scansnap.explorer.verdicts`` computes them and writes ``verdicts.json``. The file holds the digest of every
set-up that was judged, so that a test says when a preset, a claim or the package has changed since.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_softmax

import scansnap
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_trajectory, reason_outside_theory
from scansnap.claims.registry import all_not_applicable
from scansnap.claims.report import Report
from scansnap.claims.verify import SEEDS, judge_evidence
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import ModelConfig
from scansnap.dynamics.simulate import simulate
from scansnap.dynamics.state_view import StateView
from scansnap.explorer.page import as_json
from scansnap.explorer.presets import PRESETS
from scansnap.explorer.setup import SetupReading, read_setup
from scansnap.explorer.shipped import CHANGES, FILE, TEXTBOOK
from scansnap.runs import grid

_TIMES = 100  # of a run that are judged, evenly in ln t
_POINTS = 40  # of a claim's curve
_DIGITS = 6  # of a number in the file


def judge(reading: SetupReading) -> Report:
    """Every claim on the run of a set-up, in float64; where mini-batches are sampled, beside runs with other seeds."""
    classes, runs, steps = reading.classes, reading.runs, reading.settings.steps
    times = np.unique(np.append(0, np.rint(np.geomspace(1, steps, _TIMES)))).astype(int)
    settings = replace(reading.settings, dtype="float64", record=tuple(times.tolist()), variables=("z",))
    recorded = replace(settings, variables=("attention", "z", "loss"))

    def compact_y(view: StateView) -> dict[str, Any]:
        return {"y_rows": (("row", "column"), view.tables["y"].numpy())}

    data = simulate(classes, runs, settings=recorded, record_fn=compact_y, device="cpu")
    if reason := reason_outside_theory(data):
        return Report(f"{classes}: {reason}", tuple(all_not_applicable(reason)))
    evidence = _with_votes(from_trajectory(data, classes), data["y_rows"].values[0])
    if settings.batch_size is not None:
        first = int(runs.seed[0])
        rates = {name: float(getattr(runs, name)[0]) for name in ("eta_y", "eta_z", "momentum", "weight_decay")}
        others = simulate(classes, grid(seed=range(first + 1, first + SEEDS), **rates), settings=settings, device="cpu")
        finite = others["failed_step"].values < 0
        evidence = replace(evidence, z_seeds=np.concatenate([evidence.z[None], others["z"].values[finite]]))
    return judge_evidence(evidence)


def _with_votes(evidence: Evidence, y: np.ndarray) -> Evidence:
    """With g_n = Y(e_n − α_n) and the logit gap, from the compact tables y (n, L, J); whole tables would be too large.

    Columns may stand for many tokens, and rows are those of the contexts.
    """
    classes, k = evidence.classes, np.arange(evidence.classes.n_classes)
    layout = make_layout(classes, ModelConfig(), decays=False)
    logits = evidence.f[..., layout.rows] @ y  # (n, K, J)
    r = -np.exp(log_softmax(logits + np.log(layout.multiplicity), axis=-1))
    r[:, k, layout.target] += 1
    g = np.zeros_like(evidence.attention)
    g[..., layout.rows] = r @ y.transpose(0, 2, 1)
    g = np.where(classes.p_context > 0, g, 0.0)
    never = np.setdiff1d(np.arange(len(layout.columns)), layout.target)
    gap = logits[:, k, layout.target] - logits[:, :, never].mean(-1) if len(never) else None
    n = len(y)
    chosen = np.unique([n // 3, 2 * n // 3, n - 1])
    full = np.zeros((len(chosen), classes.vocab_size, classes.vocab_size))
    full[:, layout.rows] = layout.expand_columns(y[chosen])
    return replace(evidence, g=g, gap=gap, y=full, y_times=chosen)


def setup_for(claim: str) -> dict[str, Any]:
    """A set-up in which a claim applies."""
    return {**TEXTBOOK, **CHANGES.get(claim, {})}


def settings_to_judge() -> dict[str, dict[str, Any]]:
    """Set-ups by name: the presets, and those in which a claim applies that applies in none of them."""
    setups: dict[str, dict[str, Any]] = {preset["name"]: preset["setup"] for preset in PRESETS}
    for name in CHANGES:
        setup = setup_for(name)
        if setup not in setups.values():
            setups[name] = setup
    return setups


def digest(setup: dict[str, Any]) -> str:
    """A digest of a set-up with every default filled in."""
    text = json.dumps(read_setup(setup).setup, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def entry(setup: dict[str, Any]) -> dict[str, Any]:
    """The verdicts on one set-up, as the page gets them."""
    reading = read_setup(setup)
    report = judge(reading)
    return {"setup": reading.setup, "digest": digest(setup), "step": reading.settings.steps, "setting": report.setting,
            "claims": [claim_as_json(claim) for claim in report]}  # fmt: skip


def claim_as_json(claim: Claim) -> dict[str, Any]:
    """A claim for the page, its curves thinned."""
    curve, instead = claim.curve, claim.alternative
    drawn = None
    if curve is not None and claim.status != "not applicable":
        which = _thinned(len(curve.x))
        drawn = {"x_label": curve.x_label, "y_label": curve.y_label, "x": _numbers(curve.x, which),
                 "measured": _numbers(curve.measured, which), "predicted": _numbers(curve.predicted, which),
                 "log_x": curve.log_x, "log_y": curve.log_y}  # fmt: skip
    ours = None
    if instead is not None:
        which = _thinned(0 if instead.x is None else len(instead.x))
        ours = {"name": instead.claim.name, "reference": instead.claim.reference, "statement": instead.claim.statement,
                "status": instead.claim.status, "words": instead.verdict, "off": _number(instead.error),
                "theirs": _number(instead.paper_error), "x": _numbers(instead.x, which),
                "y": _numbers(instead.y, which)}  # fmt: skip
    return {
        "name": claim.name, "reference": claim.reference, "statement": claim.statement, "status": claim.status,
        "kind": claim.kind, "quantity": claim.quantity, "measured": _number(claim.measured),
        "predicted": _number(claim.predicted), "margin": _number(claim.margin), "tolerance": _number(claim.tolerance),
        "why": claim.reason,
        "assumptions": [{"name": a.name, "value": _number(a.value), "threshold": _number(a.threshold), "met": a.met}
                        for a in claim.assumptions],
        "curve": drawn, "instead": ours,
    }  # fmt: skip


def _thinned(n: int) -> np.ndarray:
    return np.arange(n) if n <= _POINTS else np.unique(np.rint(np.linspace(0, n - 1, _POINTS)).astype(int))


def _numbers(values: Any, which: np.ndarray) -> list[float | str | None] | None:
    return None if values is None else [_number(v) for v in np.asarray(values, dtype=float)[which]]


def _number(value: Any) -> float | str | None:
    """For JSON: ∞ as a word, NaN as null, and six digits."""
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.{_DIGITS}g}")


def write() -> None:
    """Computes the file."""
    entries = {name: entry(setup) for name, setup in settings_to_judge().items()}
    lines = ",\n".join(f'"{name}":{as_json(verdicts)}' for name, verdicts in entries.items())
    FILE.write_text(f'{{"version":"{scansnap.__version__}","entries":{{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    write()

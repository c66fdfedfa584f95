"""Why the theory does not apply to a run: one list, for claims, predictions and pages.

The paper's model is one head with the l2 norm, softmax over all M outputs, no residual connection, no positions and
no query among its own keys; trained by SGD with constant rates from Y = Z = 0. (Momentum is not on the list: it acts
as both rates divided by 1 − μ. Nor are short sequences, small batches and the like: those are assumptions with
numbers, see `scansnap.claims.assumptions.check_assumptions`.)

All functions take plain values, so that any module may call them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SMALLEST_RATE = 1e-12  # below it the closed forms do not apply
RATE_IS_ZERO = "a rate is 0"
GIVEN_LOGITS = "the flow does not start from Z = 0"


def why_not_applicable(
    settings: Mapping[str, Any],
    *,
    eta_y: float,
    eta_z: float,
    weight_decay: float = 0.0,
    failed_step: int = -1,
    complete: bool = True,
) -> str:
    """Why the theory does not apply to this run, in words; empty where it does.

    ``settings`` is a simulation's, as ``Settings.to_dict`` or a trajectory's attribute has it; the rest belongs
    to the run. A rate of 0 comes last: it is the only reason that leaves the T → ∞ flow a meaning.
    """
    optimizers = [settings[name] for name in ("optimizer_y", "optimizer_z")]
    reasons = {
        "the optimiser is not SGD": any(o["name"] != "sgd" for o in optimizers),
        "Y follows the modified update": settings.get("update", "gradient") != "gradient",
        "gradients are clipped": any(o["clip"] is not None for o in optimizers),
        "the rates follow a schedule": any(o["schedule"] != "constant" for o in optimizers),
        "there is weight decay": weight_decay > 0,
        "the run does not start from Y = Z = 0": settings["model"]["init"] != "zero",
        f"the run became non-finite at step {failed_step}": failed_step >= 0,
        "the run was stopped before its last step": not complete,
        RATE_IS_ZERO: min(eta_y, eta_z) < SMALLEST_RATE,
    }
    return why_not_paper_model(settings["model"]) or _first(reasons)


def why_not_paper_model(model: Mapping[str, Any]) -> str:
    """Why this is not the paper's model, so that Y and Z mean something else; empty where it is. Part of the above."""
    return _first(
        {
            "the norm is not l2": model["norm"] != "l2",
            "there is a residual connection": model["residual"] != "none",
            "there are several heads": model["heads"] != 1,
            "there is a position bias": model["position_bias"] is not None,
            "the softmax is over the next tokens only": model["outputs"] != "all",
            "the query is among the keys": bool(model["query_in_keys"]),
        }
    )


def why_flow_not_applicable(attrs: Mapping[str, Any]) -> str:
    """The same for a T → ∞ flow, by its attributes (those of older files say less: they are of the paper's model).

    Theorem 1 asks only for Y(0) = 0. But its assumptions on the overlap are checked at Z = 0,
    and Theorem 4 begins there. A start with other logits comes late, so that a claim that accepts one knows that the
    rest is the paper's.
    """
    return _first(
        {
            "the norm is not l2": attrs.get("norm", "l2") != "l2",
            "there is a residual connection": attrs.get("residual", "none") != "none",
            "the flow does not start from Y = 0": attrs.get("y0", "zero") != "zero",
            "Y follows the modified update": attrs.get("update", "gradient") != "gradient",
            "there is weight decay": max(attrs.get(f"weight_decay_{name}", 0.0) for name in "yz") > 0,
            "the flow ended before its last time": attrs.get("stopped") in ("interrupted", "non-finite"),
            GIVEN_LOGITS: attrs["z0"] != "zero",
            RATE_IS_ZERO: min(float(attrs["eta_y"]), float(attrs["eta_z"])) < SMALLEST_RATE,
        }
    )


def _first(reasons: Mapping[str, bool]) -> str:
    return next((reason for reason, applies in reasons.items() if applies), "")

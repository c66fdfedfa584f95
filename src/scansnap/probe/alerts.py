"""Alerts: functions of a probe's record that return a message when something is wrong.

An alert is called after every measurement with the `History` of all measurements so far. What it returns is a message,
or None. Your own function is an alert too:

    def sinks(history):
        share = history[-1]["attention/sink"]  # the keys are those of on_measure
        return f"{share:.0%} of attention goes to the first token" if share > 0.5 else None

    probe = ss.Probe(model, batch, alerts=[*ss.probe.alerts.DEFAULT, sinks])

Each alert warns once in a training. Default thresholds come from a study; see docs/warnings.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from scansnap.checks import InputError, check_float
from scansnap.probe.loggers.scalars import History

MAX_LOGIT = 500.0  # this and ENTROPY from the calibration seeds of the study
ENTROPY, SHARE = 1 / 30, 0.5
MOST_NAMED = 4  # heads in a message


class FiredAlert(NamedTuple):
    """A warning of an alert."""

    step: int
    name: str
    message: str


@dataclass(frozen=True)
class Alert:
    """An alert with a name.

    Parameters
    ----------
    name : str
        The name in warnings, for example ``max_logit(100)``.
    check : callable
        ``check(history)`` returns a message or None.
    once : bool
        Whether only its first message in a training is a warning.
    """

    name: str
    check: Callable[[History], Any]
    once: bool = True

    def __call__(self, history: History) -> str | None:
        """The message, if any."""
        message = self.check(history)
        if message is None or message is False:
            return None
        if message is True:
            return self.name
        if not isinstance(message, str):
            raise TypeError(f"expected a message or None, got {message!r}")
        return message or None


def max_logit(threshold: float = MAX_LOGIT) -> Alert:
    """Warn when a head's largest attention logit is above a threshold.

    A large logit alone is no failure: runs with fast query and key weights train well at 200 and above.

    Parameters
    ----------
    threshold : float
        Largest logit that is not a warning, > 0.

    Returns
    -------
    Alert

    Examples
    --------
    >>> import scansnap as ss
    >>> ss.probe.alerts.max_logit(100).name
    'max_logit(100)'
    """
    threshold = check_float("threshold", threshold, above=0)

    def check(history: History) -> str | None:
        logits = history.heads("max_logit")[-1]
        above = np.argwhere(logits > threshold)
        if not len(above):
            return None
        return f"largest attention logit {np.nanmax(logits):,.4g}, above {threshold:g} in {_heads(above, logits.size)}"

    return Alert(f"max_logit({threshold:g})", check)


def entropy_collapse(threshold: float = ENTROPY, share: float = SHARE) -> Alert:
    """Warn when many heads attend to hardly more than one token.

    Parameters
    ----------
    threshold : float
        Relative entropy at or below which a head counts: 1 is uniform attention, 0 a single token.
    share : float
        Share of the heads that must count.

    Returns
    -------
    Alert

    Examples
    --------
    >>> import scansnap as ss
    >>> ss.probe.alerts.entropy_collapse().name
    'entropy_collapse(0.033)'
    """
    threshold = check_float("threshold", threshold, above=0, below=1)
    share = check_float("share", share, above=0, most=1)

    def check(history: History) -> str | None:
        entropy = history.heads("entropy_rel")[-1]
        known, low = np.isfinite(entropy).sum(), np.argwhere(entropy < threshold)
        if not known or len(low) < share * known:
            return None
        return f"attention entropy below {threshold:.2g} of uniform attention in {_heads(low, known)}"

    return Alert(f"entropy_collapse({threshold:.2g})", check)


def nonfinite() -> Alert:
    """Warn when attention, the output, or a loss is NaN or infinite; again when another of them is.

    Returns
    -------
    Alert

    Examples
    --------
    >>> import scansnap as ss
    >>> ss.probe.alerts.nonfinite().name
    'nonfinite()'
    """

    def check(history: History) -> str | None:
        new = history.nonfinite() - history.until(len(history) - 1).nonfinite()
        return f"NaN or infinite values in {', '.join(sorted(new))}" if new else None

    return Alert("nonfinite()", check, once=False)


DEFAULT = (nonfinite(),)


def check_alerts(alerts: Any) -> tuple[Alert, ...]:
    """The alerts of a probe, with names; own functions are named as they are."""
    expected = "a list of alerts, as ss.probe.alerts.max_logit(100), or functions of the history"
    if alerts is None:
        return DEFAULT
    if isinstance(alerts, str | Alert) or callable(alerts) or not isinstance(alerts, Iterable):
        raise InputError("alerts", alerts, expected)
    result: dict[str, Alert] = {}
    for alert in alerts:
        if not callable(alert) or isinstance(alert, type):
            raise InputError("alerts", alert, expected)
        if getattr(alert, "__module__", None) == __name__ and not isinstance(alert, Alert):
            name = getattr(alert, "__name__", "")
            raise InputError("alerts", name, expected, f"call it: {name}()")
        named = alert if isinstance(alert, Alert) else Alert(getattr(alert, "__name__", "alert"), alert)
        if named.name in result:
            named = replace(named, name=f"{named.name} {len(result) + 1}")
        result[named.name] = named
    return tuple(result.values())


def _heads(at: np.ndarray, n: int) -> str:
    """Heads by layer, "3 of 8 heads (layer 0: 1, 3; layer 1: 0)"."""
    by_layer: dict[int, list[str]] = {}
    for layer, head in at[:MOST_NAMED].tolist():
        by_layer.setdefault(layer, []).append(str(head))
    named = "; ".join(f"layer {layer}: {', '.join(heads)}" for layer, heads in by_layer.items())
    return f"{len(at)} of {n} heads ({named}{', …' if len(at) > MOST_NAMED else ''})"

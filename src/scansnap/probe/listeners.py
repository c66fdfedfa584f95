"""Everything that hears of a measurement at once: ``on_measure``, loggers, and alerts.

Nothing that they do reaches the training: an error is a warning, once for each of them, and random generators are
restored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from scansnap.checks import InputError
from scansnap.probe.alerts import Alert, FiredAlert, check_alerts
from scansnap.probe.distributed import broadcast_decision, is_distributed
from scansnap.probe.loggers.scalars import History
from scansnap.probe.loggers.targets import Logger, Values, alert_in_trackio, check_loggers, make_logger
from scansnap.probe.state import preserve_rng
from scansnap.probe.store import Measurements

if TYPE_CHECKING:
    from scansnap.probe.probe import Probe

_STACK = 7  # from a warning to the line that called ``step``


class Listeners:
    """The functions that a probe calls after each measurement."""

    def __init__(
        self,
        on_measure: Callable[[Values], Any] | None = None,
        log: str | Iterable[str] | None = None,
        alerts: Iterable[Alert | Callable[[History], Any]] | None = None,
        on_alert: Callable[[FiredAlert], Any] | None = None,
    ) -> None:
        for name, function in {"on_measure": on_measure, "on_alert": on_alert}.items():
            if function is not None and not callable(function):
                raise InputError(name, function, "a function")
        self.loggers: dict[str, Logger] = check_loggers(log)
        self.on_measure, self.on_alert, self.alerts = on_measure, on_alert, check_alerts(alerts)
        self.fired: list[FiredAlert] = []
        self.at_once = (
            on_measure is not None or bool(self.loggers) or alerts is not None
        )  # do not wait for a GPU's step
        self._checked = 0  # leading measurements that the alerts have seen
        self._failed: set[str] = set()  # names of functions that have raised

    def add_logger(self, name: str, folder: str) -> None:
        """Log there too, unless the user already has."""
        if name not in self.loggers:
            self.loggers[name] = make_logger(name, folder)
            self.at_once = True

    def notify(self, measurements: Measurements) -> None:
        """Tell everybody about the last measurement."""
        with preserve_rng():
            history = History(measurements)
            if self.on_measure is not None or self.loggers:
                values = history[-1]
                for name, logger in self.loggers.items():
                    self._call(f"log={name!r}", logger, values)
                if self.on_measure is not None:
                    self._call("on_measure", self.on_measure, dict(values))
            self._check_alerts(history)

    def _check_alerts(self, history: History) -> None:
        """Warn of what is new; measurements of a file that is continued have had their warnings."""
        n, last = len(history), history.steps[-1]
        self.fired = [fired for fired in self.fired if fired.step < last]  # a training may go back
        self._checked = min(self._checked, n - 1)
        for i in range(self._checked + 1, n + 1):
            part = history.until(i)
            for alert in self.alerts:
                if alert.once and any(fired.name == alert.name for fired in self.fired):
                    continue
                message = self._call(alert.name, alert, part)
                if isinstance(message, str):
                    self.fired.append(FiredAlert(part.steps[-1], alert.name, message))
        self._checked = n
        for fired in [fired for fired in self.fired if fired.step == last]:
            self._warn(fired)

    def _warn(self, fired: FiredAlert) -> None:
        text = f"step {fired.step}: {fired.message}"
        warnings.warn(text, stacklevel=_STACK)
        self._call("trackio.alert", alert_in_trackio, fired.name, text)
        if self.on_alert is not None:
            self._call("on_alert", self.on_alert, fired)

    def _call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """What a function returns; None with a warning, once, if it raises."""
        try:
            return function(*args)
        except Exception as error:
            if name not in self._failed:
                self._failed.add(name)
                message = f"{name} failed in the probe ({type(error).__name__}: {error}); training continues"
                warnings.warn(message, stacklevel=_STACK)
        return None


def check_stop_training(stop_training: Any, probe: Probe) -> bool:
    """The choice of a callback; a training can only be stopped by a warning that does not wait for the next."""
    if not isinstance(stop_training, bool):
        raise InputError("stop_training", stop_training, "True or False")
    probe.listeners.at_once |= stop_training
    return stop_training


def has_fired(probe: Probe, step: int, last: bool = False) -> bool:
    """Whether an alert has fired at this step; the same in all processes, of which only the first one measures."""
    if not (last or probe.due(step)):
        return False
    fired = any(alert.step == step for alert in probe.fired_alerts)
    return broadcast_decision(fired) if is_distributed() else fired

"""The controls of the page, one per declared setting (``scansnap.settings``): label, help, bounds, default.

Page and server check values by this list.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any

from scansnap.checks import InputError
from scansnap.classes import PRESETS
from scansnap.dynamics.settings import run_settings
from scansnap.explorer.limits import LIMITS
from scansnap.runs import run_fields
from scansnap.settings import EMPTY, Page, SettingSpec, settings_of

_KINDS = {"float": "number"}


@dataclass(frozen=True)
class Control:
    """A declared setting within the explorer's limits, which may be tighter than its own."""

    spec: SettingSpec
    page: Page

    @classmethod
    def of(cls, spec: SettingSpec) -> Control:
        """The control of a setting."""
        page = spec.page or Page()
        least = spec.least if page.least is None else page.least
        most = LIMITS.get(page.cap or spec.name, page.most)
        if most is not None:
            spec = replace(spec, most=most, below=None)
        default = spec.default if page.default is EMPTY else page.default
        return cls(
            replace(spec, least=least or 0 if spec.kind == "integer" else least, default=default, multiple=False), page
        )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def default(self) -> Any:
        return self.spec.default

    @property
    def explain(self) -> str:
        return self.spec.help

    @property
    def kind(self) -> str:
        """Number, integer, choice, flag or text."""
        return _KINDS.get(self.spec.kind, self.spec.kind)

    @property
    def options(self) -> tuple[str, ...] | None:
        """The choices; read each time, since registries may grow."""
        return self.spec.options or None

    @property
    def words(self) -> dict[str, str]:
        """Values besides numbers, and their labels."""
        labels = {"none": "none"} if self.spec.optional else {"inf": "∞"} if self.spec.allow_inf else {}
        return labels | dict(self.page.words)

    def check(self, value: Any) -> Any:
        """``value`` if this control allows it; rules that join several controls come later."""
        checked = self.spec.check(value)
        if self.kind == "text" and checked is not None and not (isinstance(value, str) and len(value) <= 40):
            raise InputError(self.name, value, "a short text")
        return "inf" if isinstance(checked, float) and math.isinf(checked) else checked  # JSON has no infinity

    def to_dict(self) -> dict[str, Any]:
        """As ``ControlSpec`` of static/js/messages.d.ts."""
        spec, page = self.spec, self.page
        label = page.label or self.name.replace("_", " ").capitalize()
        return {"name": self.name, "label": label, "symbol": page.symbol, "explain": self.explain, "kind": self.kind,
                "default": self.default, "least": spec.least, "most": spec.most, "low": page.low, "high": page.high,
                "log": page.log, "options": self.options, "words": self.words, "live": page.live}  # fmt: skip


def controls() -> tuple[Control, ...]:
    """The controls of a run."""
    declared = (run_fields() | run_settings()).values()
    return tuple(Control.of(spec) for spec in declared if spec.page is not None)


def class_settings() -> dict[str, dict[str, Control]]:
    """The controls of each class preset."""
    return {
        name: {spec.name: Control.of(spec) for spec in settings_of(make).values()} for name, make in PRESETS.items()
    }


CONTROLS = controls()
BY_NAME = {control.name: control for control in CONTROLS}
PRESET_CONTROLS = {name: control for preset in class_settings().values() for name, control in preset.items()}


def class_presets() -> list[dict[str, Any]]:
    """The class presets and their settings, for the page."""
    return [{"name": name, "title": name.title(), "explain": (inspect.getdoc(PRESETS[name]) or "").split("\n")[0],
             "settings": [control.to_dict() for control in own.values()]}
            for name, own in class_settings().items()]  # fmt: skip

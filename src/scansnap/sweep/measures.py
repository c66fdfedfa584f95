"""The ``[measure]`` table: which functions of ``scansnap.measure`` are applied to each run, with which options.

A key is the name of a function (``recall = { threshold = 0.01 }``, ``snap_time = {}``), or your own name with a
function (``top3 = { function = "top_mass", k = 3 }``). A measure is a function of one run, so the numbers do not depend
on the groups.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scansnap import measure
from scansnap.checks import InputError, check_choice, check_keys
from scansnap.classes import SequenceClasses

# the first argument of each function (attention or the trajectory), and the variables that it needs
_TAKES = {
    "entropy": "attention", "distinct_entropy": "attention", "effective_support": "attention", "recall": "attention",
    "top_mass": "attention", "log_odds": "data", "snap_time": "data", "scan_rank_correlation": "data",
    "scan_order": "data", "fates": "data",
}  # fmt: skip
_NEEDS = {"fates": ("attention", "z")}
_NAMES = {"entropy": "attention_entropy"}  # over all tokens; a trajectory's ``entropy`` is over the distinct ones
_OURS = ("data", "attention", "classes", "pool")  # arguments that are not options
_ONE_BY_ONE = ("snap_time",)  # it draws random numbers for runs in turn, so each run is measured alone


@dataclass(frozen=True)
class Measure:
    """A function of ``scansnap.measure`` with its options and the name of its result."""

    name: str
    function: str
    options: dict[str, Any]

    @property
    def needs(self) -> tuple[str, ...]:
        return _NEEDS.get(self.function, ("attention",))

    @property
    def one_by_one(self) -> bool:
        return self.function in _ONE_BY_ONE

    def __call__(self, data: xr.Dataset, classes: SequenceClasses) -> xr.Dataset:
        """The measured variables of all runs of a trajectory."""
        if self.one_by_one:
            parts = [self._apply(data.isel(run=[i]), classes) for i in range(data.sizes["run"])]
            return xr.concat(parts, "run", data_vars="minimal", coords="minimal", compat="override", join="override")
        return self._apply(data, classes)

    def _apply(self, data: xr.Dataset, classes: SequenceClasses) -> xr.Dataset:
        function = getattr(measure, self.function)
        options = dict(self.options)
        parameters = inspect.signature(function).parameters
        if "classes" in parameters:
            options["classes"] = classes
        if "pool" in parameters:
            options["pool"] = False
        with np.errstate(divide="ignore", invalid="ignore"):
            result = function(data["attention"] if _TAKES[self.function] == "attention" else data, **options)
        if isinstance(result, xr.DataArray):
            return result.to_dataset(name=self.name)
        prefix = "" if self.name == self.function else f"{self.name}_"
        return result.rename({name: f"{prefix}{name}" for name in result.data_vars}) if prefix else result


def measures(table: dict[str, Any]) -> tuple[Measure, ...]:
    """Read the ``[measure]`` table; values of options are checked with the first run."""
    result = []
    for name, value in table.items():
        settings = {} if value is True else value
        if not isinstance(settings, dict):
            raise InputError(f"{name} in [measure]", value, "a table of options: {} for none")
        options = {key: value for key, value in settings.items() if key != "function"}
        function = check_choice(
            "function" if "function" in settings else "measure", settings.get("function", name), _TAKES
        )
        allowed = [key for key in inspect.signature(getattr(measure, function)).parameters if key not in _OURS]
        check_keys(f"{name} of [measure]", options, ("function", *allowed))
        for key, value in options.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError):  # a date, an integer of thousands of digits
                raise InputError(
                    f"{key} of {name} in [measure]", value, "a number, a text or a list of these"
                ) from None
        if not name.replace("_", "a").isalnum():
            raise InputError("name in [measure]", name, "letters, digits and underscores")
        result.append(Measure(name if "function" in settings else _NAMES.get(name, name), function, options))
    return tuple(result)

"""docs/settings.md: every declared setting in tables, as ``scansnap info --settings`` prints them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from scansnap.classes import PRESETS
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.runs import run_fields
from scansnap.settings import SettingSpec, settings_of
from scansnap.text.settings import TrainingSettings
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.settings import YZSettings

_HEAD = """\
# Settings

This page lists every setting of a run: learning rates, steps, optimiser, sampling, model and recording. The same
names work as options of the command line, keys of TOML files, and arguments in Python. The source declares each setting
once; `scansnap info --settings > docs/settings.md` writes this page from it.
"""
_RUNS = """Options of `scansnap run` (`--eta-y 0.5,1 --seed 0:10`: the outer product), keys of `[run]` in run files and
of `[grid]` in sweeps, arguments of `ss.grid` and, one value each, of `ss.simulate`. Give either `eta_y` or `ratio`."""
_SETTINGS = "Options of `scansnap run` (`--batch-size 64`), keys of `[run]` in files, arguments of `ss.simulate`."
_MODEL = "As those of a simulation; together they are an `ss.ModelConfig`."
_OPTIMIZER = """By its name alone (`--optimizer adam`), or in files with constants, `optimizer = { name = "adam", eps =
1e-6 }`, also one for each table, `optimizer = { y = "adam", z = { name = "sgd", clip = 1.0 } }`. In Python likewise, or
as an `ss.Optimizer`, where the field `optimizer` is called `name`, as in files."""
_PRESETS = """`--preset syn-medium --set n_queries=3`, or keys of `[classes]` beside `preset`; in a sweep a list is one
set of classes for each value. In Python: `ss.SequenceClasses.syn_medium(n_queries=3)`."""
_TRAINING = "Options of `scansnap text train` (`--epochs 1` without steps), keywords of `scansnap.text.training.train`."
_TEXT = """Options of `scansnap text train --model yz` or `--model transformer` (whose help says where its defaults
differ), and arguments of `YZSettings` and `TransformerSettings`."""


def reference() -> str:
    """The whole text."""
    parts: list[tuple[str, str, Iterable[SettingSpec]]] = [
        ("What may differ between runs", _RUNS, run_fields().values()),
        ("A simulation", _SETTINGS, settings_of(Settings).values()),
        ("The model", _MODEL, settings_of(ModelConfig).values()),
        ("The optimiser", _OPTIMIZER, settings_of(Optimizer).values()),
        ("Presets of classes", _PRESETS, ()),
        *((f"Preset {name}", (inspect.getdoc(make) or "").split("\n")[0], settings_of(make).values())
          for name, make in PRESETS.items()),
        ("A training on text", _TRAINING, settings_of(TrainingSettings).values()),
        ("A YZ model of text", _TEXT, settings_of(YZSettings).values()),
        ("A transformer", "As those of a YZ model.", settings_of(TransformerSettings).values()),
    ]  # fmt: skip
    return _HEAD + "".join(f"\n## {title}\n\n{text}\n{table(specs)}" for title, text, specs in parts)


def table(specs: Iterable[SettingSpec]) -> str:
    """The settings as a table in Markdown."""
    rows = "".join(f"| {' | '.join(_cells(spec))} |\n" for spec in specs)
    return f"\n| name | what it does | allowed | default |\n|---|---|---|---|\n{rows}" if rows else ""


def _cells(spec: SettingSpec) -> tuple[str, ...]:
    allowed, _, default = spec.summary.partition("; default: ")
    return tuple(
        cell.replace("|", "\\|") for cell in (f"`{spec.name}`", spec.help, allowed, default and f"`{default}`")
    )

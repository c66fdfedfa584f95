"""docs/settings.md: every declared setting in tables, as ``scansnap info --settings`` prints them."""

from __future__ import annotations

import inspect

from scansnap.classes import PRESETS
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.settings import Model, Settings
from scansnap.knobs import knobs_of, table
from scansnap.runs import run_fields
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.settings import YZSettings

_HEAD = """\
# Settings

Each setting is declared once, in the source; options, files, the page and this text follow. Made by
`scansnap info --settings > docs/settings.md`.
"""
_RUNS = """
## What may differ between runs

Options of `scansnap run` (`--eta-y 0.5,1 --seed 0:10`: the outer product), keys of `[run]` in run files and of `[grid]`
in sweeps, arguments of `ss.grid` and, one value each, of `ss.simulate`. Give either `eta_y` or `ratio`.

"""
_SETTINGS = """
## A simulation

Options of `scansnap run` (`--batch-size 64`), keys of `[run]` in run files and sweeps, arguments of `ss.simulate`.

"""
_MODEL = """
## The model

As those of a simulation; together they are an `ss.Model`.

"""
_OPTIMIZER = """
## The optimiser

By its name alone (`--optimizer adam`), or in files with constants, `optimizer = { name = "adam", beta2 = 0.99 }`, also
one for each table, `optimizer = { y = "adam", z = { name = "sgd", clip = 1.0 } }`. In Python likewise, or as an
`ss.Optimizer`, where the field `optimizer` is called `name`, as in files.

"""
_PRESETS = """
## Presets of classes

`--preset syn-medium --set n_queries=3`, or keys of `[classes]` beside `preset`; in a sweep a list is one set of classes
for each value. In Python: `ss.SequenceClasses.syn_medium(n_queries=3)`.
"""
_TEXT = """
## Models of text

Options of `scansnap text train --model yz` or `--model transformer` (whose help says where its defaults differ), and
arguments of `YZSettings` and `TransformerSettings`.
"""


def reference() -> str:
    """The whole text."""
    parts = [_HEAD, _RUNS, table(run_fields().values()), _SETTINGS, table(knobs_of(Settings).values()),
             _MODEL, table(knobs_of(Model).values()), _OPTIMIZER, table(knobs_of(Optimizer).values()),
             _PRESETS]  # fmt: skip
    for name, make in PRESETS.items():
        knobs = knobs_of(make)
        first = (inspect.getdoc(make) or "").split("\n")[0]
        parts.append(f"\n`{name}`: {first}\n" + (f"\n{table(knobs.values())}" if knobs else ""))
    parts.append(_TEXT)
    for title, place in (("YZ model", YZSettings), ("Transformer", TransformerSettings)):
        parts.append(f"\n{title}:\n\n{table(knobs_of(place).values())}")
    return "".join(parts)

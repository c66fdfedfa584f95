"""The declarations that the page's engine reads: settings, presets and limits, as JSON at build time.

The engine checks set-ups by this list (js/engine/setup/settings.js), so page and command line accept the same values.
"""

from __future__ import annotations

from typing import Any

import scansnap
from scansnap.claims.assumptions import check_assumptions
from scansnap.classes import PRESETS as CLASS_PRESETS
from scansnap.classes import SequenceClasses
from scansnap.dynamics.optimizers import Optimizer
from scansnap.explorer.controls import CONTROLS, Control, class_presets, class_settings
from scansnap.explorer.limits import LIMITS
from scansnap.explorer.presets import DEFAULT, PRESETS
from scansnap.explorer.setup import file_keys
from scansnap.settings import settings_of
from scansnap.theory.applicability import SMALLEST_RATE

_LIMITS = ("classes", "tokens", "text_characters", "frame_floats", "step_products")


def declared() -> dict[str, Any]:
    """All declarations, ready for JSON."""
    return {
        "version": scansnap.__version__,
        "limits": {name: LIMITS[name] for name in _LIMITS},
        "smallest_rate": SMALLEST_RATE,
        "controls": [setting(control) for control in CONTROLS],
        "optimizer": [setting(Control.of(spec)) for name, spec in settings_of(Optimizer).items()
                      if name != "optimizer"],
        "file_keys": file_keys(),
        "class_presets": [{**preset, "settings": [setting(spec) for spec in class_settings()[preset["name"]].values()]}
                          for preset in class_presets()],
        "tables": {name: table(make()) for name, make in CLASS_PRESETS.items() if not settings_of(make)},
        "presets": PRESETS,
        "default": DEFAULT,
        "assumptions": assumptions(),
    }  # fmt: skip


def setting(control: Control) -> dict[str, Any]:
    """A setting as the page shows it, with all its bounds: ``above`` and ``below`` are strict."""
    spec = control.spec
    return control.to_dict() | {"above": spec.above, "below": spec.below, "optional": spec.optional,
                                "inf": spec.allow_inf, "expected": spec.expected}  # fmt: skip


def table(classes: SequenceClasses) -> dict[str, Any]:
    """The classes of a preset without settings, as tables."""
    rows = [classes.support(n) for n in range(classes.n_classes)]
    return {"tokens": [tokens for tokens, _ in rows], "probs": [probs for _, probs in rows],
            "vocab_size": classes.vocab_size, "query": classes.query, "next_token": classes.next_token,
            "p_class": classes.p_class, "words": classes.words}  # fmt: skip


def assumptions() -> list[dict[str, str]]:
    """Names, statements, notes and weaker forms of the theorems' assumptions; the engine computes their values."""
    checked = check_assumptions(SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, t=1.0)
    return [{"name": a.name, "statement": a.statement, "note": a.note, "weaker": a.weaker} for a in checked]

"""What the data is: sequence classes, presets, and their form in TOML."""

from scansnap.classes.sequence_classes import PRESETS, SequenceClasses

__all__ = ["PRESETS", "SequenceClasses"]

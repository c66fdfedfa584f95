"""The measurements of a probe, in memory and optionally in a folder that is consistent at every moment."""

from scansnap.probe.store.measurements import Measurements, describe_run
from scansnap.probe.store.probe_file import open_measurements

__all__ = ["Measurements", "describe_run", "open_measurements"]

"""Measure the attention of all checkpoints in a folder."""

from scansnap.probe.checkpoints.measure import FolderMeasurement, measure_folder

__all__ = ["FolderMeasurement", "measure_folder"]

"""A folder of checkpoints of one training, measured in the order of their steps."""

from scansnap.probe.checkpoints.measure import Outcome, measure_folder

__all__ = ["Outcome", "measure_folder"]

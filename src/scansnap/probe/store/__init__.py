"""What a probe has measured: in memory, and on request in a Zarr folder that is whole at every moment."""

from scansnap.probe.store.attributes import described
from scansnap.probe.store.file import kept_in
from scansnap.probe.store.measurements import Measurements

__all__ = ["Measurements", "described", "kept_in"]

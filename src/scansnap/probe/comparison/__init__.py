"""Compare the heads of two runs that measured the same batch."""

from scansnap.probe.comparison.diff import describe, diff
from scansnap.probe.comparison.page import write_page

__all__ = ["describe", "diff", "write_page"]

"""Numbers read off trajectories; knows nothing of how they were made."""

from scansnap.measure.attention import distinct_entropy, effective_support, entropy, recall, top_mass
from scansnap.measure.distinctness import Distinctness, distinctness
from scansnap.measure.fates import fates, scan_order, scan_rank_correlation
from scansnap.measure.snap import log_odds, snap_time

__all__ = [
    "Distinctness", "distinct_entropy", "distinctness", "effective_support", "entropy", "fates", "log_odds", "recall",
    "scan_order", "scan_rank_correlation", "snap_time", "top_mass",
]  # fmt: skip

"""Numbers read off trajectories; knows nothing of how they were made."""

from scansnap.measure.attention import distinct_entropy, effective_support, entropy, recall, top_mass

__all__ = ["distinct_entropy", "effective_support", "entropy", "recall", "top_mass"]

"""Statistics of the attention of some queries, by sequence and head, with those of uniform attention.

``compute_sums`` computes them in blocks of queries: in torch (``plain``), with the compiled kernel of ``kernels.cpu``
for statistics that select keys, or with the Triton kernel of ``kernels.cuda``. All give the same numbers.
"""

from scansnap.probe.statistics.compute import AttentionSums, StatisticsPlan, compute_sums

__all__ = ["AttentionSums", "StatisticsPlan", "compute_sums"]

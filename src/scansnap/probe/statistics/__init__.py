"""What is in the attention of some queries, by sequence and head, beside what uniform attention would give.

``gather`` does it, a block of queries at a time: by torch (``plain``), with the compiled kernel of ``kernels.cpu`` for
what needs a selection of keys, or by the Triton kernel of ``kernels.cuda``. All three give the same numbers.
"""

from scansnap.probe.statistics.gathering import Gathered, Plan, gather

__all__ = ["Gathered", "Plan", "gather"]

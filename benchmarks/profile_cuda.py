"""Where the time of one Figure 6 panel goes on a CUDA device: python benchmarks/profile_cuda.py"""

from __future__ import annotations

import cProfile
import pstats

import torch
from torch.profiler import ProfilerActivity, profile

from scansnap.bench.fig6 import panel
from scansnap.paper.experiment import SYN_MEDIUM

if __name__ == "__main__":
    runs = SYN_MEDIUM.runs(SYN_MEDIUM.seeds)
    for n_queries in (1, 10):
        for _ in range(3):
            print(f"Syn-Medium({n_queries}): {panel(n_queries, runs, 'cuda'):.3f} s")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        panel(10, runs, "cuda")
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=16, max_name_column_width=60))
    python = cProfile.Profile()
    python.runcall(panel, 10, runs, "cuda")
    pstats.Stats(python).sort_stats("cumtime").print_stats(20)

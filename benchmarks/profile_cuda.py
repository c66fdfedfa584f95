"""Where the time of one Figure 6 panel goes on a CUDA device: python benchmarks/profile_cuda.py"""

from __future__ import annotations

import cProfile
import pstats

import torch
from torch.profiler import ProfilerActivity, profile

from scansnap.classes import SequenceClasses
from scansnap.cli.benchmark import train
from timing import timed

if __name__ == "__main__":
    for n_queries in (1, 10):
        classes = SequenceClasses.syn_medium(n_queries)
        for _ in range(3):
            print(f"Syn-Medium({n_queries}): {timed(train, classes, 0, 160, 'cuda').wall:.3f} s")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        train(classes, 0, 160, "cuda")
        torch.cuda.synchronize()
    print(profiled.key_averages().table(sort_by="self_cuda_time_total", row_limit=16, max_name_column_width=60))
    python = cProfile.Profile()
    python.runcall(train, classes, 0, 160, "cuda")
    pstats.Stats(python).sort_stats("cumtime").print_stats(20)

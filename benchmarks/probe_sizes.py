"""What a measurement of the probe costs in training steps, over sizes of GPT-2: ``python benchmarks/probe_sizes.py``.

A training step (AdamW) and a measurement in turn, in one process with one thread; processor time, medians of pairs.
The last column is the share of a run of 1,000 steps at the default schedule ``log:40``.
"""

from __future__ import annotations

import statistics
import time
import warnings

import torch
import transformers

from scansnap.probe.probe import Probe, schedule

STEPS, PAIRS = 1000, 7
SIZES = ((1, 32, 2, 8, 63), (2, 64, 4, 8, 127), (4, 128, 4, 8, 127), (4, 128, 4, 16, 255), (6, 256, 8, 8, 127))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    n = sum(map(schedule("log:40"), range(STEPS + 1)))
    print("layers | width | heads | batch × tokens | step, ms | measurement, ms | steps per measurement | share of run")
    for layers, width, heads, batch, tokens in SIZES:
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=1024, n_embd=width, n_layer=layers, n_head=heads, n_positions=tokens, bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
        model, ids = transformers.GPT2LMHeadModel(config), torch.randint(1024, (batch, tokens))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        probe = Probe(model, {"input_ids": ids, "labels": ids}, every=1)
        training, measuring = [], []
        for i in range(PAIRS + 1):
            start = time.process_time()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            middle = time.process_time()
            probe.measure(i)
            training.append(middle - start)
            measuring.append(time.process_time() - middle)
        step, one = (1000 * statistics.median(times[1:]) for times in (training, measuring))
        ratio = statistics.median(b / a for a, b in zip(training[1:], measuring[1:], strict=True))
        print(f"{layers} | {width} | {heads} | {batch} × {tokens} | {step:.0f} | {one:.0f} | {ratio:.2f} | "
              f"{n * ratio / STEPS:.1%}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

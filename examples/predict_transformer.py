"""Can a run with uniform attention predict a transformer's attention logits? One layer, the original parametrisation.

    python examples/predict_transformer.py --data wikitext-2 --max-words 1000 --steps 100 --rates 0.5 5

The script trains with uniform attention while W_Q, W_K and the embeddings follow the gradients they would get. It
compares the change of the content logits Z[m, l] = q_m·k_l/√d with that of an ordinary training on the same batches:
rank correlation, overlap of the ten largest, slope. It covers the 100 most frequent queries and the words that occur at
least 20 times before them. Further rows compare two parts of the prediction, the embeddings (Z of the trained
embeddings through the initial W_Q and W_K) and the rest (W_Q and W_K). The last row is a twin: the same training with a
rate larger by 1e-5. No prediction can be closer to a chaotic training than its twin is.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from scansnap.corpus.corpus import load_corpus
from scansnap.measure.ranks import overlap, rank_correlation, slope
from scansnap.text.prediction import count_before
from scansnap.text.training import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", default=None)
parser.add_argument("--device", default="cpu")
parser.add_argument("--max-words", type=int, default=1000)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 5.0])
parser.add_argument("--seeds", type=int, default=1)
args = parser.parse_args()

corpus = load_corpus(args.data, max_words=args.max_words or None)
special = [corpus.vocabulary.unk, corpus.vocabulary.eos]
queries = np.array([i for i in range(corpus.vocab_size) if i not in special][:100])
counts = count_before(corpus.train, queries, corpus.vocab_size, 35)
counts[:, special] = 0
steps = [step for step in (0, 10, 30, 100, 300, 1000, 3000) if step <= args.steps]


def logits(model: Transformer, first: dict[str, torch.Tensor] | None = None) -> np.ndarray:
    """Z of the queries, (Q, M); with ``first``, through the initial W_Q and W_K."""
    current = {name: tensor.clone() for name, tensor in model.tensors().items()}
    if first is not None:
        for name in ("layer0.w_qkv", "layer0.b_qkv"):
            model.tensors()[name].copy_(first[name])
    tables = model.to_yz()
    z = tables.queries[0][torch.as_tensor(queries, device=model.device)] @ tables.keys[0].mT
    for name, tensor in current.items() if first is not None else ():
        model.tensors()[name].copy_(tensor)
    return np.asarray(z.float().cpu().numpy())


def run(eta: float, seed: int, *, uniform_attention: bool) -> dict[int, dict[str, Any]]:
    """By step: the change of Z, and the part of the embeddings."""
    precision = "bf16" if args.device == "cuda" else "float32"
    settings = TransformerSettings(corpus.vocab_size, eta=eta, seed=seed, precision=precision)
    model = Transformer(settings, args.device, uniform_attention=uniform_attention)
    first, start = {name: tensor.clone() for name, tensor in model.tensors().items()}, logits(model)
    done = train(
        model, corpus.train, steps=steps[-1], shuffle=seed, snapshots=steps,
        measure=lambda model, step: {"all": logits(model) - start, "embeddings": logits(model, first) - start},
    )  # fmt: skip
    return {step: done.measured[step] for step in steps if step in done.measured}


print(f"{corpus.title}, {corpus.vocab_size} words; means over {len(queries)} queries and {args.seeds} seed(s)")
print(f"{'rate':>5s} {'step':>5s} {'part':14s} {'rank':>6s} {'of 10':>6s} {'slope':>6s}")
for eta in args.rates:
    rows: dict[tuple[int, str], list[list[float]]] = {}
    for seed in range(args.seeds):
        uniform, trained = (run(eta, seed, uniform_attention=uniform) for uniform in (True, False))
        twin = run(eta * (1 + 1e-5), seed, uniform_attention=False)
        for step in steps[1:]:
            z, learned = uniform[step], trained[step]
            for name, a, b in (("all", z["all"], learned["all"]), ("embeddings", z["embeddings"], learned["all"]),
                               ("W_Q and W_K", z["all"] - z["embeddings"], learned["all"] - learned["embeddings"]),
                               ("twin", twin[step]["all"], learned["all"])):  # fmt: skip
                x, y = (np.where((counts >= 20) & (a != 0), values, np.nan) for values in (a, b))
                numbers = rank_correlation(x, y), 10 * overlap(x, y, 10)[0], slope(x, y)
                rows.setdefault((step, name), []).append([float(np.nanmean(values)) for values in numbers])
    for (step, name), values in rows.items():
        rank, shared, rise = np.mean(values, axis=0)
        print(f"{eta:5g} {step:5d} {name:14s} {rank:+6.3f} {shared:6.2f} {rise:+6.3f}", flush=True)

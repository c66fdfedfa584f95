"""Does a transformer that never attends know what its attention would turn to? One layer, the original parametrisation.

    python examples/predict_transformer.py --data wikitext-2 --max-words 1000 --steps 100 --rates 0.5 5

Attention is kept uniform while W_Q and W_K (and the embeddings) move by the gradients they hear. Compared with an
ordinary training on the same batches is the change of the content logits Z[m, l] = q_m·k_l/√d of the 100 most frequent
queries, over words that stand at least 20 times before them: rank correlation, the ten largest, slope. Beside it two
parts of it: that of the embeddings (Z of the moved embeddings through the first W_Q and W_K, which needs no listening),
and the rest, that of W_Q and W_K, against the same rest of the training. And a twin: the same training with a rate
larger by 1e-5. What a twin does not share is chaos, and nothing could predict it.
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
given = parser.parse_args()

corpus = load_corpus(given.data, max_words=given.max_words or None)
marks = [corpus.vocabulary.unk, corpus.vocabulary.eos]
queries = np.array([i for i in range(corpus.vocab_size) if i not in marks][:100])
counts = count_before(corpus.train, queries, corpus.vocab_size, 35)
counts[:, marks] = 0
steps = [step for step in (0, 10, 30, 100, 300, 1000, 3000) if step <= given.steps]


def logits(model: Transformer, first: dict[str, torch.Tensor] | None = None) -> np.ndarray:
    """Z of the queries, (Q, M); with ``first``, through the W_Q and W_K of the start."""
    now = {name: tensor.clone() for name, tensor in model.tensors().items()}
    if first is not None:
        for name in ("layer0.w_qkv", "layer0.b_qkv"):
            model.tensors()[name].copy_(first[name])
    tables = model.to_yz()
    z = tables.queries[0][torch.as_tensor(queries, device=model.device)] @ tables.keys[0].mT
    for name, tensor in now.items() if first is not None else ():
        model.tensors()[name].copy_(tensor)
    return np.asarray(z.float().cpu().numpy())


def run(eta: float, seed: int, *, listening: bool) -> dict[int, dict[str, Any]]:
    """By step: the change of Z, and that of the embeddings alone."""
    precision = "bf16" if given.device == "cuda" else "float32"
    settings = TransformerSettings(corpus.vocab_size, eta=eta, seed=seed, precision=precision)
    model = Transformer(settings, given.device, uniform_attention=listening)
    first, start = {name: tensor.clone() for name, tensor in model.tensors().items()}, logits(model)
    done = train(
        model, corpus.train, steps=steps[-1], shuffle=seed, snapshots=steps,
        measure=lambda now, step: {"all": logits(now) - start, "embeddings": logits(now, first) - start},
    )  # fmt: skip
    return {step: done.measured[step] for step in steps if step in done.measured}


print(f"{corpus.title}, {corpus.vocab_size} words; means over {len(queries)} queries and {given.seeds} seed(s)")
print(f"{'rate':>5s} {'step':>5s} {'predicted by':14s} {'rank':>6s} {'of 10':>6s} {'slope':>6s}")
for eta in given.rates:
    rows: dict[tuple[int, str], list[list[float]]] = {}
    for seed in range(given.seeds):
        heard, learned = (run(eta, seed, uniform_attention=listening) for listening in (True, False))
        twin = run(eta * (1 + 1e-5), seed, listening=False)
        for step in steps[1:]:
            z, own = heard[step], learned[step]
            for name, a, b in (("listening", z["all"], own["all"]), ("embeddings", z["embeddings"], own["all"]),
                               ("W_Q and W_K", z["all"] - z["embeddings"], own["all"] - own["embeddings"]),
                               ("twin", twin[step]["all"], own["all"])):  # fmt: skip
                x, y = (np.where((counts >= 20) & (a != 0), values, np.nan) for values in (a, b))
                found = rank_correlation(x, y), 10 * overlap(x, y, 10)[0], slope(x, y)
                rows.setdefault((step, name), []).append([float(np.nanmean(values)) for values in found])
    for (step, name), values in rows.items():
        rank, named, rise = np.mean(values, axis=0)
        print(f"{eta:5g} {step:5d} {name:14s} {rank:+6.3f} {named:6.2f} {rise:+6.3f}", flush=True)

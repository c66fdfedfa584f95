"""Trainings that are made once by one process and once divided, in float64, and the processes that divide them.

Run as a program by two processes (RANK, WORLD_SIZE and so on in the environment): rank 0 puts what came out into the
folder it is given.
"""

import os
import pickle
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import small_text
import torch
from small_text import M, stream

from scansnap.checks import InputError
from scansnap.text.parallel.group import joined
from scansnap.text.parallel.replicas import Parted, compare
from scansnap.text.train import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

COMMON = {"steps": 12, "batch": 5, "length": 7, "shuffle": 1}  # five windows for two processes: two and three


def transformer(**options):
    given = {"width": 8, "feed_forward": 8, "eta": 1.0, "dropout": 0.2, "clip": 0.5, "dtype": "float64"}
    return Transformer(TransformerSettings(M, **(given | options)))


def yz(**options):
    return YZTransformer(YZSettings(M, **({"eta_y": 20.0, "eta_z": 2.0, "dtype": "float64"} | options)))


ADAM = {"optimizer": "adam", "eta_y": 0.05, "eta_z": 0.01, "init": "uniform"}
MODELS = {
    "transformer": transformer,
    "transformer, adam, tied, 2 layers": lambda: transformer(optimizer="adam", eta=0.01, layers=2, tied=True),
    "transformer, masked": lambda: transformer(objective="masked", positions="learned"),
    "yz": lambda: yz(residual="normed"),
    "yz, momentum": lambda: yz(optimizer="momentum"),
    "yz, adam": lambda: yz(**ADAM),
    "yz, rank 3, adam": lambda: yz(rank=3, **ADAM),
    "yz, 2 layers": lambda: yz(layers=2, init="uniform", residual="normed", weight_decay=0.01),
}


def made(kind, **options):
    """Losses and weights of a training, and what it was told by the others."""
    model = MODELS[kind]() if kind in MODELS else YZTransformer(YZSettings(400, dtype="float64"))
    done = train(model, stream(), **(COMMON | options))
    return {"losses": done.losses, "tensors": {name: t.clone() for name, t in model.tensors().items()},
            "received": done.received, "tokens": done.tokens}  # fmt: skip


def apart(rank):
    """A model, in the second process with one bit of another."""
    model = yz(**ADAM)
    if rank:
        last = model.tensors()["layer0.z"][-1, -1:]
        last.copy_(torch.nextafter(last, last + 1))
    return model


def start(words, n=2, there=None, **environment):
    """Processes of one group, as torchrun starts them; ``there``: only those."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = os.pathsep.join([os.path.dirname(small_text.__file__), os.environ.get("PYTHONPATH", "")])
    common = os.environ | {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                           "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}  # fmt: skip
    return [
        subprocess.Popen(
            [sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | environment,
        )
        for rank in (range(n) if there is None else there)
    ]  # fmt: skip


def main(folder):
    torch.set_num_threads(1)
    with joined() as group:
        found = {kind: made(kind, group=group) for kind in MODELS}
        found |= {f"{kind}, in parts": made(kind, group=group, batch=2, accumulate=3) for kind in MODELS}
        found["yz, 400 words"] = made("yz, 400 words", group=group)
        found["refused"] = {}
        for what, call in (("other seeds", partial(train, yz(seed=group.rank), stream(), group=group, **COMMON)),
                           ("other weights", partial(compare, apart(group.rank), group))):  # fmt: skip
            try:
                call()
            except (InputError, Parted) as error:
                found["refused"][what] = f"{type(error).__name__}: {error}"
        if group.first:
            (Path(folder) / "found.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

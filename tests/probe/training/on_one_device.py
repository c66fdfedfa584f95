"""Trainings on a device under deterministic algorithms, with and without the probe; prints what differs, as JSON.

A program of its own, since cuBLAS must be told of its workspace before CUDA starts.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from tiny_models import MODELS, differing, naive, probing, trained
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from scansnap.probe.probe import Probe

Kernels = Callable[[], AbstractContextManager[Any]]
Case = tuple[str, Kernels, dict[str, Any], bool]  # model, what computes attention, options, whether it has a control


def compiled(**options: Any) -> Callable[[nn.Module], Any]:
    return lambda model: torch.compile(model, **options)


def only(backend: SDPBackend) -> Kernels:
    """Nothing else: where it cannot run, the training fails."""
    return lambda: sdpa_kernel(backend)


def cases() -> dict[str, Case]:
    """CUDA graphs are recorded on the second call and replayed from the third."""
    bf16 = {"autocast": True}
    found: dict[str, Case] = {f"{name}, float32": (name, nullcontext, {}, True) for name in MODELS}
    for name in ("plain", "gpt2", "llama"):
        so = bf16 | {"looked_at_so": True}  # it has no float32
        found[f"{name}, bf16, flash"] = name, only(SDPBackend.FLASH_ATTENTION), so, True
    for name in ("plain", "gpt2"):  # it has no groups of heads that share keys
        found[f"{name}, bf16, efficient"] = name, only(SDPBackend.EFFICIENT_ATTENTION), bf16, True
    for name in ("gpt2", "llama", "plain"):  # torch's encoder asks the device whether its mask is causal
        found[f"{name}, replayed"] = name, nullcontext, bf16 | {"graph": True, "steps": 6}, True
    found["plain, compiled"] = "plain", nullcontext, bf16 | {"wrap": compiled()}, False
    for name in ("plain", "gpt2"):
        graphs = bf16 | {"wrap": compiled(mode="reduce-overhead"), "steps": 6}
        found[f"{name}, CUDA graphs"] = name, nullcontext, graphs, False
    return found


def outcome(name: str, kernels: Kernels, options: dict[str, Any], control: bool) -> dict[str, Any]:
    """What differs from the training without a look, of that with the probe and that with a naive look; a compiled
    one is done once more without, since its kernels are chosen by trying."""
    probes: list[Probe] = []
    graph = options.pop("graph", False)

    def again(start: Any) -> dict[str, torch.Tensor]:
        torch._dynamo.reset()
        with kernels():
            return trained(MODELS[name], start, **options)

    plain = again(None)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = {"probed": differing(plain, again(probing(probes, graph)))}
    data = probes[0].dataset()
    found["warned"] = [str(one.message) for one in said if "the probe" in str(one.message)]
    found["again" if not control else "control"] = differing(plain, again(naive if control else None))
    return found | {"steps": data.step.values.tolist(), "layers": len(data.layer), "tensors": len(plain)}


def main(device: str, chosen: list[str]) -> None:
    torch.use_deterministic_algorithms(True)
    found = {}
    for tf32 in (False, True):
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        for name, (model, kernels, options, control) in cases().items():
            if (not tf32 or name.endswith("float32")) and (not chosen or name in chosen):
                key = name.replace("float32", "TF32") if tf32 else name
                try:
                    found[key] = outcome(model, kernels, options | {"device": device}, control)
                except Exception as error:
                    found[key] = {"error": f"{type(error).__name__}: {error}"}
                print(key, file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

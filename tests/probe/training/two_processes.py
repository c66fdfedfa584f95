"""What each of two processes does: the same trainings without a look and with several kinds of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tiny_models import IDS, AttentionCollector, Block, Plain, gpt2, naive, trained
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

from scansnap.probe.probe import Probe


def replicated(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def in_shards(**options: Any) -> Callable[[nn.Module], nn.Module]:
    def wrap(model: nn.Module) -> nn.Module:
        for module in model.modules():
            if isinstance(module, Block):
                fully_shard(module, **options)
        return fully_shard(model, **options)

    return wrap


def in_older_shards(model: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), use_orig_params=True
    )


def fails(model: nn.Module, batch: dict[str, Tensor]) -> None:
    """In the middle of the pass, on all ranks."""
    proj = next(module for name, module in model.named_modules() if name.endswith("proj") and "1" in name)
    handle = proj.register_forward_pre_hook(lambda module, args: 1 / 0)
    try:
        model(**batch)
    finally:
        handle.remove()


def looking(probes: list[Probe], rank: int | None = None, bare: bool = False, **options: Any) -> Any:
    """With a probe: on all ranks or one, given the wrapped model or what is inside."""

    def start(model: nn.Module) -> AttentionCollector:
        own = model.module if bare else model
        probes.append(Probe(own, {"input_ids": IDS}, every=1, **options))

        def look(model: nn.Module, step: int) -> None:
            if rank is None or rank == dist.get_rank():
                probes[-1].step(step, loss=float(step))

        return look

    return start


def before_the_update(model: nn.Module) -> AttentionCollector:
    """Looks only there."""
    probe = Probe(model, {"input_ids": IDS}, every=1)
    return lambda model, step: probe.step(step) if step >= 100 else None


def all_cases(folder: str) -> dict[str, tuple[list[Probe], dict[str, Tensor]]]:
    found: dict[str, tuple[list[Probe], dict[str, Tensor]]] = {}

    def case(name: str, start: Any, probes: list[Probe], **options: Any) -> None:
        seed = dist.get_rank() if options["wrap"] is replicated else 0
        found[name] = probes, trained(Plain, start, seed=seed, **options)

    def both(name: str, **options: Any) -> None:
        case(f"{name}: none", None, [], **options)
        probes: list[Probe] = []
        out = Path(folder) / f"{name}.zarr"  # of the first process alone
        case(f"{name}: all ranks", looking(probes, out=out), probes, **options)
        case(f"{name}: naive", naive, [], **options)

    both("ddp", wrap=replicated)
    one: list[Probe] = []
    case("ddp: rank 0", looking(one, rank=0), one, wrap=replicated)
    inside: list[Probe] = []
    case("ddp: inside", looking(inside, bare=True), inside, wrap=replicated)
    both("fsdp", wrap=in_shards())
    both("fsdp, gathered", wrap=in_shards(reshard_after_forward=False), accumulate=2, steps=2)
    both("fsdp, bf16", wrap=in_shards(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)))
    both("fsdp 1", wrap=in_older_shards)
    for name, wrap in (("fsdp", in_shards()), ("fsdp 1", in_older_shards)):
        failing: list[Probe] = []
        case(f"{name}: failing", looking(failing, forward=fails), failing, wrap=wrap)
        case(f"{name}: before the update", before_the_update, [], wrap=wrap, before_update=True)
    return found


def stop(rank: int, folder: str) -> None:
    """Train with transformers' Trainer until an alert of the first process stops it, and without stopping."""
    from transformers import Trainer, TrainingArguments

    from scansnap.probe.hf import ProbeCallback

    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", OMP_NUM_THREADS="1"
    )
    where = f"file://{Path(folder).as_posix()}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=timedelta(minutes=10))
    steps = []
    for stops in (True, False):
        model, data = gpt2(), [{"input_ids": row, "labels": row} for row in torch.zeros(32, 8, dtype=torch.long)]
        probe = Probe(model, {"input_ids": IDS}, every=2, alerts=[lambda history: len(history) == 2])
        args = TrainingArguments(
            folder, max_steps=6, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no",
            disable_tqdm=True, dataloader_pin_memory=False, ddp_backend="gloo",
        )  # fmt: skip
        callback = ProbeCallback(probe, stop_training=stops)
        trainer = Trainer(model, args, train_dataset=data, callbacks=[callback])
        trainer.train()
        weight = next(model.parameters()).detach().clone()
        steps.append((trainer.args.world_size, trainer.state.global_step, len(probe.fired_alerts), weight))
    torch.save(steps, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def plain(value: Any) -> Any:
    """Of a shard what is here."""
    return value.to_local() if hasattr(value, "to_local") else value


def run(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    where = f"file://{Path(folder).as_posix()}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=timedelta(minutes=5))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = all_cases(folder)
    record = {
        name: ({key: plain(value) for key, value in state.items()}, [p.dataset().step.values.tolist() for p in probes])
        for name, (probes, state) in found.items()
    }
    torch.save((record, [str(one.message) for one in said]), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()

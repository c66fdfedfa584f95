"""Probe models that several processes train.

A model that every process holds whole (DDP) is measured by the first process alone, without communication. A model
whose weights are sharded (FSDP, tensor parallel) runs on all processes; the first one keeps the measurement.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model inside DDP, which would communicate, and ``torch.compile``, which changes module paths."""
    while True:
        compiled = getattr(model, "_orig_mod", None)
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(compiled, nn.Module):
            model = compiled
        else:
            return model


def is_sharded(model: nn.Module) -> bool:
    """Whether no process has the whole model."""
    return is_distributed() and (any(_fsdp_modules(model)) or any(map(_is_shard, model.parameters())))


def is_distributed() -> bool:
    """Whether this process is one of several."""
    return dist.is_available() and dist.is_initialized()


def is_main_process() -> bool:
    """Whether this process keeps and writes the measurements."""
    return not is_distributed() or dist.get_rank() == 0


def broadcast_decision(decision: bool) -> bool:
    """The decision of the first process, which alone knows the file that is resumed."""
    values = [decision]
    dist.broadcast_object_list(values, src=0)
    return values[0]


@contextmanager
def reshard_after(model: nn.Module) -> Iterator[None]:
    """Reshard the weights that a pass gathers; otherwise the next pass would reuse them after an update.

    After a failed pass, reset FSDP's state to the beginning of a pass.
    """
    modules = list(_fsdp_modules(model))
    try:
        yield
    except BaseException:
        for module in modules:
            _reset_pass(module)
        raise
    finally:
        for module in modules:
            _reshard(module)


def _reshard(module: Any) -> None:
    from torch.distributed.fsdp import FSDPModule, _runtime_utils

    if isinstance(module, FSDPModule):
        module.reshard()
    elif module._handle is not None and module._is_root is not None:  # FSDP1, after its first pass
        _runtime_utils._reshard(module, module._handle, True)


def _is_shard(tensor: nn.Parameter) -> bool:
    """Shards of torch, or of DeepSpeed, which gathers them by hooks."""
    return type(tensor).__name__ == "DTensor" or hasattr(tensor, "ds_id")


def _fsdp_modules(model: nn.Module) -> Iterator[nn.Module]:
    if not is_distributed() or "torch.distributed.fsdp" not in sys.modules:
        return
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    yield from (module for module in model.modules() if isinstance(module, FSDPModule | FullyShardedDataParallel))


def _reset_pass(module: Any) -> None:
    from torch.distributed.fsdp import FSDPModule, _common_utils
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

    if isinstance(module, FSDPModule):
        state: Any = module._get_fsdp_state()
        state._state_ctx.iter_forward_root = None
        getattr(state, "_modules_to_run_forward", set()).clear()
        for part in (state, *(getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group])):
            if part is not None:
                part._training_state = TrainingState.IDLE
    else:
        module.training_state = _common_utils.TrainingState.IDLE
        if module._handle is not None:
            module._handle._training_state = _common_utils.HandleTrainingState.IDLE

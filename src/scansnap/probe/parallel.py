"""Models trained by several processes: which of them looks, which one keeps what was seen, and shards put back.

A model that every process has whole is looked at by the first process alone: nothing is said to the others. One whose
weights are in shards (FSDP, tensors parallel) can only run everywhere at once, so all take part and the first keeps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn


def bare(model: nn.Module) -> nn.Module:
    """The model inside what wraps it whole: DDP would speak to other processes, compile would change the paths."""
    while True:
        compiled = getattr(model, "_orig_mod", None)
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(compiled, nn.Module):
            model = compiled
        else:
            return model


def sharded(model: nn.Module) -> bool:
    """Whether no process has the whole model."""
    return running() and (any(_fsdp(model)) or any(map(_piece, model.parameters())))


def running() -> bool:
    """Whether this process is one of several."""
    return dist.is_available() and dist.is_initialized()


def first_process() -> bool:
    """Whether this is the process that keeps and writes."""
    return not running() or dist.get_rank() == 0


def agreed(wanted: bool) -> bool:
    """What the first process wants: all must do the same, and a resumed record is known to the first alone."""
    said = [wanted]
    dist.broadcast_object_list(said, src=0)
    return said[0]


@contextmanager
def kept_in_shards(model: nn.Module) -> Iterator[None]:
    """Weights gathered inside are given up again: the next pass would take them for new, after an update too.

    A pass that failed leaves FSDP in the middle of it; the states are set to where a pass begins.
    """
    modules = list(_fsdp(model))
    try:
        yield
    except BaseException:
        for module in modules:
            _forget_pass(module)
        raise
    finally:
        for module in modules:
            _reshard(module)


def _reshard(module: Any) -> None:
    from torch.distributed.fsdp import FSDPModule, _runtime_utils

    if isinstance(module, FSDPModule):
        module.reshard()
    elif module._handle is not None and module._is_root is not None:  # of the older kind, and it has run before
        _runtime_utils._reshard(module, module._handle, True)


def _piece(tensor: nn.Parameter) -> bool:
    """Torch's shards, or DeepSpeed's, which are gathered by hooks."""
    return type(tensor).__name__ == "DTensor" or hasattr(tensor, "ds_id")


def _fsdp(model: nn.Module) -> Iterator[nn.Module]:
    if not running() or "torch.distributed.fsdp" not in sys.modules:
        return
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    yield from (module for module in model.modules() if isinstance(module, FSDPModule | FullyShardedDataParallel))


def _forget_pass(module: Any) -> None:
    from torch.distributed.fsdp import FSDPModule, _common_utils
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

    if isinstance(module, FSDPModule):
        state: Any = module._get_fsdp_state()
        state._state_ctx.iter_forward_root = None
        getattr(state, "_modules_to_run_forward", set()).clear()
        for one in (state, *(getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group])):
            if one is not None:
                one._training_state = TrainingState.IDLE
    else:
        module.training_state = _common_utils.TrainingState.IDLE
        if module._handle is not None:
            module._handle._training_state = _common_utils.HandleTrainingState.IDLE

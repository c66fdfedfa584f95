"""Updates of a transformer from equal parts of a batch, in several processes or in turn (accumulated gradients).

``torchrun`` starts the processes and sets these variables:

    RANK, WORLD_SIZE, LOCAL_RANK      number of this process, of how many, and its number on its machine
    MASTER_ADDR, MASTER_PORT          where the processes meet

Torch's DistributedDataParallel averages the gradients, with NCCL on CUDA and Gloo on a CPU. Dropout and masks are drawn
for each part, so they depend on the division of the batch; without them the losses do not.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scansnap.checks import InputError, check_integer, digits
from scansnap.processes import is_out_of_memory
from scansnap.text.model import LanguageModel
from scansnap.text.transformer.model import Transformer

TIMEOUT = 1800.0  # seconds to wait for the other processes: longer than a validation by the first


class PeerLost(OSError):
    """Another process of the training has ended, or cannot be reached."""


class World:
    """The processes of a training; `join` creates it."""

    def __init__(self, rank: int, size: int, local_rank: int) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.lost: PeerLost | None = None

    @property
    def is_main(self) -> bool:
        """Whether this process measures, prints and writes."""
        return self.rank == 0

    def device(self, kind: str) -> torch.device:
        """The device of this process."""
        if kind != "cuda":
            return torch.device(kind)
        n_devices = torch.cuda.device_count()
        if self.local_rank >= n_devices:
            raise InputError("LOCAL_RANK", self.local_rank, f"an integer below {n_devices}, the number of CUDA devices")
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def any_stopped(self, stopped: bool) -> bool:
        """Whether any process was asked to stop; the answer is the same in all."""
        flag = torch.tensor([stopped], dtype=torch.int32)
        with self.communication():
            dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def wait(self) -> None:
        """Until all processes have come here."""
        with self.communication():
            dist.barrier()

    @contextmanager
    def communication(self) -> Iterator[None]:
        """Turns torch's error about a lost process into `PeerLost`."""
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).split(". ")[0].rpartition("] ")[2][:200]
            self.lost = PeerLost(f"one of the {self.size} processes has ended or does not answer ({reason}).")
            raise self.lost from error

    def is_first_to_report(self) -> bool:
        """Whether no other process has reported an error before."""
        try:
            return dist.distributed_c10d._get_default_store().add("scansnap/report", 1) == 1
        except RuntimeError:  # the store is gone with its process
            return True


def join(timeout: float = TIMEOUT) -> World | None:
    """The processes that the environment names, once all have joined; None for a single process."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    size = _from_environment("WORLD_SIZE", least=1)
    rank = _from_environment("RANK", most=size - 1)
    if size == 1:
        return None
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise InputError(name, None, "a value wherever RANK has one, as torchrun sets it")
    if not dist.is_available():
        raise InputError("WORLD_SIZE", size, "1", "this torch has no torch.distributed")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = str(error)[:200].rstrip(".")
        raise PeerLost(f"the {size} processes could not connect at {where} ({reason}).") from error
    return World(rank, size, _from_environment("LOCAL_RANK") if "LOCAL_RANK" in os.environ else rank)


def _from_environment(name: str, least: int = 0, most: int | None = None) -> int:
    text = os.environ[name]
    number = digits(text)
    return check_integer(name, text if number is None else number, least=least, most=most)


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[World | None]:
    """`join` for a program: one process reports an error, and the others end silently."""
    world = join(timeout)
    if world is None:
        yield None
        return
    try:
        yield world
        world.wait()  # a process that leaves while another still works may be aborted by torch
    except BaseException as error:
        for number in (signal.SIGINT, signal.SIGTERM):  # torchrun signals the other processes when one has failed
            with suppress(ValueError):
                signal.signal(number, signal.SIG_IGN)
        cause = error if world.lost is None or isinstance(error, PeerLost) else world.lost
        if world.lost is not None and torch.cuda.is_initialized():
            with suppress(Exception):  # else the process waits for a sum that never comes
                dist.distributed_c10d._abort_process_group()
        if isinstance(cause, KeyboardInterrupt | SystemExit):
            raise
        if not world.is_first_to_report():
            raise SystemExit(2 if isinstance(cause, InputError) else 1) from None
        if cause is not error:
            raise cause from None
        raise
    else:
        dist.destroy_process_group()


def check_divisible(is_transformer: bool, batch: int, accumulate: int, world: World | None) -> None:
    """Refuse a division of batches that the model or the number of processes does not allow."""
    size = 1 if world is None else world.size
    if size > 1 and not is_transformer:
        raise InputError("WORLD_SIZE", size, "1 for a YZ model", "only a transformer trains with several processes")
    if accumulate > 1 and not is_transformer:
        raise InputError("accumulate", accumulate, "1 for a YZ model", "a larger batch has the same effect")
    if batch % size:
        raise InputError("batch", batch, f"a multiple of {size}, the number of processes")


class DividedUpdate:
    """Updates of a transformer from batches in ``accumulate`` parts in each process."""

    def __init__(self, model: LanguageModel, accumulate: int, world: World | None) -> None:
        assert isinstance(model, Transformer)
        self.model, self.accumulate, self.world = model, accumulate, world
        self.module: torch.nn.Module = _LossModule(model)
        self.parameters = dict(self.module.named_parameters())
        if world is not None:
            from torch.nn.parallel import DistributedDataParallel

            with world.communication():
                self.module = DistributedDataParallel(self.module)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update on a batch that every process has whole; the mean loss before it."""
        rank, size = (0, 1) if self.world is None else (self.world.rank, self.world.size)
        windows, first = len(inputs) // (size * self.accumulate), rank * self.accumulate
        with nullcontext() if self.world is None else self.world.communication():
            self.model.begin_step()
            losses = []
            for part in range(first, first + self.accumulate):
                rows = slice(part * windows, (part + 1) * windows)
                self.model.seed_draws(part)
                is_last = part == first + self.accumulate - 1
                with nullcontext() if is_last or self.world is None else self.module.no_sync():  # type: ignore[operator]
                    loss = self.module(inputs[rows], targets[rows])
                    loss.backward()
                losses.append(loss.detach().double())
            mean = torch.stack(losses).mean()
            if self.world is not None:
                dist.all_reduce(mean)
        gradients = {name: p.grad / self.accumulate for name, p in self.parameters.items() if p.grad is not None}
        self.model.apply_gradients(gradients)
        self.module.zero_grad()
        return mean / size


class _LossModule(torch.nn.Module):
    """The mean loss of a transformer on a batch, as a module whose parameters share memory with the model's weights."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        for name, weight in model.trained.items():
            self.register_parameter(name, torch.nn.Parameter(weight))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = _Loss.apply(self.model, inputs, targets, *self.parameters())
        return loss


class _Loss(torch.autograd.Function):
    """Its gradients are the model's own, computed with the loss."""

    @staticmethod
    def forward(ctx: Any, model: Transformer, inputs: Tensor, targets: Tensor, *parameters: Tensor) -> Tensor:
        loss, gradients = model.gradients(inputs, targets)
        ctx.save_for_backward(*(gradients[name].to(model.trained[name].dtype) for name in model.trained))
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *(outer[0] * gradient for gradient in ctx.saved_tensors)

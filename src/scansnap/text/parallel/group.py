"""The processes of one training, as ``torchrun`` starts them: who there is, what they tell each other, how they end.

    RANK, WORLD_SIZE, LOCAL_RANK      which process this is, of how many, and which of its machine
    MASTER_ADDR, MASTER_PORT          where they find each other

Tensors on CUDA go through NCCL, those on a CPU and all that steers (whether anybody was asked to stop) through Gloo, so
that nobody waits for a device to hear of a Ctrl-C, and a process that died is noticed while NCCL would still wait.

All that fails here is one sentence of one process: the first to claim the word in the store they share.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scansnap.checks import InputError, digits, whole
from scansnap.processes import is_out_of_memory

PATIENCE = 1800.0  # seconds without a word from the others: longer than a validation, which they wait for


class PeerLost(OSError):
    """Another process of the group has ended, or cannot be reached."""


class Group:
    """The processes of a training, seen from one of them; made by :func:`join`."""

    def __init__(self, rank: int, size: int, local_rank: int) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.received = 0  # bytes from others, by the usual algorithms: a ring for sums
        self.lost: PeerLost | None = None
        self._word: tuple[Any, Tensor] | None = None  # what was asked last, still on its way

    @property
    def first(self) -> bool:
        """Whether this is the one that measures, prints and writes."""
        return self.rank == 0

    def device(self, kind: str) -> torch.device:
        """Of this process."""
        if kind != "cuda":
            return torch.device(kind)
        there = torch.cuda.device_count()
        if self.local_rank >= there:
            raise InputError("LOCAL_RANK", self.local_rank, f"below {there}, the number of CUDA devices here")
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def stops(self, asked: bool) -> bool:
        """Whether anybody was asked to stop by the time of the call before this one: all hear the same at the same
        call, and none waits for the answer to its own."""
        with self._talking():
            word = torch.tensor([asked], dtype=torch.int32)
            before, self._word = self._word, (dist.all_reduce(word, dist.ReduceOp.MAX, async_op=True), word)
            return self._heard(before)

    def stopped(self) -> bool:
        """What was asked in the last call of :meth:`stops`."""
        with self._talking():
            before, self._word = self._word, None
            return self._heard(before)

    @staticmethod
    def _heard(before: tuple[Any, Tensor] | None) -> bool:
        if before is None:
            return False
        before[0].wait()
        return bool(before[1])

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Over all processes, in place."""
        with self._talking():
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                work.wait()
        self.received += sum(2 * t.nbytes for t in tensors) * (self.size - 1) // self.size

    def gather(self, mine: Tensor, lengths: Sequence[int]) -> Tensor:
        """Rows of all processes one below the other; ``lengths`` are how many each has."""
        padded = mine.contiguous()
        if len(mine) < max(lengths):
            padded = mine.new_zeros(max(lengths), *mine.shape[1:])
            padded[: len(mine)] = mine
        found = mine.new_empty(self.size, *padded.shape)
        with self._talking():
            dist.all_gather(list(found.unbind(0)), padded)
        self.received += padded.nbytes * (self.size - 1)
        return torch.cat([rows[:n] for rows, n in zip(found.unbind(0), lengths, strict=True)])

    def numbers(self, mine: Sequence[int]) -> list[list[int]]:
        """A few whole numbers of each process."""
        found = torch.empty(self.size, len(mine), dtype=torch.int64)
        with self._talking():
            dist.all_gather(list(found.unbind(0)), torch.tensor(mine, dtype=torch.int64))
        return [row.tolist() for row in found]

    def copy(self, tensors: Sequence[Tensor]) -> None:
        """Those of the first process to all others, in place."""
        with self._talking():
            for tensor in tensors:
                whole_one = tensor.detach().contiguous()
                dist.broadcast(whole_one, 0)
                if whole_one.data_ptr() != tensor.data_ptr():
                    tensor.detach().copy_(whole_one)

    def told(self, value: Any) -> Any:
        """What the first process has, on all."""
        one = [value]
        with self._talking():
            dist.broadcast_object_list(one, 0, device=torch.device("cpu"))
        return one[0]

    def agree(self, what: str, value: str) -> None:
        """Refuse what is not the same in all processes."""
        mine = int.from_bytes(sha256(value.encode()).digest()[:7], "big")
        apart = [rank for rank, (theirs,) in enumerate(self.numbers([mine])) if theirs != mine]
        if apart:
            must = "the same in all processes: model, text and settings"
            raise InputError(what, f"another in process {apart[0]} than in {self.rank}", must)

    def claims_the_word(self) -> bool:
        """Whether this process is the first to have something to say before it ends."""
        try:
            return dist.distributed_c10d._get_default_store().add("scansnap/word", 1) == 1
        except RuntimeError:  # the store is gone with its process
            return True

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            said = str(error).split(". ")[0].rpartition("] ")[2][:200]
            self.lost = PeerLost(f"another of the {self.size} processes has ended or does not answer ({said}).")
            raise self.lost from error


def join(patience: float = PATIENCE) -> Group | None:
    """The group that the environment names, once all are there; None where it names none."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    size = _whole("WORLD_SIZE", least=1)
    rank = _whole("RANK", most=size - 1)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise InputError(name, None, "set where RANK is, as torchrun does")
    if not dist.is_available():
        raise InputError("WORLD_SIZE", size, "left out: this torch has no torch.distributed")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=patience))
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise PeerLost(
            f"the {size} processes did not find each other at {where} ({str(error)[:200].rstrip('.')})."
        ) from error
    return Group(rank, size, _whole("LOCAL_RANK") if "LOCAL_RANK" in os.environ else rank)


def _whole(name: str, least: int = 0, most: int | None = None) -> int:
    text = os.environ[name]
    number = digits(text)
    return whole(name, text if number is None else number, least=least, most=most)


@contextmanager
def joined(patience: float = PATIENCE) -> Iterator[Group | None]:
    """The group for a program: whatever goes wrong inside is told by one process, the others end without a word."""
    group = join(patience)
    if group is None:
        yield None
        return
    try:
        yield group
    except BaseException as error:
        for number in (signal.SIGINT, signal.SIGTERM):  # torchrun ends the others of one that failed: they do so now
            with suppress(ValueError):
                signal.signal(number, signal.SIG_IGN)
        cause = error if group.lost is None or isinstance(error, PeerLost) else group.lost
        if group.lost is not None and torch.cuda.is_initialized():
            with suppress(Exception):  # or the process would wait for a sum that never comes
                dist.distributed_c10d._abort_process_group()
        if isinstance(cause, KeyboardInterrupt | SystemExit):
            raise
        if not group.claims_the_word():
            raise SystemExit(2 if isinstance(cause, InputError) else 1) from None
        if cause is not error:
            raise cause from None
        raise
    else:
        dist.destroy_process_group()

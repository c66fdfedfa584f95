"""The one place that writes files: whole or not at all, one writer at a time, nothing left behind, under checksums."""

from scansnap.storage.scratch import remove, sweep_up
from scansnap.storage.targets import check_writable, write_lock
from scansnap.storage.writing import WriteError, discard, is_stream, put, replacing, sync

__all__ = [
           "WriteError",
           "check_writable",
           "discard",
           "is_stream",
           "put",
           "remove",
           "replacing",
           "sweep_up",
           "sync",
           "write_lock",
]  # fmt: skip

"""Atomic writes with checksums and locks; all files are written here."""

from scansnap.storage.scratch import remove, remove_leftovers
from scansnap.storage.targets import check_writable, write_lock
from scansnap.storage.writing import WriteError, discard, is_stream, put, replacing, sync

__all__ = [
           "WriteError",
           "check_writable",
           "discard",
           "is_stream",
           "put",
           "remove",
           "remove_leftovers",
           "replacing",
           "sync",
           "write_lock",
]  # fmt: skip

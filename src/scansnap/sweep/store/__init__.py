"""The results of a sweep: one Zarr store, written group by group, whole after any interruption.

::

    sweep.zarr/                 all runs: coordinates, and every variable along run and step (those by class as means)
      classes-0.zarr/           the first class set in full; itself a trajectory: scansnap.load reads it
      classes-1.zarr/           …

Runs are numbered class set by class set; ``run`` in ``classes-1.zarr`` goes on where ``classes-0.zarr`` ends. A group
is one chunk of runs of its class set, so no two groups ever write to the same file. When all chunks of a group
are on disk (synced, at most once a second), and only then, their checksums (``checksums/3.json`` of the class set)
and then the group's chunk of ``done`` are put in place. What has no such mark is deleted before it is made again. The
root's summary is computed from the class sets when all groups are through. Nothing in the store depends on when, where
or in which order it was made.

Each folder has its table ``checksums.json`` (see :mod:`scansnap.storage.checksums`), which grows with the store and
is final at its end. A store that is resumed is read as a whole: groups that are damaged are made again, anything
else is refused. So is a chunk file that was deleted, which Zarr itself would read as fill values.
"""

from scansnap.sweep.store.seals import read_attributes, stored_plan
from scansnap.sweep.store.store import Store, StoreError

__all__ = ["Store", "StoreError", "read_attributes", "stored_plan"]

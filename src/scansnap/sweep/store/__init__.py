"""The results of a sweep: one Zarr store, written group by group, whole after any interruption.

::

    sweep.zarr/                 all runs: coordinates, and every variable along run and step (those by class as means)
      classes-0.zarr/           the first class set in full; itself a trajectory: scansnap.load reads it
      classes-1.zarr/           …

Runs are numbered class set by class set; ``run`` in ``classes-1.zarr`` goes on where ``classes-0.zarr`` ends. A group
is one chunk of runs of its class set, and whoever made it writes it, straight into the store, with no lock (see
:mod:`scansnap.sweep.store.writer`). What has no mark in ``done`` does not count, and is made again. The root's summary
is computed from the class sets when all groups are through. Nothing in the store depends on when, where, by whom or in
which order it was made.

Each folder has its table ``checksums.json`` (see :mod:`scansnap.storage.checksums`), which grows with the store and
is final at its end. A store that is resumed is read as a whole (in a bucket, which has checksums of its own, only the
sizes are compared): groups that are damaged are made again, anything else is refused. So is a chunk that was deleted,
which Zarr itself would read as fill values.
"""

from scansnap.sweep.store.seals import read_attributes, stored_plan
from scansnap.sweep.store.store import Store
from scansnap.sweep.store.writer import Piece, StoreError, Summed, Writer, Written

__all__ = ["Piece", "Store", "StoreError", "Summed", "Writer", "Written", "read_attributes", "stored_plan"]

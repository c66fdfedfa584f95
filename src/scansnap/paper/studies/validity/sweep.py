"""All settings, one process per core; the figures on validity and deviations share them."""

from __future__ import annotations

import os
from concurrent.futures import as_completed

import pandas as pd

from scansnap.interrupt import deaf_children
from scansnap.paper.figure import Effort
from scansnap.paper.studies.validity.measured import measure
from scansnap.paper.studies.validity.settings import FULL, QUICK, Setting, settings
from scansnap.processes import ending_at_once, single_threaded_children
from scansnap.progress import Progress


def swept(effort: Effort, progress: Progress | None = None) -> pd.DataFrame:
    """A row for each setting (:func:`~scansnap.paper.studies.validity.measured.measure`)."""
    asked = settings(QUICK if effort.quick else FULL)
    return effort.once("validity", lambda: sweep(asked, progress))


def sweep(asked: list[Setting], progress: Progress | None = None, processes: int | None = None) -> pd.DataFrame:
    rows: dict[int, dict[str, float | str | bool]] = {}
    with single_threaded_children(), ending_at_once(processes or os.cpu_count() or 1) as pool:
        with deaf_children():
            jobs = {pool.submit(measure, setting): i for i, setting in enumerate(asked)}
        for done, job in enumerate(as_completed(jobs), start=1):
            rows[jobs[job]] = job.result()
            if progress is not None:
                progress(done, len(asked))
    return pd.DataFrame([rows[i] for i in range(len(asked))])

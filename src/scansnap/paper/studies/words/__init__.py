"""Scan and snap on words: the study, its runs, predictions and findings."""

from scansnap.paper.studies.words.findings import findings
from scansnap.paper.studies.words.study import CAPTION, TITLE, compute, draw

__all__ = ["CAPTION", "TITLE", "compute", "draw", "findings"]

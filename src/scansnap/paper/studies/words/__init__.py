"""Scan and snap on words. From the question to the answer: study, text, runs, table, listening, flow, findings,
panels."""

from scansnap.paper.studies.words.findings import findings
from scansnap.paper.studies.words.study import CAPTION, TITLE, compute, draw

__all__ = ["CAPTION", "TITLE", "compute", "draw", "findings"]

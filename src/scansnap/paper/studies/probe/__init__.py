"""The probe on ordinary models. From the question to the answer: study, models, training, measured, runs, table,
findings, panels.
"""

from scansnap.paper.studies.probe.findings import findings
from scansnap.paper.studies.probe.study import CAPTION, TITLE, compute, draw

__all__ = ["CAPTION", "TITLE", "compute", "draw", "findings"]

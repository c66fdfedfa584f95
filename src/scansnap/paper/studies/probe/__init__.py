"""The probe on GPT-2 and Llama: the study, its training, runs and findings."""

from scansnap.paper.studies.probe.findings import findings
from scansnap.paper.studies.probe.study import CAPTION, TITLE, compute, draw

__all__ = ["CAPTION", "TITLE", "compute", "draw", "findings"]

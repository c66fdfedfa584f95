"""How far the linear response is right. From the question to the answer: study, settings, predicted, measured, sweep,
findings, panels.
"""

from scansnap.paper.studies.validity.study import CAPTION, TITLE, compute, draw, findings

__all__ = ["CAPTION", "TITLE", "compute", "draw", "findings"]

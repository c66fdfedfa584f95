"""Where the linear response is right: the study and its measurements."""

from scansnap.paper.studies.validity.study import CAPTION, TITLE, compute, draw, findings

__all__ = ["CAPTION", "TITLE", "compute", "draw", "findings"]

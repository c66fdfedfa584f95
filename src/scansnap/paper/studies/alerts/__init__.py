"""Early warnings of the probe, against the loss and the gradient norm: runs, rules, evaluation and figure."""

from scansnap.paper.studies.alerts.study import CAPTION, TITLE, compute, draw

__all__ = ["CAPTION", "TITLE", "compute", "draw"]

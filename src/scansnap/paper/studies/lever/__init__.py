"""The query/key learning rate as a lever of sparsity: arms, training, the exact model, findings and figure."""

from scansnap.paper.studies.lever.findings import findings
from scansnap.paper.studies.lever.study import CAPTION, TITLE, compute, draw

__all__ = ["CAPTION", "TITLE", "compute", "draw", "findings"]

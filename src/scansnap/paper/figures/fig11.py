"""Figure 11: recall of distinct tokens over a threshold on attention, by η_Y/η_Z."""

from scansnap.paper.shared import recall_curves

TITLE = "Recall of distinct tokens against the threshold, by η_Y/η_Z"
CAPTION = f"{recall_curves.CAPTION} A smaller η_Y/η_Z gives a flatter curve: attention is sparser."

_curves = recall_curves.RecallCurves("ratio", across="eta_z", sparser="smaller", reference="Figure 11, Appendix G")
compute, findings, draw = _curves.compute, _curves.findings, _curves.draw

"""Figure 12: recall of distinct tokens over a threshold on attention, by η_Z."""

from scansnap.paper.figures.fig11 import CURVES, RecallCurves

TITLE = "Recall of distinct tokens against the threshold, by η_Z"
CAPTION = f"{CURVES} A larger η_Z gives a flatter curve: attention is sparser."

_curves = RecallCurves("eta_z", across="ratio", sparser="larger", reference="Figure 12, Appendix G")
compute, findings, draw = _curves.compute, _curves.findings, _curves.draw

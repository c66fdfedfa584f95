"""Findings about each head: does it scan, does it snap, and which positions does it attend to.

Two verdicts concern the training, from the first measurement to the last:

    scans       attention has moved from common to distinct tokens                         `scan`
    snaps       it moves much more slowly than at its fastest, per unit of ln t            `snap`

and two the last measurement, beyond what uniform attention gives (`verdicts`):

    sink        attention to the first key
    positional  attention to the query's own position and the one before

Each is yes, no or undecided. A head's verdict joins those that hold; *neither* means that all four are decided and
none holds. A learning rate that decays to zero stops any attention: ``snaps`` at the end of such a schedule may come
from the schedule.

To add a finding, write a function from the Dataset to a Dataset of new variables and list it in
``verdicts.FINDINGS``; if it is a yes or no (1, 0, NaN), give it a word in ``verdicts.VERDICT_WORDS``.
"""

from scansnap.probe.findings.verdicts import add_findings, summary

__all__ = ["add_findings", "summary"]

"""Findings about each head: is it healthy, does it scan, does it snap, and which positions does it attend to.

Health comes first (`health`): non-finite, exploding, collapsed, dead, idle. Then two verdicts about the training, from
the first measurement to the last:

    scans       attention has moved from common to distinct tokens                         `scan`
    snaps       it moves much more slowly than at its fastest, per unit of ln t            `snap`

and two about the last measurement, beyond what uniform attention gives (`verdicts`):

    sink        attention to the first key, or to tokens that the user names
    positional  attention to the query's own position and the one before

Each is yes, no or undecided. A head's verdict joins those that hold; *other* means that none does. An idle head never
snaps. A learning rate that decays to zero stops any attention: ``snaps`` at the end of such a schedule may come from
the schedule.

To add a finding, write a function from the Dataset to a Dataset of new variables and list it in
``verdicts.FINDINGS``; if it is a yes or no (1, 0, NaN), give it a word in ``verdicts.VERDICT_WORDS``.
"""

from scansnap.probe.findings.health import headline
from scansnap.probe.findings.verdicts import add_findings, summary

__all__ = ["add_findings", "headline", "summary"]

"""What a probe's record says: does a head scan, does it snap, and where does its attention rest.

Two words are about the training, from the first measurement to the last:

    scans       attention has gone from common to distinct tokens                          :mod:`.scan`
    snaps       it moves much more slowly than it once did, per unit of ln t               :mod:`.snap`

and two about where attention rests at the last measurement, beyond what uniform attention gives:

    sink        on the first key                                                           :mod:`.rest`
    positional  on the query's own position and the one before

Each is yes, no or undecided; a head's verdict joins those that hold. *neither* is a head for which all four are
decided and none holds. What cannot be told from here: a learning rate that goes to zero freezes any attention, so
``snaps`` at the end of such a schedule is the schedule's doing until a run at a constant rate shows the same.
"""

from scansnap.probe.findings.table import summary
from scansnap.probe.findings.verdict import findings

__all__ = ["findings", "summary"]

"""Weight decay on the decoder sharpens attention without end; on the attention logits it undoes the scan.

Setting: the paper's model on Syn-Medium(1), η_Y/η_Z = 10, flow to 10⁶ t₀, decay 10⁻⁴ on one table only. *Gap* is the
difference of the logits of the most and the least frequent distinct token.

On Y: decay stops the decoder's logits from growing, so the residual e_n − α_n no longer dies out like 1/t and goes on
pushing Z. Judged by the growth of the gap over the last two decades of t over that of the two decades before: 1 is a
gap that grows like ln t; without decay growth fades (like ln ln t). A tenth less still counts.
On Z: the only rest point has z ∝ the force on it over λ, and the force dies out. Judged by what is left at the end of
the largest rise of the distinct tokens' attention: 0, or at most a twentieth.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.survey import yz
from scansnap.claims.survey.finding import OURS, Finding, Sizes, surveyed
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import entropy_of
from scansnap.theory import t_snap

DECAY, RATIO = 1e-4, 10.0
_SETTING = "l2 norm, Syn-Medium(1), ratio 10, flow to 10⁶ t₀, decay 10⁻⁴ on {} only"

ON_Y = surveyed("decay-y", "decay on Y keeps attention sharpening like ln t", source=OURS, setting=_SETTING.format("Y"))
ON_Z = surveyed("decay-z", "decay on Z undoes the scan", source=OURS, setting=_SETTING.format("Z"))
STATEMENTS = (ON_Y, ON_Z)


def path(decay_y: float, decay_z: float) -> yz.Path:
    """The flow at every decade to 10⁶ t₀."""
    classes = SequenceClasses.syn_medium(n_queries=1)
    snap = float(t_snap(eta_y=1.0, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    t = snap * np.geomspace(1e-2, 1e6, 33)
    return yz.flow(yz.Data.of(classes), t, eta_z=1 / RATIO, decay_y=decay_y, decay_z=decay_z)


def judge_y(run: yz.Path) -> Finding:
    distinct = SequenceClasses.syn_medium(n_queries=1).distinct(0)
    gap = np.ptp(run.z[:, 0, distinct], axis=1)
    late, before = gap[-1] - gap[-9], gap[-9] - gap[-17]  # four readings to a decade
    tokens = float(np.exp(entropy_of(run.attention[-1])).mean())
    return ON_Y.found(
        late / before, predicted=1.0, bound=0.9,
        quantity=f"growth of the gap in the last two decades over the two before ({tokens:.1f} effective tokens)",
        where="growth fades with ln t",
    )  # fmt: skip


def judge_z(run: yz.Path) -> Finding:
    distinct = SequenceClasses.syn_medium(n_queries=1).distinct(0)
    mass = run.attention[:, 0, distinct].sum(1)
    return ON_Z.found(
        (mass[-1] - mass[0]) / (mass.max() - mass[0]), predicted=0.0, bound=0.05, both_sides=True,
        quantity=f"share of the rise in distinct attention (to {mass.max():.2f}) that is left at the end",
        where="the scan stays",
    )  # fmt: skip


def check(sizes: Sizes) -> list[Finding]:
    return [judge_y(path(DECAY, 0.0)), judge_z(path(0.0, DECAY))]

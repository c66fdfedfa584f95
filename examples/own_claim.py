"""Your own claim, judged like the paper's: the loss never rises. The control uses far too large steps."""

import numpy as np

import scansnap as ss

DOWNHILL = ss.Statement("downhill", "Own claim", "the loss never rises: every moment of training is an improvement")


def downhill(evidence: ss.Evidence) -> ss.Claim:
    """Holds if no loss exceeds an earlier one by more than a millionth of the total decrease."""
    if evidence.loss is None:
        return DOWNHILL.not_applicable("the trajectory holds no loss")
    above = evidence.loss - np.minimum.accumulate(evidence.loss)
    share = above.max() / np.ptp(evidence.loss)
    return DOWNHILL.judge(quantity="largest rise above an earlier loss, as a share of all that is learnt",
                          measured=share, predicted=0.0, deviation=share, tolerance=1e-6,
                          failure=f"the loss is up by {share:.1%} at t = {evidence.t[above.argmax()]:g}")  # fmt: skip


classes = ss.SequenceClasses.syn_small()
flow = ss.verify(classes, eta_y=1.0, eta_z=0.1, checks=["conservation", downhill])  # three of ours beside it
leaps = ss.simulate(classes, eta_y=300.0, eta_z=0.1, steps=60, context=8, batch_size=4)
control = ss.verify(data=leaps, checks=[downhill])
for claim in (*flow, *control):
    print(f"{claim.name}: {claim.status} {claim.reason}".rstrip())

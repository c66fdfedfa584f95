"""The arms of the study, and what is predicted of them; both were written before the runs that decide them.

An *arm* is a model with an optimiser and a text, in which the learning rate of one role is multiplied by each ratio.

Predictions, for the change from ratio 1/8 to ratio 8 at equal loss. At equal loss the decoder of the YZ model is
equally far, so that z depends on η_Z/η_Y alone; to first order z increases with it at every time (Section 7.2 of our
theory: dv/du = ε f²[D′ − u(v − v̄)] from v = 0), so there is no reversal at equal loss.

1. Attention entropy falls in every arm whose query/key rate is multiplied, with every optimiser, and in the YZ model
   and the cumulative models of the ablation study.
2. The largest attention logit rises in these arms.
3. The same multiplier of the MLP rate changes entropy by less, and by no more than `NO_CHANGE`.
4. With shuffled next tokens, entropy changes by no more than `NO_CHANGE`.
5. With the update of all weights rescaled to the norm that it has at ratio 1, entropy still falls.
6. Fewer keys are needed for the loss of full attention + `ALLOWED`, without retraining.
7. The SGD runs of the YZ model have the flow's entropy at equal loss, within `NEAR_FLOW`.
8. With AdamW and another norm alone, entropy falls at equal loss, though it rises at equal steps in the ablation study.

Added after the core arms had run, and before the arms that decide them:

9. Entropy falls as well if every ratio trains at the base rate that is best for itself.
10. In runs with four times as many steps entropy falls as well, and the number of keys that are needed.
11. Entropy rises with the value/output rate: in the YZ model this is a smaller η_Z/η_Y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from scansnap.rates.ratio import Ratio

NO_CHANGE = 0.1  # nats of entropy
NEAR_FLOW = 0.05  # nats of entropy
NO_LOSS = 0.01  # nats of loss that count as none
ALLOWED = 0.01  # nats of loss that dropped keys may cost
RATIOS = (1 / 8, 8**-0.5, 1.0, 8**0.5, 8.0)
LOW, ONE, HIGH = 1 / 8, 1.0, 8.0

GPT2, LLAMA, QK_NORM = "GPT-2", "Llama", "Llama with QK-norm"
ADAMW, SGD, MUON = "AdamW", "SGD", "Muon"
RULES = {ADAMW: "adamw", SGD: "momentum", MUON: "muon"}  # names in the registry of optimisers
GRID = {ADAMW: (3e-4, 1e-3, 3e-3, 1e-2), SGD: (0.03, 0.1, 0.3, 1.0), MUON: (3e-3, 1e-2, 3e-2, 1e-1)}
ADAM_SHARE = 0.1  # AdamW's rate over Muon's, for embeddings, norms and vectors


@dataclass(frozen=True)
class Arm:
    """A model with an optimiser and a text; ``role`` is multiplied by each ratio."""

    model: str
    optimizer: str
    data: str = "text"  # text: that of the command; docstrings: those of Python's standard library
    role: str = "qk"
    control: str = ""  # shuffled: next tokens; norm: the update rescaled to the norm at ratio 1
    recipe: str = ""  # a published one, instead of ratios
    longer: int = 1  # times as many steps

    @property
    def name(self) -> str:
        """As tables and figures show it."""
        words = [f"{self.model}, {self.optimizer}"]
        words += ["docstrings"] if self.data != "text" else []
        words += [{"vo": "value/output rate", "mlp": "MLP rate"}[self.role]] if self.role != "qk" else []
        words += (
            [{"shuffled": "shuffled next tokens", "norm": "equal update norm"}[self.control]] if self.control else []
        )
        words += [f"{self.longer} times the steps"] if self.longer > 1 else []
        return ", ".join([*words, *([self.recipe] if self.recipe else [])])

    @property
    def rated_as(self) -> Arm:
        """The arm whose base rate it takes: controls and roles take that of the arm that they are compared with."""
        return self if self.recipe else replace(self, role="qk", control="", longer=1)


BASE = Arm(GPT2, ADAMW)
CORE = (BASE, Arm(GPT2, SGD), Arm(LLAMA, ADAMW), replace(BASE, role="mlp"))
CONTROLS = (replace(BASE, control="shuffled"), replace(BASE, control="norm"))
MORE = (Arm(GPT2, MUON), Arm(QK_NORM, ADAMW), replace(BASE, data="docstrings"), replace(BASE, role="vo"),
        Arm(LLAMA, SGD), Arm(LLAMA, MUON), Arm(GPT2, SGD, role="mlp"), replace(BASE, longer=4))  # fmt: skip

# Published recipes with constants as their authors state them, or ours where the abstract has none (marked).
BLOCKWISE = "blockwise"  # arXiv 2502.19002 (their README): norm 1, value/output 4, MLP 6, query/key 8, embedding 10
SLOW_UPPER = "slow upper layers early"  # arXiv 2605.10504; a quarter of the rate in the first quarter (ours)
LOGIT_CONTROL = "query/key rates over weight norms"  # arXiv 2511.21377; W_Q by ‖W_K(0)‖/‖W_K‖ and conversely (ours)
MUON_NOT_QK = "query/key by AdamW"  # arXiv 2509.26030: Muon's gain is from value/output and MLP weights
RECIPES = (replace(BASE, recipe=BLOCKWISE), replace(BASE, recipe=SLOW_UPPER), replace(BASE, recipe=LOGIT_CONTROL),
           Arm(GPT2, MUON, recipe=MUON_NOT_QK))  # fmt: skip

ARMS_OF = {arm.name: arm for arm in (*CORE, *CONTROLS, *MORE, *RECIPES)}


def arms(quick: bool) -> tuple[Arm, ...]:
    """All of them; of the quick study the core and its controls."""
    return (*CORE, *CONTROLS) if quick else tuple(ARMS_OF.values())


def ratios_of(arm: Arm) -> tuple[float, ...]:
    """A recipe has no ratio: it is compared with ratio 1 of the same model and optimiser."""
    return (ONE,) if arm.recipe else RATIOS


def group_ratios(arm: Arm, ratio: float) -> dict[str, Any]:
    """The arguments of `param_groups`."""
    recipes: dict[str, dict[str, Any]] = {
        BLOCKWISE: {"vo": 4.0, "mlp": 6.0, "qk": 8.0, "embedding": 10.0},
        SLOW_UPPER: {"upper": Ratio(0.25, end=0.25)},
    }
    return recipes.get(arm.recipe, {}) if arm.recipe else {arm.role: ratio}

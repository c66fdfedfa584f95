"""The paper's 31 numbered statements, and the settings on which they are judged (`scansnap.claims.statements`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scansnap.claims.assumptions import ASSUMPTION_2
from scansnap.claims.claim import Kind
from scansnap.claims.evidence import Evidence, from_flow
from scansnap.claims.registry import statements as all_statements
from scansnap.claims.verify import gather_evidence
from scansnap.classes import SequenceClasses
from scansnap.theory import t_snap

_KINDS: tuple[Kind, ...] = ("measured", "dependent", "identity", "formula", "by definition", "proof step")
_NAME = re.compile(r"(Lemma|Theorem|Corollary|Remark|Assumption) \d+")


@dataclass(frozen=True)
class Setting:
    """Classes and rates on which statements are judged: the exact flow, or SGD with a batch size."""

    words: str
    classes: Callable[[], SequenceClasses] = SequenceClasses.textbook
    eta_y: float = 0.9
    eta_z: float = 0.02
    t_end: float | None = None  # in t₀
    batch_size: int | None = None
    start: int | None = None  # seed of z(0) ~ N(0, ½)

    def gather(self) -> Evidence:
        """The run."""
        classes = self.classes()
        rates: dict[str, Any] = {"eta_y": self.eta_y, "eta_z": self.eta_z}
        snap = float(t_snap(eta_y=self.eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
        end = None if self.t_end is None else self.t_end * snap
        if self.start is None:
            return gather_evidence(classes, **rates, context=math.inf, t_end=end, batch_size=self.batch_size)
        shape = len(classes.queries), classes.vocab_size
        z0 = np.random.default_rng(self.start).normal(scale=math.sqrt(0.5), size=shape)
        return from_flow(classes, **rates, t_end=end or 100 * snap, z0=z0)


def late_fall() -> SequenceClasses:
    """Two classes that meet every assumption; the second has most of its attention on the common token."""
    p = np.zeros((2, 3000))
    p[0, :4], p[1, [0, 4, 5]] = [0.126, 0.112, 0.386, 0.376], [0.5, 0.357, 0.143]
    return SequenceClasses(p, query=[10, 10], next_token=[11, 12])


def several_common() -> SequenceClasses:
    """The symmetric case of Corollary 2: one query, two classes, three common tokens."""
    return SequenceClasses.synthetic(1, 2, common=3, distinct=5, common_weight=0.4, unused=2000)


def four_classes() -> SequenceClasses:
    """Two pairs of classes of one query: 0.17 of overlap within a pair and 0.027 across."""
    p = np.zeros((4, 3000))
    p[:, 0], p[:2, 1], p[2:, 2] = math.sqrt(0.027), math.sqrt(0.143), math.sqrt(0.143)
    for n, own in enumerate(([0.6, 0.3, 0.1], [0.8, 0.2], [0.5, 0.4, 0.1], [0.4, 0.35, 0.25])):
        p[n, 3 + 3 * n : 3 + 3 * n + len(own)] = np.sqrt(0.83 * np.array(own))
    return SequenceClasses(p / p.sum(1, keepdims=True), query=[20] * 4, next_token=[21, 22, 23, 24])


def weak_overlap() -> SequenceClasses:
    """As textbook, with an overlap of 0.02 where Assumption 2 asks for 0.13."""
    return SequenceClasses.synthetic(1, 2, common=1, distinct=5, common_weight=0.2, unused=2000)


# Every assumption of the paper is met on each of them; in "weak overlap" all but the lower bound of Assumption 2.
SETTINGS: dict[str, Setting] = {
    "textbook": Setting("preset textbook, η = (0.9, 0.02), exact flow to 100 t₀"),
    "batch size 1": Setting("preset textbook, η = (0.9, 0.02), SGD of batch size 1 at T = ∞ to 10 t₀", batch_size=1),
    "several common": Setting("one query, 2 classes, 3 common and 5 distinct tokens, flow", several_common),
    "late fall": Setting("two classes that lean differently on one common token, η_Y/η_Z = 10, flow", late_fall,
                         eta_z=0.09),
    "start": Setting("preset textbook from z(0) ~ N(0, ½), flow to 100 t₀", start=0),
    "four classes": Setting("four classes of one query with unequal overlaps, M = 3000, flow to 10 t₀", four_classes,
                            t_end=10),
    "weak overlap": Setting("two classes of overlap 0.02, M = 2014, flow", weak_overlap),
    "late": Setting("preset textbook, flow to 10²⁰ t₀", t_end=1e20),
}  # fmt: skip


@dataclass(frozen=True)
class PaperStatement:
    """A numbered statement of the paper.

    ``settings`` maps each setting to the names of the claims that are judged there; none means all of the statement's.
    ``instead`` says what is true where it fails, or how a misprint reads correctly; docs/errata.md has the details.
    ``control`` is a change with which it fails; tests/claims make it.
    """

    name: str
    says: str
    control: str
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"textbook": ()})
    instead: str = ""
    assumptions: tuple[str, ...] = ()  # of an assumption: the names of its parts

    @property
    def claims(self) -> tuple[str, ...]:
        """The names of its claims, in the order of the registry."""
        own = [(s.name, _NAME.match(s.reference)) for s in all_statements() if s.kind != "ours"]
        return tuple(name for name, match in own if match and match[0] == self.name)

    def claims_on(self, setting: str) -> tuple[str, ...]:
        """The names of the claims that are judged on a setting."""
        return self.settings[setting] or self.claims if setting in self.settings else ()

    @property
    def kind(self) -> str:
        """Assumption, or the strongest kind of its claims."""
        if self.name.startswith("Assumption"):
            return "assumption"
        kinds = {statement.kind for statement in all_statements() if statement.name in self.claims}
        return next((kind for kind in _KINDS if kind in kinds), "")


_AT_BATCH_1 = ("theorem-1-span", "theorem-1-beta", "theorem-1-xi", "theorem-1-xi-size", "theorem-1-gamma")
_PROOF = ("theorem-1-span", "theorem-1-beta", "theorem-1-xi", "theorem-1-xi-size", "theorem-1-gamma",
          "theorem-1-eq-84", "theorem-1-eq-88", "theorem-1-eq-93")  # fmt: skip
_FOUR: dict[str, tuple[str, ...]] = {"textbook": (), "four classes": ()}
PAPER: tuple[PaperStatement, ...] = (
    PaperStatement("Lemma 1", "The gradients of the loss in Y and Z have the closed form that the engine uses.",
                   "a gradient without its projection"),
    PaperStatement("Assumption 1", "Sequences are long, and the decoder learns much faster than attention.",
                   "T = 65 on Zipf classes; η_Y/η_Z = 5", assumptions=("long sequences", "fast decoder")),
    PaperStatement("Lemma 2", "In long sequences attention depends on the class alone.",
                   "half of the tokens; sequences that are not sampled"),
    PaperStatement("Assumption 2", "The attention of classes overlaps weakly: M ≫ K², |λ₁(E)| < 1/K, |λ_i(E)| ≥ 6/√M.",
                   "overlap 0.09, and 0.05, of four classes", assumptions=ASSUMPTION_2,
                   instead="The lower bound is not needed: no class may stand alone, and |λ₁(E)| < 1/K."),
    PaperStatement("Lemma 3", "With frozen attention every class learns its own row of logits W = FᵀY.",
                   "more overlap than the classes have; gradient descent for the exact form", _FOUR,
                   "Exact for the modified update of Eq. 26. Gradient descent agrees up to |λ₁(E)|."),
    PaperStatement("Theorem 1", "The gradient is γ(ι_n f_n − Σ β_nn' f_n'), with ξ_n > 0 and two regimes of γ.",
                   "flipped signs of β; γ of a third of the rate",
                   {"textbook": (), "four classes": _PROOF, "batch size 1": _AT_BATCH_1,
                    "late fall": ("theorem-1-xi",), "weak overlap": ("theorem-1-span", "theorem-1-xi")},
                   "Under gradient descent β starts at 1/M, not at E′. The late order of γ is K ln(Mη_Y t/K)/(η_Y t)."),
    PaperStatement("Lemma 4", "Attention logits follow from the decomposition of Theorem 1.",
                   "gradients outside the span", _FOUR),
    PaperStatement("Theorem 2", "Every distinct token gains attention, and a single common token loses it.",
                   "the gradient turned round",
                   {"textbook": (), "start": (), "late fall": ("theorem-2a", "theorem-2b"),
                    "weak overlap": ("theorem-2a", "theorem-2b")},
                   "The common token falls. The class that leans most on it loses distinct tokens once u > √(2ν)/f."),
    PaperStatement("Corollary 2", "In the symmetric case every common token loses attention.",
                   "the gradient turned round", {"several common": ()}),
    PaperStatement("Theorem 3", "The relative gain of a distinct token is r(0) χ(t); B_n bounds χ of the dominant one.",
                   "a wrong sum for B_n; tokens that rise together", {"textbook": (), "start": ()},
                   "Y remembers earlier attention: both hold up to the memory, which vanishes as η_Y/η_Z → ∞."),
    PaperStatement("Theorem 4", "B_n follows from ξ_n ∝ γ e^{4z}: O(ln t) before t₀, O(ln ln t) after it.",
                   "tables that obey another exponent; a transition at another time",
                   {"textbook": (), "late": ("theorem-4-late-growth", "theorem-4-late-chi")},
                   "Drive and memory replace the premise; with it B = ¼ ln(1 + 4Γ/C₀). The time survives."),
    PaperStatement("Lemma 5", "After s visits row n of W is (M−1) h*(s) ζ_n.", "gradient descent", _FOUR),
    PaperStatement("Remark 1", "With equal overlaps ρ gradient descent acts as the smaller rate (1−ρ)η_Y.",
                   "Eq. 43 as printed",
                   instead="For K = M only, and there h has the rate (1−ρ)η_Y instead of the factor 1−ρ."),
    PaperStatement("Lemma 6", "e^{Mh} + (M−1)Mh = Mη_Y t + 1.", "h of a tenth of the rate"),
    PaperStatement("Lemma 7", "h* exceeds h by at most 2η_Y/M, and the difference vanishes.",
                   "h of a tenth of the rate; h* that stays a first step ahead"),
    PaperStatement("Remark 2", "h* leads h by at most a constant time c = O(ln M).", "as printed; h itself has no lead",
                   instead="The lead is ½ ln(η_Y s), without bound; relative to s it vanishes."),
    PaperStatement("Lemma 8", "e^{Mh} and (M−1)Mh cross at h ≈ 1/M^{2−ω₀} and at (1+ω₁) ln M/M.",
                   "roots of e^u = √M u"),
    PaperStatement("Remark 3", "For M ≫ 100 and η_Y ≫ M^−0.99 only the second crossing comes after the first step.",
                   "η_Y = 0.3/M"),
    PaperStatement("Lemma 9", "γ = O(η_Y t/K) up to t₀′, and O(K ln(Mη_Y t/K)/(η_Y t)) from t₀ on.",
                   "the order printed in Theorem 1(b)"),
    PaperStatement("Lemma 10", "Class counts differ from their mean by √(N ln(2/δ)) at most, with probability 1−δ.",
                   "a quarter of the bound"),
    PaperStatement("Remark 4", "With uniform classes and t ≫ K² all counts are close to t/K.",
                   "t = K²/10", instead="t ≫ K ln K is enough, and necessary."),
    PaperStatement("Lemma 11", "h(N_n) and 1−α concentrate with the counts.", "a convex h"),
    PaperStatement("Lemma 12", "Y = F′^{−⊤}(I + Θ′)W̄′ for the modified update.", "gradient descent", _FOUR,
                   "F° must be orthogonal to F."),
    PaperStatement("Theorem 5", "Y = F(I − E′)(I + Θ)W̄ for the modified update.", "gradient descent", _FOUR),
    PaperStatement("Corollary 1", "e_n − α_n has a closed form, and is below ε after O(K ln(M/ε)/(εη_Y)) steps.",
                   "gradient descent; Eq. 71 with h as printed", _FOUR,
                   "The number of steps is a sum: (K/η_Y)(1/ε + ln(M/ε)). Eq. 71 needs h* for h."),
    PaperStatement("Lemma 13", "No overlap exceeds |λ₁(E)|.", "a table that is not symmetric", _FOUR),
    PaperStatement("Lemma 14", "(I + E)^{−1} = I − E′ with the eigenvalues λ/(1+λ) of E′.",
                   "E′ with the sign of Appendix D.1", _FOUR),
    PaperStatement("Lemma 15", "The eigenvalues of E′ are at most |λ₁|/(1−λ₁) in absolute value.", "3E′", _FOUR),
    PaperStatement("Lemma 16", "E′_nn ≤ 0, and below 0 where class n overlaps with another.",
                   "E′ with the sign of Appendix D.1", _FOUR),
    PaperStatement("Lemma 17", "|E′_nn' − E_nn'| ≤ λ₁²/(1−|λ₁|).", "E′ with the sign of Appendix D.1", _FOUR),
    PaperStatement("Lemma 18", "Token frequencies of a sequence are within √(ln(2/δ)/(2(T−1))) of P(l|n).",
                   "a quarter of the bound"),
)  # fmt: skip

"""The paper's 31 numbered statements, each with the settings on which it is judged, and the table of verdicts.

A row takes every built-in claim whose reference names the statement (registry.py), and judges it on each of the row's
settings. Its verdict is that of the claims; nothing here declares one. An assumption is judged by what it asks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.claims.assumptions import ASSUMPTION_2
from scansnap.claims.claim import Claim, Kind
from scansnap.claims.evidence import Evidence, from_flow
from scansnap.claims.registry import BUILT_IN, Check, checks_by_claim
from scansnap.claims.registry import statements as all_statements
from scansnap.claims.verify import gather_evidence, judge_evidence
from scansnap.classes import SequenceClasses
from scansnap.progress import Progress
from scansnap.storage.versions import decisive_versions
from scansnap.storage.work_cache import WorkCache
from scansnap.theory import t_snap

NOT_CHECKED = "not yet checked"  # no claim about it is built in
IN_PART = "holds in part"
VERDICTS = ("holds", IN_PART, "fails", "undecided", "not applicable", NOT_CHECKED)
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


# Every assumption of the paper is met on each of them.
SETTINGS: dict[str, Setting] = {
    "textbook": Setting("preset textbook, η = (0.9, 0.02), exact flow to 100 t₀"),
    "batch size 1": Setting("preset textbook, η = (0.9, 0.02), SGD of batch size 1 at T = ∞ to 10 t₀", batch_size=1),
    "several common": Setting("one query, 2 classes, 3 common and 5 distinct tokens, flow", several_common),
    "late fall": Setting("two classes that lean differently on one common token, η_Y/η_Z = 10, flow", late_fall,
                         eta_z=0.09),
    "start": Setting("preset textbook from z(0) ~ N(0, ½), flow to 100 t₀", start=0),
    "late": Setting("preset textbook, flow to 10²⁰ t₀", t_end=1e20),
}  # fmt: skip


@dataclass(frozen=True)
class PaperStatement:
    """A numbered statement of the paper.

    ``settings`` maps each setting to the names of the claims that are judged there; none means all of the statement's.
    ``instead`` says what is true where it fails, or how a misprint reads correctly; docs/errata.md has the details.
    """

    name: str
    says: str
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
PAPER: tuple[PaperStatement, ...] = (
    PaperStatement("Lemma 1", "The gradients of the loss in Y and Z have the closed form that the engine uses."),
    PaperStatement("Assumption 1", "Sequences are long, and the decoder learns much faster than attention.",
                   assumptions=("long sequences", "fast decoder")),
    PaperStatement("Lemma 2", "In long sequences attention depends on the class alone."),
    PaperStatement("Assumption 2", "The attention of classes overlaps weakly: M ≫ K², |λ₁(E)| < 1/K, |λ_i(E)| ≥ 6/√M.",
                   assumptions=ASSUMPTION_2,
                   instead="The lower bound is not needed: no class may stand alone, and |λ₁(E)| < 1/K."),
    PaperStatement("Lemma 3", "With frozen attention every class learns its own row of logits W = FᵀY.",
                   instead="Exact for the modified update of Eq. 26. Gradient descent agrees up to |λ₁(E)|."),
    PaperStatement("Theorem 1", "The gradient is γ(ι_n f_n − Σ β_nn' f_n'), with ξ_n > 0 and two regimes of γ.",
                   {"textbook": (), "batch size 1": _AT_BATCH_1, "late fall": ("theorem-1-xi",)},
                   "Under gradient descent β starts at 1/M, not at E′. The late order of γ is K ln(Mη_Y t/K)/(η_Y t)."),
    PaperStatement("Lemma 4", "Attention logits follow from the decomposition of Theorem 1."),
    PaperStatement("Theorem 2", "Every distinct token gains attention, and a single common token loses it.",
                   {"textbook": (), "start": (), "late fall": ("theorem-2a", "theorem-2b")},
                   "The common token falls. The class that leans most on it loses distinct tokens once u > √(2ν)/f."),
    PaperStatement("Corollary 2", "In the symmetric case every common token loses attention.", {"several common": ()}),
    PaperStatement("Theorem 3", "The relative gain of a distinct token is r(0) χ(t); B_n bounds χ of the dominant one.",
                   {"textbook": (), "start": ()},
                   "Y remembers earlier attention: both hold up to the memory, which vanishes as η_Y/η_Z → ∞."),
    PaperStatement("Theorem 4", "B_n follows from ξ_n ∝ γ e^{4z}: O(ln t) before t₀, O(ln ln t) after it.",
                   {"textbook": (), "late": ("theorem-4-late-growth", "theorem-4-late-chi")},
                   "Drive and memory replace the premise; with it B = ¼ ln(1 + 4Γ/C₀). The time survives."),
    PaperStatement("Lemma 5", "After s visits row n of W is (M−1) h*(s) ζ_n."),
    PaperStatement("Remark 1", "With equal overlaps ρ gradient descent acts as the smaller rate (1−ρ)η_Y.",
                   instead="For K = M only, and there h* has the rate (1−ρ)η_Y instead of the factor 1−ρ."),
    PaperStatement("Lemma 6", "e^{Mh} + (M−1)Mh = Mη_Y t + 1."),
    PaperStatement("Lemma 7", "h* exceeds h by at most 2η_Y/M, and the difference vanishes."),
    PaperStatement("Remark 2", "h* leads h by at most a constant time c = O(ln M).",
                   instead="The lead is ½ ln(η_Y s), without bound; relative to s it vanishes."),
    PaperStatement("Lemma 8", "e^{Mh} and (M−1)Mh cross at h ≈ 1/M^{2−ω₀} and at (1+ω₁) ln M/M."),
    PaperStatement("Remark 3", "For M ≫ 100 and η_Y ≫ M^−0.99 only the second crossing comes after the first step."),
    PaperStatement("Lemma 9", "γ = O(η_Y t/K) up to t₀′, and O(K ln(Mη_Y t/K)/(η_Y t)) from t₀ on."),
    PaperStatement("Lemma 10", "Class counts differ from their mean by √(N ln(2/δ)) at most, with probability 1−δ."),
    PaperStatement("Remark 4", "With uniform classes and t ≫ K² all counts are close to t/K.",
                   instead="t ≫ K ln K is enough, and necessary."),
    PaperStatement("Lemma 11", "h(N_n) and 1−α concentrate with the counts."),
    PaperStatement("Lemma 12", "Y = F′^{−⊤}(I + Θ′)W̄′ for the modified update.",
                   instead="F° must be orthogonal to F."),
    PaperStatement("Theorem 5", "Y = F(I − E′)(I + Θ)W̄ for the modified update."),
    PaperStatement("Corollary 1", "e_n − α_n has a closed form, and is below ε after O(K ln(M/ε)/(εη_Y)) steps.",
                   instead="The number of steps is a sum: (K/η_Y)(1/ε + ln(M/ε))."),
    PaperStatement("Lemma 13", "No overlap exceeds |λ₁(E)|."),
    PaperStatement("Lemma 14", "(I + E)^{−1} = I − E′ with the eigenvalues λ/(1+λ) of E′."),
    PaperStatement("Lemma 15", "The eigenvalues of E′ are at most |λ₁|/(1−λ)."),
    PaperStatement("Lemma 16", "E′_nn ≤ 0, and below 0 where class n overlaps with another."),
    PaperStatement("Lemma 17", "|E′_nn' − E_nn'| ≤ λ₁²/(1−|λ₁|).", instead="It needs |λ₁| < 1, not λ₁ < 1."),
    PaperStatement("Lemma 18", "Token frequencies of a sequence are within √(ln(2/δ)/(2(T−1))) of P(l|n)."),
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One claim, or one assumption, on one setting."""

    setting: str
    claim: str
    kind: str
    status: str
    quantity: str
    measured: float | None
    predicted: float | None
    margin: float | None
    reason: str
    instead: str  # the claim of ours that holds in its place, in words

    @classmethod
    def of(cls, setting: str, claim: Claim) -> Part:
        ours = "" if claim.alternative is None else str(claim.alternative)
        return cls(setting, claim.name, claim.kind, claim.status, claim.quantity, claim.measured, claim.predicted,
                   claim.margin, claim.reason, ours)  # fmt: skip


@dataclass(frozen=True)
class PaperRow:
    """A numbered statement with the verdicts on its claims."""

    statement: PaperStatement
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> str:
        """Of all claims that the paper states; a claim holds if it fails on no setting and holds on one."""
        by_claim: dict[str, set[str]] = {}
        for part in self.parts:
            if part.kind != "proof step":
                by_claim.setdefault(part.claim, set()).add(part.status)
        order = ("fails", "holds", "undecided", "not applicable")
        verdicts = {next(status for status in order if status in found) for found in by_claim.values()}
        if not verdicts:
            return NOT_CHECKED
        if verdicts >= {"fails", "holds"}:
            return IN_PART
        return next(status for status in ("fails", "undecided", "holds", "not applicable") if status in verdicts)

    @property
    def fails(self) -> list[Part]:
        """What fails, and where."""
        return [part for part in self.parts if part.status == "fails"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        own = self.statement
        return {
            "statement": own.name,
            "says": own.says,
            "kind": own.kind,
            "verdict": self.verdict,
            "settings": list(own.settings),
            "instead": own.instead,
            "parts": [asdict(p) for p in self.parts],
        }


def work() -> dict[str, list[Check]]:
    """The checks to run by setting, each with the statements that are judged there."""
    by_claim = checks_by_claim()
    wanted: dict[str, set[str]] = {name: set() for name in SETTINGS}
    for statement in PAPER:
        for setting in statement.settings:
            wanted[setting] |= {by_claim[claim].name for claim in statement.claims_on(setting)}
    return {name: [BUILT_IN[check] for check in BUILT_IN if check in checks] for name, checks in wanted.items()}


def paper_cache(folder: Path, *, overwrite: bool = False) -> WorkCache:
    """The settings that are finished, from which a stopped table continues."""
    key = {name: [SETTINGS[name].words, *(check.name for check in checks)] for name, checks in work().items()}
    cache = WorkCache(folder, json.dumps(key), decisive_versions(), damaged="missing",
                      field="the folder with unfinished work")  # fmt: skip
    if overwrite:
        cache.discard()
    cache.refuse_other_work("--overwrite starts again")
    return cache


def check_paper(progress: Progress | None = None, cache: WorkCache | None = None) -> list[PaperRow]:
    """Judge every numbered statement of the paper on its settings."""
    todo = {name: checks for name, checks in work().items() if checks}
    total, done = sum(len(checks) + 1 for checks in todo.values()), 0
    parts: list[Part] = []

    def report_progress(new: int, _: int = 0) -> None:
        if progress:
            progress(done + new, total)

    for name, checks in todo.items():
        piece = cache.get(_file(name)) if cache else None
        new = _judge(name, checks, report_progress) if piece is None else [Part(**v) for v in piece.values["parts"]]
        if cache and piece is None:
            cache.put(_file(name), {"parts": [asdict(part) for part in new]})
        parts += new
        done += len(checks) + 1
        report_progress(0)
    return [_row(statement, parts) for statement in PAPER]


def _judge(name: str, checks: list[Check], progress: Progress) -> list[Part]:
    """The claims and assumptions of one setting that rows ask for."""
    evidence = SETTINGS[name].gather()
    progress(1, 0)
    report = judge_evidence(evidence, lambda done, _: progress(1 + done, 0), checks)
    claims = {claim for statement in PAPER for claim in statement.claims_on(name)}
    assumptions = [evidence.assumptions[a] for s in PAPER if name in s.settings for a in s.assumptions]
    return [Part.of(name, claim) for claim in report if claim.name in claims] + [
        Part(name, a.name, "assumption", "holds" if a.met else "fails", a.statement, a.value, a.threshold, None, a.note,
             "")
        for a in assumptions
    ]  # fmt: skip


def _row(statement: PaperStatement, parts: Sequence[Part]) -> PaperRow:
    named = {name: {*statement.claims_on(name), *statement.assumptions} for name in statement.settings}
    return PaperRow(statement, tuple(part for part in parts if part.claim in named.get(part.setting, ())))


def _file(setting: str) -> str:
    return setting.replace(" ", "-")


def as_markdown(rows: Sequence[PaperRow]) -> str:
    """The table of docs/claims.md."""
    head = ("statement", "what it says", "kind", "verdict", "judged on", "what fails", "what holds instead")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        own = row.statement
        fails = ", ".join(f"`{part.claim}` ({part.setting})" for part in row.fails)
        cells = (own.name, own.says, own.kind, row.verdict, ", ".join(own.settings), fails, own.instead)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def count(rows: Sequence[PaperRow]) -> str:
    """How many statements have each verdict, in words."""
    verdicts = [row.verdict for row in rows]
    listed = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts)
    return f"{len(rows)} numbered statements: {listed}"

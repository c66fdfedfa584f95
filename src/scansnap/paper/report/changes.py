"""What changed since an earlier reproduction: verdicts, counts and numbers, and whether by more than their error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from scansnap.checks import InputError
from scansnap.measure.comparison import plus_minus
from scansnap.paper.figure import ROUNDING, Number, beyond
from scansnap.paper.report.manifest import FORMAT, MANIFEST, announce, parse_manifest
from scansnap.storage import put
from scansnap.storage.json_text import to_float, to_json

CHANGES = "changes.json"
RULE = (
    "A number with 95% intervals ±a before and ±b after has changed beyond its error if it differs by more than "
    f"√(a² + b²); one without noise if it differs by more than a {1 / ROUNDING:,.0f}th of itself; one without a known "
    "interval (a single seed) is undecided."
)
What = Literal["verdict", "number", "count", "new", "gone"]


@dataclass(frozen=True)
class Shift:
    """One number of a finding that changed."""

    case: str
    before: Number
    after: Number

    @property
    def beyond(self) -> bool | None:
        return beyond(self.before, self.after)

    def __str__(self) -> str:
        case = f"{self.case}: " if self.case else ""
        return f"{case}{_format(self.before)} → {_format(self.after)}"


@dataclass(frozen=True)
class Change:
    """A finding that changed. Its verdict and count are empty where the finding does not exist."""

    target: str
    says: str
    reference: str
    kind: str
    verdict: tuple[str, str]
    counted: tuple[str, str]
    shifts: tuple[Shift, ...]

    @property
    def what(self) -> What:
        """The most important kind of change."""
        before, after = self.verdict
        if not before or not after:
            return "new" if after else "gone"
        return "verdict" if before != after else "number" if self.shifts else "count"

    @property
    def beyond(self) -> bool | None:
        """Whether some number changed beyond its error; None if that is undecided."""
        decisions = [shift.beyond for shift in self.shifts]
        return True if True in decisions else None if None in decisions or not decisions else False


@dataclass(frozen=True)
class Changes:
    """The changes between two reproductions, over the targets of both."""

    against: str
    targets: tuple[str, ...]  # in both
    compared: int  # number of findings in both
    other_settings: tuple[str, ...]  # targets whose settings differ
    changed: tuple[Change, ...]

    @cached_property
    def summary(self) -> str:
        """One sentence."""
        if not self.changed:
            return f"No verdict and no number of {self.compared} statements changed."
        counts = {what: sum(change.what == what for change in self.changed) for what in ("verdict", "new", "gone")}
        numbers = [change for change in self.changed if change.shifts]
        n_beyond = sum(change.beyond is True for change in numbers)
        parts = [f"{counts['verdict']} verdicts" if counts["verdict"] != 1 else "1 verdict",
                 f"numbers of {len(numbers)}, of {n_beyond} beyond their error"]  # fmt: skip
        rest = "".join(
            f"; {counts[what]} {word}" for what, word in (("new", "are new"), ("gone", "are gone")) if counts[what]
        )
        return f"Of {self.compared} statements changed: {' and '.join(parts)}{rest}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": "scansnap changes 1", "against": self.against, "rule": RULE, "summary": self.summary,
            "targets": list(self.targets), "compared": self.compared, "other_settings": list(self.other_settings),
            "changes": [
                {"target": change.target, "says": change.says, "reference": change.reference, "kind": change.kind,
                 "what": change.what, "verdict": list(change.verdict), "counted": list(change.counted),
                 "beyond_error": change.beyond,
                 "numbers": [{"case": s.case, "before": [s.before.value, s.before.half_width],
                              "after": [s.after.value, s.after.half_width], "beyond_error": s.beyond}
                             for s in change.shifts]}
                for change in self.changed
            ],
        }  # fmt: skip


def earlier(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The manifest to compare with; refused if it has none of the wanted targets."""
    file = path / MANIFEST if path.is_dir() else path
    if not file.is_file():
        raise InputError("--against", str(path), f"the {MANIFEST} of an earlier reproduction", "no such file")
    manifest = parse_manifest(file)
    if manifest is None:
        raise InputError("--against", str(path), f"the {MANIFEST} of an earlier reproduction")
    if manifest["format"] != FORMAT:
        raise InputError("--against", str(path), f"a manifest of this version ({FORMAT!r}, not {manifest['format']!r})",
                         "reproduce it again")  # fmt: skip
    if not set(manifest["targets"]) & set(names):
        raise InputError("--against", str(path), f"a manifest with one of {', '.join(names)}",
                         f"it has {', '.join(manifest['targets']) or 'none'}")  # fmt: skip
    return manifest


def compare(old: dict[str, Any], new: dict[str, Any], names: Sequence[str], against: Path) -> Changes:
    """Compare two manifests over the named targets in both."""
    shared = [name for name in names if name in old["targets"] and name in new["targets"]]
    before, after = ({name: manifest["targets"][name] for name in shared} for manifest in (old, new))
    pairs = [(name, *pair) for name in shared for pair in _pairs(before[name]["findings"], after[name]["findings"])]
    changed = tuple(change for name, a, b in pairs if (change := _change(name, a, b)) is not None)
    differ = tuple(name for name in shared if before[name]["settings"] != after[name]["settings"])
    return Changes(str(against), tuple(shared), sum(bool(a and b) for _, a, b in pairs), differ, changed)


def write(changes: Changes, out: Path) -> Path:
    """Write changes.json beside the manifest."""
    announce((CHANGES,), out)
    put(out / CHANGES, to_json(changes.to_dict(), indent=2) + "\n")
    return out / CHANGES


def _pairs(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Findings with the same text, reference and kind; an empty one where a side lacks it."""
    before, after = ({(f["says"], f["reference"], f["kind"]): f for f in findings} for findings in (old, new))
    for key in (*after, *(key for key in before if key not in after)):
        yield before.get(key, {}), after.get(key, {})


def _change(target: str, before: dict[str, Any], after: dict[str, Any]) -> Change | None:
    finding = after or before
    shifts = tuple(_shifts(before.get("numbers", []), after.get("numbers", []))) if before and after else ()
    verdicts, counts = ((read(before), read(after)) for read in (lambda f: f.get("verdict", ""), _counted))
    if verdicts[0] == verdicts[1] and counts[0] == counts[1] and not shifts:
        return None
    return Change(target, finding["says"], finding["reference"], finding["kind"], verdicts, counts, shifts)


def _shifts(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[Shift]:
    before, after = ({(entry["case"], i if not entry["case"] else 0): _number(entry) for i, entry in enumerate(numbers)}
                     for numbers in (old, new))  # fmt: skip
    for key in after:
        if key in before and beyond(Number("", before[key].value, 0.0), Number("", after[key].value, 0.0)):
            yield Shift(key[0], before[key], after[key])


def _number(entry: dict[str, Any]) -> Number:
    return Number(entry["case"], to_float(entry["value"]), to_float(entry["half_width"]))


def _counted(finding: dict[str, Any]) -> str:
    if not finding:
        return ""
    undecided = f", {finding['undecided']} undecided" if finding["undecided"] else ""
    return f"{finding['agree']} of {finding['of']}{undecided}"


def _format(number: Number) -> str:
    exact = number.half_width == 0
    return f"{number.value:.6g}".replace("-", "−") if exact else plus_minus(number.value, number.half_width)

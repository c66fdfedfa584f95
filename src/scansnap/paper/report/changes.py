"""What changed since an earlier reproduction: verdicts, counts and numbers, and whether by more than their error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from scansnap.checks import InputError
from scansnap.measure.comparison import said
from scansnap.paper.figure import ROUNDING, Number, beyond
from scansnap.paper.report.manifest import FORMAT, MANIFEST, announce, parsed
from scansnap.storage import put
from scansnap.storage.json_text import to_float, to_json

CHANGES = "changes.json"
RULE = (
    "A number with 95% intervals ±a before and ±b after has changed beyond its error if it differs by more than "
    f"√(a² + b²); one without noise if it differs by more than a {1 / ROUNDING:,.0f}th of itself; one without a known "
    "interval (a single seed) cannot be told."
)
What = Literal["verdict", "number", "count", "new", "gone"]


@dataclass(frozen=True)
class Shift:
    """One number of a finding that is another one now."""

    case: str
    before: Number
    after: Number

    @property
    def beyond(self) -> bool | None:
        return beyond(self.before, self.after)

    def __str__(self) -> str:
        case = f"{self.case}: " if self.case else ""
        return f"{case}{_told(self.before)} → {_told(self.after)}"


@dataclass(frozen=True)
class Change:
    """A finding that is not what it was. A verdict or count is empty on the side where the finding is not."""

    target: str
    says: str
    reference: str
    kind: str
    verdict: tuple[str, str]
    counted: tuple[str, str]
    shifts: tuple[Shift, ...]

    @property
    def what(self) -> What:
        """The weightiest thing about it."""
        before, after = self.verdict
        if not before or not after:
            return "new" if after else "gone"
        return "verdict" if before != after else "number" if self.shifts else "count"

    @property
    def beyond(self) -> bool | None:
        """Whether some number changed beyond its error; None if that cannot be told of any that changed."""
        found = [shift.beyond for shift in self.shifts]
        return True if True in found else None if None in found or not found else False


@dataclass(frozen=True)
class Changes:
    """All that is not what it was, of what both reproductions have."""

    against: str
    targets: tuple[str, ...]  # that both have
    compared: int  # findings that both have
    other_settings: tuple[str, ...]  # targets that were made differently, so that they may differ
    found: tuple[Change, ...]

    @cached_property
    def summary(self) -> str:
        """In a sentence."""
        if not self.found:
            return f"No verdict and no number of {self.compared} statements changed."
        counts = {what: sum(one.what == what for one in self.found) for what in ("verdict", "new", "gone")}
        numbers = [one for one in self.found if one.shifts]
        far = sum(one.beyond is True for one in numbers)
        parts = [f"{counts['verdict']} verdicts" if counts["verdict"] != 1 else "1 verdict",
                 f"numbers of {len(numbers)}, of {far} beyond their error"]  # fmt: skip
        rest = "".join(
            f"; {counts[what]} {word}" for what, word in (("new", "are new"), ("gone", "are gone")) if counts[what]
        )
        return f"Of {self.compared} statements changed: {' and '.join(parts)}{rest}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": "scansnap changes 1", "against": self.against, "rule": RULE, "summary": self.summary,
            "targets": list(self.targets), "compared": self.compared, "other_settings": list(self.other_settings),
            "changes": [
                {"target": one.target, "says": one.says, "reference": one.reference, "kind": one.kind,
                 "what": one.what, "verdict": list(one.verdict), "counted": list(one.counted),
                 "beyond_error": one.beyond,
                 "numbers": [{"case": s.case, "before": [s.before.value, s.before.half_width],
                              "after": [s.after.value, s.after.half_width], "beyond_error": s.beyond}
                             for s in one.shifts]}
                for one in self.found
            ],
        }  # fmt: skip


def earlier(path: Path, wanted: Sequence[str]) -> dict[str, Any]:
    """The manifest to compare with, refused before any work if there is nothing in it to compare."""
    file = path / MANIFEST if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            "--against", str(path), f"the {MANIFEST} of an earlier reproduction, and there is no such file"
        )
    found = parsed(file)
    if found is None:
        raise InputError(
            "--against", str(path), f"the {MANIFEST} of an earlier reproduction, and that is something else"
        )
    if found["format"] != FORMAT:
        raise InputError("--against", str(path), f"a manifest of this version ({FORMAT!r}, not {found['format']!r}); "
                         "make that one anew")  # fmt: skip
    if not set(found["targets"]) & set(wanted):
        raise InputError("--against", str(path), f"a manifest with one of {', '.join(wanted)}; that one has "
                         f"{', '.join(found['targets']) or 'none'}")  # fmt: skip
    return found


def compare(old: dict[str, Any], new: dict[str, Any], names: Sequence[str], against: Path) -> Changes:
    """Two manifests, over the targets named that both have."""
    both = [name for name in names if name in old["targets"] and name in new["targets"]]
    was, now = ({name: manifest["targets"][name] for name in both} for manifest in (old, new))
    pairs = [(name, *pair) for name in both for pair in _paired(was[name]["findings"], now[name]["findings"])]
    found = tuple(change for name, before, after in pairs if (change := _change(name, before, after)) is not None)
    differ = tuple(name for name in both if was[name]["settings"] != now[name]["settings"])
    return Changes(str(against), tuple(both), sum(bool(b and a) for _, b, a in pairs), differ, found)


def write(changes: Changes, out: Path) -> Path:
    """changes.json beside the manifest."""
    announce((CHANGES,), out)
    put(out / CHANGES, to_json(changes.to_dict(), indent=2) + "\n")
    return out / CHANGES


def _paired(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Findings of the same words, reference and kind; an empty one beside what the other side lacks."""
    was, now = ({(f["says"], f["reference"], f["kind"]): f for f in found} for found in (old, new))
    for key in (*now, *(key for key in was if key not in now)):
        yield was.get(key, {}), now.get(key, {})


def _change(target: str, before: dict[str, Any], after: dict[str, Any]) -> Change | None:
    told = after or before
    shifts = tuple(_shifts(before.get("numbers", []), after.get("numbers", []))) if before and after else ()
    verdicts, counts = ((read(before), read(after)) for read in (lambda f: f.get("verdict", ""), _counted))
    if verdicts[0] == verdicts[1] and counts[0] == counts[1] and not shifts:
        return None
    return Change(target, told["says"], told["reference"], told["kind"], verdicts, counts, shifts)


def _shifts(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[Shift]:
    was, now = ({(one["case"], i if not one["case"] else 0): _number(one) for i, one in enumerate(numbers)}
                for numbers in (old, new))  # fmt: skip
    for key in now:
        if key in was and beyond(Number("", was[key].value, 0.0), Number("", now[key].value, 0.0)):
            yield Shift(key[0], was[key], now[key])


def _number(told: dict[str, Any]) -> Number:
    return Number(told["case"], to_float(told["value"]), to_float(told["half_width"]))


def _counted(finding: dict[str, Any]) -> str:
    if not finding:
        return ""
    still = f", {finding['undecided']} undecided" if finding["undecided"] else ""
    return f"{finding['agree']} of {finding['of']}{still}"


def _told(number: Number) -> str:
    return f"{number.value:.6g}".replace("-", "−") if number.half_width == 0 else said(number.value, number.half_width)

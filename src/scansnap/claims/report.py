"""The report of `scansnap.verify` and `scansnap.survey`: claims, totals, and tables of them."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scansnap.claims.claim import STATUSES, Claim, Kind, Status

if TYPE_CHECKING:
    import pandas as pd

_VERBS = {"holds": "hold", "fails": "fail", "undecided": "are undecided", "not applicable": "do not apply"}
_FIELDS = ("name", "reference", "statement", "kind", "status", "observed", "measured", "predicted", "margin", "reason",
           "implied_by", "repeats", "alternative", "quantity")  # fmt: skip
_COLUMNS = ["reference", "statement", "status", "measured", "predicted", "margin", "reason"]  # in a notebook


@dataclass(frozen=True, repr=False)
class Report:
    """All claims for one setting: a sequence of `Claim`, also indexed by name.

    Attributes
    ----------
    setting
        The setting in one line.
    claims
        The claims in the order of the paper.

    Examples
    --------
    >>> import scansnap as ss
    >>> report = ss.verify(ss.SequenceClasses.textbook(), checks=["conservation"])
    >>> report["conservation-z"].status
    'holds'
    >>> report.to_dataframe().loc["conservation-y", ["kind", "status"]].tolist()
    ['identity', 'holds']
    """

    setting: str
    claims: tuple[Claim, ...]

    def __iter__(self) -> Iterator[Claim]:
        return iter(self.claims)

    def __getitem__(self, name: str) -> Claim:
        for claim in self.claims:
            if claim.name == name:
                return claim
        raise KeyError(f"no claim {name!r}; there are {', '.join(claim.name for claim in self.claims)}")

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def failures(self) -> list[Claim]:
        """The claims that fail although their assumptions are met."""
        return [claim for claim in self.claims if claim.status == "fails"]

    def counts(self, kind: Kind = "measured") -> dict[Status, int]:
        """The number of claims of a kind by status."""
        return {status: sum(claim.kind == kind and claim.status == status for claim in self) for status in STATUSES}

    @property
    def summary(self) -> str:
        """The number of independent statements of the paper that hold, and of those that depend on others."""
        independent, dependent = self.counts(), self.counts("dependent")
        rest = ", ".join(f"{n} {_VERBS[status]}" for status, n in independent.items() if n and status != "holds")
        text = f"{independent['holds']} of {sum(independent.values())} independent statements hold"
        text += f", {rest}" if rest else ""
        if not any(dependent.values()):
            return f"{text}."
        return f"{text}; of {sum(dependent.values())} that follow from others or repeat them {dependent['holds']} hold."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per claim, indexed by name; figures, intervals and assumptions are left out.

        Columns: reference (place in the paper), statement, kind, status, observed, measured, predicted, margin, reason,
        implied_by, repeats, alternative (the claim of ours in its place) and quantity.
        """
        import pandas as pd

        rows = [
            {name: getattr(claim, name) for name in _FIELDS}
            | {"implied_by": ", ".join(claim.implied_by), "repeats": ", ".join(claim.repeats),
               "alternative": "" if claim.alternative is None else claim.alternative.claim.name}
            for claim in self.claims
        ]  # fmt: skip
        table = pd.DataFrame(rows).set_index("name")
        return table.astype(dict.fromkeys(("measured", "predicted", "margin"), "float64"))

    def __repr__(self) -> str:
        lines = [f"<Report of {len(self)} claims: {self.setting}>"]
        for status in STATUSES:
            names = [claim.name for claim in self if claim.status == status]
            if names:
                lines.append(f"  {status} ({len(names)}): {', '.join(names)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        width = max(len(claim.reference) for claim in self.claims)
        lines = [self.setting]
        for claim in self.claims:
            margin = "" if claim.margin is None else f"margin {claim.margin:6.2f}"
            lines.append(f"  {claim.reference:<{width}}  {claim.status:<14}  {margin:<14}  {claim.reason}".rstrip())
            if claim.alternative is not None:
                lines.append(f"  {'':<{width}}  {claim.alternative}")
        lines.append(self.summary)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import pandas as pd

        heading = f"<p>{html.escape(self.setting)}<br>{html.escape(self.summary)}</p>"
        table = self.to_dataframe()[_COLUMNS].reset_index()
        with pd.option_context("display.max_colwidth", None):
            return heading + table.to_html(index=False, na_rep="", float_format="{:.4g}".format)

"""Parameter groups by role, for any optimiser: `param_groups`, and the table of what got which rate."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from torch import nn

from scansnap.checks import InputError, check_float
from scansnap.rates.fused import make_part
from scansnap.rates.ratio import Ratio, RatioSpec, as_plain, factor_at, parse_ratio
from scansnap.rates.roles import NO_ROLE, ROLES, Assignment, Rules, assign_roles

NAMED = 5  # parameters without a role in a warning


def param_groups(
    model: nn.Module,
    *,
    lr: float,
    qk: RatioSpec = 1.0,
    vo: RatioSpec = 1.0,
    mlp: RatioSpec = 1.0,
    embedding: RatioSpec = 1.0,
    norm: RatioSpec = 1.0,
    upper: RatioSpec = 1.0,
    rules: Rules | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups with a learning rate for each role, for any optimiser of PyTorch.

    Fused projections are split exactly: queries, keys and values of GPT-2's ``c_attn`` are trained as if they were
    three parameters. Tied weights count once. Parameters without a known role keep the rate ``lr``, with a warning.

    Parameters
    ----------
    model : torch.nn.Module
        A model of Hugging Face, of nanoGPT's style, of ``torch.nn``, or any other with ``rules``.
    lr : float
        The base learning rate.
    qk, vo, mlp, embedding, norm : float, Ratio, sequence or callable
        Factors of ``lr`` by role: query/key, value/output, feed-forward, embedding (and output head), norm. A sequence
        has one factor for each layer; a function takes (layer, number of layers). A `scansnap.rates.Ratio` applies to a
        part of the training and needs `scansnap.rates.ratio_schedule`.
    upper : float, Ratio, sequence or callable
        A further factor of query and key weights in the upper half of the layers.
    rules : dict or callable, optional
        From regular expressions of parameter names, or as a function (name, parameter): a role, a number (the factor of
        ``lr``), or the roles of equal consecutive parts, such as ``("qk", "qk", "vo")``.

    Returns
    -------
    list of dict
        One group for each role and rate, with ``params``, ``lr``, ``role``, ``ratio``, ``ratios`` and ``names``.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 8)
    >>> groups = ss.param_groups(model, lr=1e-3, qk=2, norm=0.5)
    >>> [(group["role"], group["lr"]) for group in groups]
    [('qk', 0.002), ('vo', 0.001), ('mlp', 0.001), ('norm', 0.0005)]
    >>> optimizer = torch.optim.AdamW(groups)
    """
    rated = _rated(model, lr, {"qk": qk, "vo": vo, "mlp": mlp, "embedding": embedding, "norm": norm}, upper, rules)
    unknown = [row.assignment.label for row in rated if row.assignment.role == NO_ROLE]
    if unknown:
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        warnings.warn(f"parameters without a role keep the base learning rate: {', '.join(unknown[:NAMED])}{more}; "
                      "pass rules= to give them one", stacklevel=2)  # fmt: skip
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rated:
        assignment, plain = row.assignment, as_plain(row.ratios)
        group = groups.setdefault(
            (assignment.role, *plain),
            {"params": [], "lr": row.lr, "role": assignment.role, "ratio": factor_at(plain, 0.0), "ratios": plain,
             "names": []},
        )  # fmt: skip
        parameter: nn.Parameter = assignment.parameter
        if assignment.part is not None:
            parameter = make_part(assignment.parameter, assignment.part, assignment.name)
        group["params"].append(parameter)
        group["names"].append(assignment.label)
    order = (*ROLES, NO_ROLE)
    return sorted(
        groups.values(), key=lambda group: order.index(group["role"]) if group["role"] in order else len(order)
    )


def describe_groups(
    model: nn.Module, *, lr: float = 1.0, rules: Rules | None = None, **ratios: RatioSpec
) -> GroupTable:
    """The table of what gets which rate, with the arguments of `param_groups`; nothing is changed.

    Returns
    -------
    GroupTable
        ``print`` shows a line for each group and the names of parameters without a role; ``rows`` has every parameter.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 8)
    >>> print(ss.describe_groups(model, lr=1e-3, qk=2))
    role  lr     ratio  tensors  parameters  example
    qk    0.002      2        4         144  self_attn.in_proj_weight[q]
    vo    0.001      1        4         144  self_attn.in_proj_weight[v]
    mlp   0.001      1        4         144  linear1.weight
    norm  0.001      1        4          32  norm1.weight
    """
    upper = ratios.pop("upper", 1.0)
    wrong = sorted(set(ratios) - set(ROLES))
    if wrong:
        raise InputError(wrong[0], ratios[wrong[0]], f"one of the arguments lr, rules, upper, {', '.join(ROLES)}")
    specs = {role: ratios.get(role, 1.0) for role in ROLES}
    return GroupTable(tuple(_rated(model, lr, specs, upper, rules)))


@dataclass(frozen=True)
class RatedParameter:
    """A parameter, or a part of a fused one, with its ratios and the learning rate at the start."""

    assignment: Assignment
    ratios: tuple[Ratio, ...]
    lr: float

    @property
    def size(self) -> int:
        """Number of entries."""
        n = 1
        for length in self.assignment.shape:
            n *= length
        return n


@dataclass(frozen=True)
class GroupTable:
    """What `describe_groups` returns: every trained parameter with its role and rate."""

    parameters: tuple[RatedParameter, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each parameter or part: name, role, layer, shape, ratio, lr."""
        return [{"name": row.assignment.label, "role": row.assignment.role, "layer": row.assignment.layer,
                 "shape": row.assignment.shape, "ratio": factor_at(as_plain(row.ratios), 0.0), "lr": row.lr}
                for row in self.parameters]  # fmt: skip

    def __str__(self) -> str:
        groups: dict[tuple[str, str], list[RatedParameter]] = {}
        for row in self.parameters:
            groups.setdefault((row.assignment.role, _in_words(row.ratios)), []).append(row)
        lines = [("role", "lr", "ratio", "tensors", "parameters", "example")]
        for (role, ratio), rows in sorted(groups.items(), key=lambda item: [*ROLES, item[0][0]].index(item[0][0])):
            lines.append((role, f"{rows[0].lr:g}", ratio, str(len(rows)), f"{sum(row.size for row in rows):,}",
                          rows[0].assignment.label))  # fmt: skip
        widths = [max(len(line[i]) for line in lines) for i in range(6)]
        right = (False, False, True, True, True, False)
        text = ["  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True))
                .rstrip() for line in lines]  # fmt: skip
        unknown = [row.assignment.label for row in self.parameters if row.assignment.role == NO_ROLE]
        return "\n".join([*text, *(f"no role: {name}" for name in unknown)])


def _in_words(ratios: tuple[Ratio, ...]) -> str:
    changing = [ratio for ratio in ratios if ratio.value != 1]
    words = [f"{r.value:g}" if r.is_constant else f"{r.value:g} ({r.start:g} to {r.end:g})" for r in changing]
    return " × ".join(words) or "1"


def _rated(
    model: nn.Module, lr: float, specs: dict[str, RatioSpec], upper: RatioSpec, rules: Rules | None
) -> list[RatedParameter]:
    base = check_float("lr", lr, above=0)
    assignments = assign_roles(model, rules)
    roles = {assignment.role for assignment in assignments}
    layers = [a.layer for a in assignments if a.layer is not None and a.role in ("qk", "vo", "mlp")]
    n_layers = max(layers, default=-1) + 1
    for role, spec in (*specs.items(), ("upper", upper)):
        of = "qk" if role == "upper" else role
        if of not in roles and not (isinstance(spec, int | float) and spec == 1):
            raise InputError(role, spec, f"1, because the model has no parameter with the role {of}", "pass rules=")
    result = []
    for assignment in assignments:
        ratios = [Ratio(1.0 if assignment.ratio is None else assignment.ratio)]
        if assignment.role in specs:
            ratios = [parse_ratio(assignment.role, specs[assignment.role], assignment.layer, n_layers)]
        if assignment.role == "qk" and assignment.layer is not None and 2 * assignment.layer >= n_layers:
            ratios.append(parse_ratio("upper", upper, assignment.layer, n_layers))
        kept = tuple(ratio for ratio in ratios if ratio.value != 1) or (Ratio(1.0),)
        result.append(RatedParameter(assignment, kept, base * factor_at(as_plain(kept), 0.0)))
    return result

"""The role of every parameter, from names and modules: ``qk``, ``vo``, ``mlp``, ``embedding``, ``norm`` or none.

qk         query and key projections, and biases of attention logits
vo         value and output projections of attention
mlp        feed-forward layers and experts
embedding  token and position embeddings, and the output head
norm       gains and biases of normalisation layers, QK-norm among them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from scansnap.checks import InputError, check_float
from scansnap.rates.fused import Part, equal_parts, split_fused

ROLES = ("qk", "vo", "mlp", "embedding", "norm")
NO_ROLE = "none"  # of a parameter that no rule knows
RULED = "rule"  # of a parameter whose ratio the user gave
Rule = str | float | Sequence[str]
Rules = Mapping[str, Rule] | Callable[[str, Tensor], Rule | None]

_ATTENTION = re.compile(r"attn|attention|mha")
_LOGIT_BIAS = re.compile(r"relative_attention_bias|rel_pos_bias")
_NORM = re.compile(r"norm|^ln(_|\d|$)|_ln$")
_EMBEDDING = re.compile(r"embed|^(wte|wpe|lm_head|head|w_e|w_u|w_pos|b_u|cls_token|pos_emb|tok_emb)$")
_QK = re.compile(
    r"^((to_|w)?(q|k|qk)|[qk]_(proj|lin|attn|[ab]_proj|proj_(weight|bias))|(query|key)(_proj)?|[wb]_[qk]|bias_k)$"
)
_VO = re.compile(
    r"^((to_|w)?(v|o|out)|[vo]_(proj|lin|proj_weight)|out_(proj|lin)|value(_proj)?|[wb]_[vo]|bias_v|c_proj|dense|proj)$"
)
_MLP = re.compile(
    r"mlp|ffn|feed_?forward|densereludense|intermediate|experts|moe|^(fc_?[12]|c_fc|linear[12]|lin[12]|w[1-3]|wi(_[01])?)$"
)
_BLOCK_OUTPUT = re.compile(r"(^|\.)(layers?|h|blocks?)\.\d+\.output\.dense$")  # the second MLP matrix of BERT and ViT


@dataclass(frozen=True)
class Assignment:
    """One parameter, or one part of a fused parameter, with its role."""

    name: str
    role: str
    layer: int | None  # the first number in its name
    parameter: nn.Parameter
    part: Part | None = None  # of a fused parameter
    ratio: float | None = None  # that a rule states

    @property
    def label(self) -> str:
        """``h.0.attn.c_attn.weight[q]`` for a part."""
        return self.name if self.part is None else f"{self.name}[{self.part.name}]"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.parameter.shape if self.part is None else self.part.view(self.parameter).shape)


def assign_roles(model: nn.Module, rules: Rules | None = None) -> list[Assignment]:
    """Every trained parameter with its role, parts of fused projections one by one; tied parameters count once."""
    if not isinstance(model, nn.Module):
        raise InputError("model", type(model).__name__, "a torch.nn.Module")
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    modules = dict(model.named_modules())
    parameters: dict[int, nn.Parameter] = {}
    for path, module in modules.items():
        for name, parameter in module.named_parameters(path, recurse=False):
            if parameter.requires_grad:
                parameters[id(parameter)] = parameter
                owners.setdefault(id(parameter), []).append((name, module))
    result: list[Assignment] = []
    used: set[str] = set()
    for key, parameter in parameters.items():
        (name, module), *others = owners[key]
        roles = _roles(name, module, parameter, rules, used, modules)
        for other, other_module in others:
            tied = _roles(other, other_module, parameter, rules, used, modules)
            if [a.role for a in tied] != [a.role for a in roles]:
                if roles[0].role == NO_ROLE:
                    roles = tied
                elif tied[0].role != NO_ROLE:
                    both = f"{name} ({roles[0].role}) tied to {other} ({tied[0].role})"
                    raise InputError("model", both, "tied weights of one role",
                                     "pass rules= with one role for both names")  # fmt: skip
        result += roles
    if isinstance(rules, Mapping):
        for pattern in rules:
            if pattern not in used:
                raise InputError("rules", pattern, "a regular expression that matches a trained parameter")
    return result


def _roles(
    name: str, module: nn.Module, parameter: nn.Parameter, rules: Rules | None, used: set[str],
    modules: Mapping[str, nn.Module],
) -> list[Assignment]:  # fmt: skip
    rule = _rule_for(name, parameter, rules, used)
    layer = layer_of(name)
    if rule is None:
        parent = modules.get(name.rpartition(".")[0].rpartition(".")[0])
        parts = split_fused(name, module, parent, parameter)
        if parts:
            return [Assignment(name, role, layer, parameter, part) for role, part in parts]
        return [Assignment(name, role_of(name, module), layer, parameter)]
    if isinstance(rule, str):
        if rule not in (*ROLES, NO_ROLE):
            raise InputError(
                "rules", rule, f"a role ({', '.join((*ROLES, NO_ROLE))}), roles of equal parts, or a ratio"
            )
        return [Assignment(name, rule, layer, parameter)]
    if isinstance(rule, Sequence):
        wrong = [role for role in rule if role not in (*ROLES, NO_ROLE)]
        if wrong or not rule:
            raise InputError("rules", list(rule), f"roles ({', '.join((*ROLES, NO_ROLE))})")
        parts = equal_parts(name, module, parameter, tuple(rule))
        return [Assignment(name, role, layer, parameter, part) for role, part in parts]
    return [Assignment(name, RULED, layer, parameter, ratio=check_float("rules", rule, least=0))]


def _rule_for(name: str, parameter: nn.Parameter, rules: Rules | None, used: set[str]) -> Rule | None:
    if rules is None:
        return None
    if isinstance(rules, Mapping):
        for pattern, rule in rules.items():
            try:
                matches = re.search(pattern, name)
            except re.error as error:
                raise InputError("rules", pattern, "a regular expression", str(error)) from None
            if matches:
                used.add(pattern)
                return rule
        return None
    if callable(rules):
        return rules(name, parameter)
    raise InputError("rules", rules, "a dict of regular expressions, or a function of name and parameter")


def role_of(name: str, module: nn.Module) -> str:
    """The role of a parameter that is not fused, by its name and the module that holds it."""
    parts = name.lower().split(".")
    leaf = parts[-2] if parts[-1] in ("weight", "bias", "w", "b") and len(parts) > 1 else parts[-1]
    path, kind = ".".join(parts[:-1]), type(module).__name__.lower()
    if _LOGIT_BIAS.search(name.lower()):
        return "qk"
    if "norm" in kind or _NORM.search(leaf):
        return "norm"
    if isinstance(module, nn.Embedding) or _EMBEDDING.search(leaf) or any("embed" in part for part in parts[:-1]):
        return "embedding"
    in_mlp = any(_MLP.search(part) for part in parts[:-1]) or _BLOCK_OUTPUT.search(path) is not None
    in_attention = any(_ATTENTION.search(part) for part in (*parts[:-1], kind))
    last_attention = max((i for i, part in enumerate(parts) if _ATTENTION.search(part)), default=-1)
    last_mlp = max((i for i, part in enumerate(parts) if _MLP.search(part)), default=-1)
    if in_mlp and last_mlp >= last_attention:
        return "mlp"
    if _QK.search(leaf) and (in_attention or len(leaf) > 2):
        return "qk"
    if _VO.search(leaf) and in_attention:
        return "vo"
    if re.search(r"^([vo]_(proj|lin)|to_(v|out)|w_[vo])$", leaf):
        return "vo"
    if _BLOCK_OUTPUT.search(path) or (leaf in ("w_in", "w_out", "b_in", "b_out")):
        return "mlp"
    return NO_ROLE


def layer_of(name: str) -> int | None:
    """The first number among the parts of a name: ``transformer.h.3.attn.c_attn.weight`` is of layer 3."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)

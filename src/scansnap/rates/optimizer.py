"""A torch optimiser whose update is a rule of the registry that ``simulate`` and the text models use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from scansnap.checks import InputError, check_float
from scansnap.dynamics.optimizers import InPlaceOptimizer


class RuleOptimizer(Optimizer):
    """Update parameters by a registered rule: ``sgd``, ``momentum``, ``adamw``, ``sign``, ``muon``, or your own.

    Muon updates matrices of the roles qk, vo and mlp. All other parameters are updated by AdamW, at ``adam_share``
    times the rate of their group.

    Parameters
    ----------
    params : iterable
        Parameters, or the groups of `param_groups`.
    lr : float
        Learning rate of groups that have none.
    rule : str
        A name in the registry of `scansnap.register_optimizer`.
    weight_decay : float
        Decoupled with adamw and muon.
    adam_share : float
        AdamW's rate over that of the group, where Muon does not apply.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 8)
    >>> optimizer = ss.rates.RuleOptimizer(ss.param_groups(model, lr=0.02, qk=2), rule="muon")
    >>> model(torch.randn(3, 1, 8)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, *, rule: str = "adamw", weight_decay: float = 0.0,
        adam_share: float = 0.1,
    ) -> None:  # fmt: skip
        InPlaceOptimizer.of(rule, weight_decay=float(weight_decay))
        defaults = {"lr": check_float("lr", lr, above=0), "rule": rule, "weight_decay": float(weight_decay),
                    "adam_share": check_float("adam_share", adam_share, above=0)}  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim > 2 and self._rule_of(group, parameter)[0] == rule == "muon":
                    remedy = "interleaved projections (GPT-NeoX) have none of queries; use adamw or sgd"
                    raise InputError("params", f"a parameter of shape {tuple(parameter.shape)}", "matrices", remedy)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter with a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                name, share = self._rule_of(group, parameter)
                update, state = InPlaceOptimizer.of(name, weight_decay=group["weight_decay"]), self.state[parameter]
                if "step" not in state:
                    state.update(update.start(parameter.data), step=0)
                moments = {key: value for key, value in state.items() if key != "step"}
                eta = torch.as_tensor(share * group["lr"], dtype=parameter.dtype, device=parameter.device)
                update.update(parameter.data, gradient.neg(), moments, eta=eta, step=state["step"])
                state["step"] += 1
        return loss

    @staticmethod
    def _rule_of(group: dict[str, Any], parameter: Tensor) -> tuple[str, float]:
        matrix = parameter.ndim > 1 and group.get("role", "qk") in ("qk", "vo", "mlp")
        if group["rule"] != "muon" or matrix:
            return group["rule"], 1.0
        return "adamw", group["adam_share"]

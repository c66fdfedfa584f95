"""Alerts fire when they should, once, everywhere; and nothing that listens to a probe reaches the training."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from refusals import refused
from scansnap.probe import alerts
from scansnap.probe.probe import Probe

M, T, WIDTH = 11, 9, 8


class Attention(nn.Module):
    """Two heads whose logits are ``sharpness`` times those of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(M, WIDTH)
        self.sharpness = torch.ones(2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).unflatten(-1, (2, -1)).transpose(1, 2)
        q = x * self.sharpness[:, None, None]
        return nn.functional.scaled_dot_product_attention(q, x, x, is_causal=True)


def run(sharpness: list[list[float]], out: Path | None = None, first: int = 0, **options: Any) -> Probe:
    """One measurement for each sharpness of the two heads."""
    model = Attention()
    probe = Probe(model, torch.arange(2 * T).reshape(2, T) % M, every=1, out=out, max_bytes=10**9, **options)
    for step, values in enumerate(sharpness, first):
        model.sharpness = torch.tensor(values)
        probe.step(step)
    return probe


def steps(probe: Probe, name: str) -> list[int]:
    return [alert.step for alert in probe.fired_alerts if alert.name.startswith(name)]


CALM, SHARP, ONE = [1.0, 1.0], [1e3, 1e3], [1e3, 1.0]
ALERTS = {
    "max_logit": alerts.max_logit(100),
    "entropy_collapse": alerts.entropy_collapse(0.05, share=1.0),
    "nonfinite": alerts.nonfinite(),
}


@pytest.mark.parametrize(
    ("name", "values", "fires"),
    [
        ("max_logit", [CALM, CALM], []),
        ("max_logit", [CALM, ONE, SHARP, CALM, SHARP], [1]),  # once
        ("entropy_collapse", [CALM, ONE, CALM], []),  # half of the heads are not all
        ("entropy_collapse", [CALM, ONE, SHARP], [2]),
        ("nonfinite", [CALM, SHARP], []),
        ("nonfinite", [CALM, [float("nan"), 1.0], [float("nan"), 1.0], CALM, [1.0, float("nan")]], [1, 4]),
    ],
)
@pytest.mark.filterwarnings("ignore:step")
def test_an_alert_fires_when_it_begins(name: str, values: list[list[float]], fires: list[int]) -> None:
    assert steps(run(values, alerts=[ALERTS[name]]), name) == fires


def test_a_warning_reaches_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    sent: list[str] = []
    monkeypatch.setattr("scansnap.probe.listeners.alert_in_trackio", lambda title, text: sent.append(title))
    with pytest.warns(UserWarning, match=r"step 1: .*1 of 2 heads \(layer 0: 0\)"):
        probe = run([CALM, ONE], alerts=[alerts.max_logit(100)], on_alert=calls.append)
    assert calls == probe.fired_alerts
    assert sent == ["max_logit(100)"]


@pytest.mark.filterwarnings("ignore:step")
def test_a_resumed_training_is_not_warned_again(tmp_path: Path) -> None:
    """Its record has the warning's measurement; a training that goes back before it is warned."""
    options: dict[str, Any] = {"out": tmp_path / "probe.zarr", "alerts": [alerts.max_logit(100)]}
    calls: list[Any] = []
    run([CALM, SHARP, SHARP], **options)
    assert steps(run([SHARP], first=3, on_alert=calls.append, **options), "max_logit") == [1]
    assert calls == []
    assert steps(run([CALM, SHARP], first=1, on_alert=calls.append, **options), "max_logit") == [2]
    assert [alert.step for alert in calls] == [2]


@pytest.mark.filterwarnings("ignore:step")
def test_an_own_function_gets_the_history() -> None:
    seen: list[tuple[int, list[int], tuple[int, ...]]] = []

    def growing(history: Any) -> str | None:
        logits = history.heads("max_logit")
        seen.append((len(history), history.steps, logits.shape))
        assert np.isclose(history[-1]["attention/max_logit"], logits[-1].max())
        assert [values["probe/step"] for values in history[:]] == history.steps
        return "grows" if len(history) > 1 and logits[-1].max() > 10 * logits[0].max() else None

    probe = run([CALM, SHARP, CALM, SHARP], alerts=[growing, lambda history: len(history) == 4])
    assert [alert[:2] for alert in probe.fired_alerts] == [(1, "growing"), (3, "<lambda>")]
    assert seen == [(1, [0], (1, 1, 2)), (2, [0, 1], (2, 1, 2))]  # not called after its warning


@pytest.mark.parametrize("where", ["on_measure", "on_alert", "alerts", "answer"])
def test_what_raises_warns_once_and_the_probe_goes_on(where: str) -> None:
    def fails(*_: Any) -> Any:
        torch.rand(3)  # the training's random numbers stay the same
        if where == "answer":
            return 3.5
        raise RuntimeError("disk full")

    def fires(history: Any) -> str:
        return "something"

    fired = alerts.Alert("every time", fires, once=False)
    options = {"on_measure": {"on_measure": fails}, "on_alert": {"on_alert": fails, "alerts": [fired]},
               "alerts": {"alerts": [fails]}, "answer": {"alerts": [fails]}}[where]  # fmt: skip
    torch.manual_seed(7)
    expected = torch.rand(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = Attention()
        probe = Probe(model, torch.zeros(2, T, dtype=torch.long), every=1, **options)
        torch.manual_seed(7)
        for step in range(3):
            probe.step(step)
    assert torch.equal(torch.rand(1), expected)
    assert len(probe.dataset().step) == 3
    assert sum("training continues" in str(warning.message) for warning in caught) == 1


def test_ctrl_c_is_not_swallowed() -> None:
    def interrupt(values: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([CALM], on_measure=interrupt)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"alerts": "max_logit"}, "alerts"),
        ({"alerts": alerts.max_logit(100)}, "alerts"),
        ({"alerts": [alerts.max_logit]}, "alerts"),
        ({"alerts": [3]}, "alerts"),
        ({"alerts": [alerts.Alert]}, "alerts"),
        ({"on_measure": "print"}, "on_measure"),
        ({"on_alert": []}, "on_alert"),
    ],
)
def test_bad_options_are_refused_by_the_constructor(options: dict[str, Any], field: str, tmp_path: Path) -> None:
    with refused(field):
        run([], out=tmp_path / "probe.zarr", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("alert", "field"),
    [
        (lambda: alerts.max_logit(0), "threshold"),
        (lambda: alerts.max_logit("100"), "threshold"),  # type: ignore[arg-type]
        (lambda: alerts.entropy_collapse(1.5), "threshold"),
        (lambda: alerts.entropy_collapse(share=0), "share"),
    ],
)
def test_bad_thresholds_are_refused(alert: Any, field: str) -> None:
    with refused(field):
        alert()


def test_alerts_are_reached_from_the_package() -> None:
    assert ss.probe.alerts is alerts

"""The study of early warnings: its rules on planted runs, and all of it on tiny ones."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from scansnap.corpus.windows import Windows
from scansnap.paper.shared import job_pool
from scansnap.paper.shared.language_models import Scale, build
from scansnap.paper.studies import alerts as study
from scansnap.paper.studies.alerts import rules, runs
from scansnap.paper.studies.alerts.evaluation import (
    default_alerts,
    false_alarms,
    is_earlier,
    lead,
)
from scansnap.paper.studies.alerts.rules import ALERTS, BASELINES, RULES, calibrate, outcomes, threshold_of, warning
from scansnap.paper.studies.alerts.training import MODELS, LadderRun, query_key_weights, train
from scansnap.probe import alerts
from scansnap.probe.probe import Probe

STEPS = 100
SCALE = Scale(width=16, heads=2, length=17, batch=8, watched=8)


def falling(t):
    return np.where(t < 1, 7.0, 4.0)


def record(final, loss=falling, logit=5.0, entropy=0.8, norm=1.0):
    """A run with constant numbers; a function of the step where it is one."""
    t = np.arange(STEPS)
    values = [np.broadcast_to(value(t) if callable(value) else value, STEPS) for value in (loss, norm, logit, entropy)]
    heads = [value.astype(float)[::5, None, None] * np.ones((1, 1, 2)) for value in values[2:]]
    return {"final": np.array(final), "loss": values[0].astype(float), "grad_norm": values[1].astype(float),
            "steps": t[::5], "max_logit": heads[0], "entropy_rel": heads[1],
            "nonfinite": np.zeros(len(t[::5]), dtype=bool)}  # fmt: skip


def test_outcomes_are_against_the_best_lower_rate():
    late = record(4.5, lambda t: falling(t) + 0.52 * (t >= 50))
    nan = record(math.inf)
    nan["loss"] = np.append(np.full(20, 4.0), np.nan)
    ladder = {(0.001, 1.0): record(4.3), (0.01, 1.0): record(4.0), (0.1, 1.0): late, (1.0, 1.0): nan,
              (0.01, 8.0): record(4.05), (0.1, 8.0): record(4.2),
              (1.0, 8.0): record(4.1, lambda t: 4.0 + t)}  # fmt: skip
    kinds = {cell: outcome.kind for cell, outcome in outcomes(ladder).items()}
    assert kinds == {(0.001, 1.0): "healthy", (0.01, 1.0): "healthy", (0.1, 1.0): "collapsed", (1.0, 1.0): "diverged",
                     (0.01, 8.0): "healthy", (0.1, 8.0): "between", (1.0, 8.0): "diverged"}  # fmt: skip
    visible = {cell: outcome.visible for cell, outcome in outcomes(ladder).items()}
    assert visible[0.1, 1.0] == 55  # six of ten steps at 0.52 more are over 0.3 in the mean
    assert visible[1.0, 1.0] == 20
    assert math.isnan(visible[0.01, 1.0])
    alone = outcomes({(1.0, 1.0): record(9.0, lambda t: 4.0 + (t > 30))})  # no lower rate: against its own first loss
    assert alone[1.0, 1.0] == ("diverged", 0.0, 31.0)


def test_every_rule_sees_its_own_failure_and_no_other():
    jump = {"loss": lambda t: falling(t) + 4.0 * (t >= 50), "norm": lambda t: 1.0 + 49 * (t >= 50),
            "logit": lambda t: 5.0 + 5e3 * (t >= 50), "entropy": lambda t: 0.8 - 0.799 * (t >= 50)}  # fmt: skip
    thresholds = calibrate([record(4.0)]) | {"gradient_spike": 20.0, "loss_spike": 1.0, "loss_rise": 0.3}
    sees = {"loss": {"loss_spike", "loss_rise"}, "norm": {"gradient_norm", "gradient_spike"}, "logit": {"max_logit"},
            "entropy": {"entropy_collapse"}}  # fmt: skip
    for name, change in jump.items():
        steps = {rule: warning(score(record(4.0, **{name: change})), thresholds[rule]) for rule, score in RULES.items()}
        assert {rule for rule, step in steps.items() if step < math.inf} == sees[name]
        assert all(step == 50 for rule, step in steps.items() if rule in sees[name])


def test_a_threshold_is_above_every_healthy_score():
    assert [threshold_of(value) for value in (0.8, 100.0, 384.0, 24.0, 0.24)] == [1.0, 150.0, 500.0, 30.0, 0.3]
    assert threshold_of(math.inf) == threshold_of(math.nan) == math.inf
    healthy = [record(4.0, logit=value) for value in (5.0, 100.0)]
    thresholds = calibrate(healthy)
    assert thresholds["max_logit"] == 150.0
    assert all(warning(rule(run), thresholds[name]) == math.inf for name, rule in RULES.items() for run in healthy)


def planted(alarm=10.0, baseline=30.0, false=0, split_late=None):
    """Six collapsed and ten healthy runs in each test; the largest logit warns at ``alarm``."""
    rows = []
    for split in (runs.SEEDS, runs.ARCHITECTURE):
        for i in range(16):
            failed = i < 6
            row = dict.fromkeys(RULES, math.nan) | {"kind": "run", "split": split, "updates": STEPS}
            row |= {"outcome": "collapsed" if failed else "healthy", "visible": 40.0 if failed else math.nan}
            if failed:
                row |= dict.fromkeys(BASELINES, baseline + i) | {
                    "max_logit": (90 if split == split_late else alarm) + 2 * i
                }
            elif i - 6 < false:
                row["max_logit"] = 50.0
            rows.append(row)
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("options", "passes"),
    [({}, True), ({"alarm": 60.0}, False), ({"false": 2}, False), ({"split_late": runs.ARCHITECTURE}, False)],
    ids=["earlier", "later", "false alarms", "one split"],
)
def test_an_alert_is_on_only_if_it_passes_everywhere(options, passes):
    table = planted(**options)
    assert default_alerts(table, STEPS) == {name: ["collapsed"] * (passes and name == "max_logit") for name in ALERTS}


def test_leads_and_false_alarms_are_counted():
    table = planted(false=1)
    test = table[table.split == runs.SEEDS]
    found = lead(test, "max_logit", "collapsed")
    assert (found.runs, found.warned, found.before, found.median) == (6, 6, 6, 25.0)
    assert found.low <= found.median <= found.high
    assert lead(test, "nonfinite", "collapsed").warned == 0
    alarms = false_alarms(test, "max_logit")
    assert (alarms.alarms, alarms.steps) == (1, 9 * STEPS + 50)
    low, high = alarms.interval
    assert (low, high) == pytest.approx((0.0253 / 0.95, 5.572 / 0.95), rel=1e-2)  # Garwood's interval of a count of 1
    assert is_earlier(test, "max_logit", "loss_spike", "collapsed", STEPS) is True
    assert is_earlier(test, "nonfinite", "loss_spike", "collapsed", STEPS) is False
    assert is_earlier(test, "max_logit", "loss_spike", "diverged", STEPS) is None


def test_the_frozen_thresholds_are_those_of_the_alerts():
    assert rules.FROZEN["max_logit"] == alerts.MAX_LOGIT
    assert rules.FROZEN["entropy_collapse"] == pytest.approx(1 / alerts.ENTROPY)
    assert rules.FROZEN.keys() == RULES.keys()


@pytest.mark.parametrize("name", MODELS)
def test_query_and_key_rates_are_a_multiple(name):
    """With SGD the first step of these weights is 8 times as long, and of no others."""
    text = torch.arange(2_000) * 7 % 40
    moved = {}
    for multiplier in (1.0, 8.0):
        job = LadderRun(name, "SGD", 1e3, multiplier, 0, 1, SCALE, 40)
        model = build(MODELS[name], SCALE, 40, 0)
        before = {key: weight.clone() for key, weight in model.state_dict().items()}
        faster = [weight.clone() for weight in query_key_weights(model)]
        train(job, model, Windows(text, 8, 17), Probe(model, {"input_ids": text[:17][None]}, every=[0]))
        own = [weight - old for weight, old in zip(query_key_weights(model), faster, strict=True)]
        moved[multiplier] = own, {key: weight - before[key] for key, weight in model.state_dict().items()}
    assert len(moved[1.0][0]) == 4  # of two layers: one matrix and one bias, or two matrices
    for slow, fast in zip(moved[1.0][0], moved[8.0][0], strict=True):
        torch.testing.assert_close(fast, 8 * slow, rtol=1e-2, atol=1e-7)
        assert slow.abs().max() > 1e-6
    same = [key for key, change in moved[1.0][1].items() if torch.equal(change, moved[8.0][1][key])]
    assert sum(".attn.c_attn" in key or "q_proj" in key or "k_proj" in key for key in same) == 0
    assert "transformer.wte.weight" in same or "model.embed_tokens.weight" in same


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_the_study_on_tiny_runs(effort, tmp_path, monkeypatch):
    monkeypatch.setitem(runs.SIZES, False, {"max_words": 40, "steps": 24, "seeds": 1, "valid_tokens": 400})
    monkeypatch.setattr(runs, "SCALE", SCALE)
    monkeypatch.setattr(job_pool, "count_processes", lambda device: 1)
    for name, grid in runs.RATES.items():
        monkeypatch.setitem(runs.RATES, name, (grid[0], 100 * grid[-1]))
    calls = []
    effort = replace(effort, quick=False, cache_folder=tmp_path / "runs")
    computed = study.compute(effort, lambda done, total: calls.append((done, total)))
    assert calls == [(24 * i, 24 * 24) for i in range(1, 25)]
    table = computed.table[computed.table.kind == "run"]
    assert len(table) == 24
    assert (table.outcome == "diverged").any()
    assert (
        table[table.outcome == "diverged"].nonfinite.notna() == table[table.outcome == "diverged"].excess.eq(np.inf)
    ).all()
    assert {finding.verdict for finding in computed.findings}
    study.draw(computed)
    again = study.compute(effort)  # from the cache
    pd.testing.assert_frame_equal(again.table, computed.table)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("optimizer", "rate"), [("AdamW", 0.1), ("SGD", 1e4)])
def test_alerts_fire_at_the_steps_of_the_study(optimizer, rate):
    """The study computes warnings from a record; the probe fires alerts while it trains."""
    text = torch.arange(4_000) * 7 % 40
    job = LadderRun("GPT-2", optimizer, rate, 8.0, 0, 20, SCALE, 40)
    model = build(MODELS["GPT-2"], SCALE, 40, 0)
    limits = {"max_logit": 3.0, "entropy_collapse": 1 / 0.8, "nonfinite": 0.5}
    probe = Probe(model, {"input_ids": text[:136].view(8, 17)},
                  alerts=[alerts.max_logit(3.0), alerts.entropy_collapse(0.8), alerts.nonfinite()])  # fmt: skip
    train(job, model, Windows(text, 8, 17), probe)
    data = probe.dataset()
    run = {name: data[name].transpose("step", "layer", "head").values for name in ("max_logit", "entropy_rel")}
    run |= {"steps": data.step.values, "nonfinite": (data.nonfinite == 1).any("part").values}
    expected = {name: warning(ALERTS[name](run), limits[name]) for name in ALERTS}
    fired = {alert.name.split("(")[0]: alert.step for alert in reversed(probe.fired_alerts)}
    finite = {name: step for name, step in expected.items() if step < math.inf}
    assert len(finite) >= 1
    if optimizer == "AdamW":
        assert fired == finite
    else:  # a score that is not finite counts as a warning, which is nonfinite's here
        assert fired["nonfinite"] == finite["nonfinite"]

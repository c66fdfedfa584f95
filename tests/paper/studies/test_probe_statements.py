"""The statements of the study with the probe: each agrees in the world it describes and fails in the opposite one."""

import numpy as np
import pandas as pd

from scansnap.paper.studies.probe.findings import YZ, findings
from scansnap.paper.studies.probe.training import DEEP, MODELS

HEADS = 4


def world(like=1.0, seeds=6, noise=1e-3):
    """Heads of a world in which every statement holds (1) or in which its opposite does (−1)."""
    rng = np.random.default_rng(0)
    yes = like > 0
    rows = []
    for model, kind in MODELS.items():
        for optimizer in ("AdamW", "SGD"):
            for seed in range(seeds):
                for layer, head in np.ndindex(kind.layers, HEADS):
                    wave = noise * rng.normal()
                    first = bool(rng.integers(8) == 0)  # a few heads differ, or shares would have no spread
                    depth = layer if yes else kind.layers - layer
                    times = 20.0 + 5 * depth + 3 * rng.normal(size=2)
                    rows.append({
                        "kind": "head", "model": model, "optimizer": optimizer, "seed": seed, "layer": layer,
                        "head": head, "scan_index": 0.1 * like + wave, "scans": float(yes != first),
                        "control": wave, "control_scans": 0.0 if yes else float(not first),
                        "snaps": float(yes != first), "frozenness_ln": 0.7, "verdict": "x",
                        "t_fastest_ln": times[0], "t_half": times[1],
                        "learned": (0.9 if yes else 0.1) + wave, "sink_start": 0.3 - 0.2 * like,
                        "sink_end": 0.3 + wave,
                        **{name: like * value + wave for name, value in YZ.items()},
                        **{f"{name}_start": wave for name in YZ},
                    })  # fmt: skip
    return pd.DataFrame(rows)


def verdicts(table):
    return [finding.verdict for finding in findings(table)]


def test_all_agree_in_a_world_that_scans_and_snaps():
    assert set(verdicts(world())) == {"agrees"}


def test_all_fail_in_the_opposite_world():
    result = verdicts(world(like=-1.0))
    assert set(result) <= {"disagrees", "mostly disagrees"}
    assert result.count("disagrees") >= 8


def test_one_seed_decides_nothing_but_the_control():
    result = verdicts(world(seeds=1))
    assert result[2] == "agrees"
    assert set(result[:2] + result[3:]) == {"undecided"}


def test_weak_correlations_are_none():
    """The right sign is not enough: below a tenth attention follows nothing."""
    table = world()
    table[list(YZ)] *= 0.1
    assert verdicts(table)[6:9] == ["disagrees"] * 3


def test_noise_between_seeds_leaves_it_undecided():
    table = world()
    table["scan_index"] += np.array([0.9, -0.4, -0.3, 0.5, -0.2, -0.6])[table.seed]
    assert verdicts(table)[0] == "undecided"


def test_a_failed_training_agrees_with_nothing():
    table = world()
    gone = (table.model == DEEP) & (table.seed == 1)
    numbers = table.columns.difference(["kind", "model", "optimizer", "seed", "layer", "head", "verdict"])
    table.loc[gone, numbers] = np.nan
    table.loc[gone, "verdict"] = "failed"
    result = findings(table)
    assert result[5].disagree == result[5].of == 4  # depth is asked of this model alone
    assert [finding.disagree for finding in result[:2]] == [2, 2]
    assert result[2].disagree == gone.sum()
    assert all("failed" in finding.detail for finding in (result[0], result[6]))


def test_depth_counts_heads_whose_time_has_not_come():
    """All of the last two layers are still to come: that is later, not unknown."""
    table = world()
    late = table.layer >= 4
    table.loc[late, "t_fastest_ln"] = np.inf
    assert findings(table)[5].verdict == "agrees"
    table.loc[late, "t_fastest_ln"] = 0.0
    assert findings(table)[5].agree < 4


def test_where_nothing_moves_nothing_follows():
    """Attention that stands still has no times: that deeper layers follow later is then not shown, nor failed."""
    table = world()
    table["t_fastest_ln"], table["t_half"] = np.nan, np.nan
    result = findings(table)[5]
    assert result.agree == 0
    assert "failed" not in result.detail


def test_without_any_time_there_is_nothing_to_compare_with_the_loss():
    table = world()
    table["learned"] = np.nan
    assert findings(table)[4].verdict == "not applicable"

"""The verdicts that are shipped are those that the package gives now."""

import json

import pytest

import scansnap
from scansnap.claims.registry import select_checks
from scansnap.explorer import shipped, verdicts
from scansnap.explorer.presets import PRESETS

ENTRIES = shipped.load()["entries"]
AGAIN = "compute them again: python -m scansnap.explorer.verdicts"


def test_every_preset_has_its_verdicts_and_they_are_of_this_version():
    assert shipped.load()["version"] == scansnap.__version__, AGAIN
    assert set(ENTRIES) == set(verdicts.settings_to_judge()) >= {preset["name"] for preset in PRESETS}
    for name, setup in verdicts.settings_to_judge().items():
        assert ENTRIES[name]["digest"] == verdicts.digest(setup), AGAIN
        assert len(ENTRIES[name]["claims"]) >= len(select_checks(None))


@pytest.mark.parametrize("name", ["figure-4", "adam"])
def test_the_verdicts_of_a_preset_are_computed_again(name):
    again = json.loads(json.dumps(verdicts.entry(verdicts.settings_to_judge()[name])))
    shipped = ENTRIES[name]
    assert again["digest"] == shipped["digest"]
    for new, old in zip(again["claims"], shipped["claims"], strict=True):
        words = ("name", "reference", "statement", "kind", "status")
        assert [new[key] for key in words] == [old[key] for key in words], AGAIN
        for key in ("measured", "predicted", "margin"):  # other processors differ in the last bits of a run
            value = old[key]  # None and the word "inf" are themselves
            same = pytest.approx(value, rel=1e-3, abs=1e-6) if isinstance(value, int | float) else value
            assert new[key] == same, AGAIN


def test_a_change_of_a_preset_is_noticed():
    setup = verdicts.settings_to_judge()["figure-4"]
    assert verdicts.digest({**setup, "eta_y": 1.5}) != ENTRIES["figure-4"]["digest"]


def test_where_a_statement_is_said_to_apply_it_does():
    for name in shipped.CHANGES:
        judged = next(
            entry for entry in ENTRIES.values() if entry["digest"] == verdicts.digest(verdicts.setup_for(name))
        )
        assert next(c for c in judged["claims"] if c["name"] == name)["status"] != "not applicable"
    textbook = {claim["name"]: claim["status"] for claim in ENTRIES["textbook"]["claims"]}
    silent = {name for name, status in textbook.items() if status == "not applicable"}
    assert silent <= {*shipped.CHANGES, *shipped.COMMANDS}

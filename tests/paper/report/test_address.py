"""What a figure's link opens in the explorer is what the figure trained."""

import json
from urllib.parse import parse_qsl

import pytest
from least_entropy import any_least_entropy

from scansnap.explorer.controls import BY_NAME
from scansnap.explorer.setup import read_setup
from scansnap.paper.figure import Effort
from scansnap.paper.figures import claims, fig1, fig2, fig3, fig4, fig5, fig6
from scansnap.paper.report.address import PLACE, address

QUICK = Effort(quick=True, device="cpu")


def opened(link, prefix=""):
    """The set-up in an address, read as static/js/address.js does."""
    place, _, query = link.partition("#")
    assert place == PLACE
    fields = {"classes": {}}
    for key, text in parse_qsl(query, strict_parsing=True):
        if not key.startswith(prefix) or (not prefix and key.startswith("pin.")):
            continue
        name = key.removeprefix(prefix)
        if name == "classes":
            fields["classes"]["preset"] = text
        elif name.startswith("classes."):
            fields["classes"][name.removeprefix("classes.")] = json.loads(text)
        else:
            number = BY_NAME[name].kind in ("number", "integer", "flag")
            fields[name] = "inf" if text == "inf" else json.loads(text) if number else text
    return read_setup(fields)


@pytest.mark.parametrize(
    ("figure", "classes", "first", "last"),
    [
        (fig2, "synthetic", (4, 4), None),
        (fig4, "syn-small", (1, 1), (10, 1)),
        (fig5, "syn-small", (0.1, 0.1), (1, 1)),
        (fig6, "syn-medium", (0.5, 0.5), (5, 0.5)),
    ],
)
def test_the_first_run_is_opened_and_the_last_along_what_varies_is_pinned(figure, classes, first, last, monkeypatch):
    monkeypatch.setattr(fig6, "least_entropy", lambda *_: any_least_entropy())
    settings = figure.compute(QUICK).settings
    link = address(settings)
    run = opened(link)
    assert run.setup["classes"]["preset"] == classes
    assert (run.setup["eta_y"], run.setup["eta_z"]) == first
    assert run.setup["steps"] == settings["steps"]
    assert run.setup["momentum"] == settings["momentum"]
    assert run.setup["optimizer"] == settings.get("optimizer_y", {"name": "sgd"})["name"]
    assert run.setup["init"] == settings.get("model", settings)["init"]
    assert ("pin." in link) == (last is not None)
    if last:
        pinned = opened(link, "pin.")
        assert (pinned.setup["eta_y"], pinned.setup["eta_z"]) == last
        rates = {"eta_y", "eta_z"}
        assert {k: v for k, v in pinned.setup.items() if k not in rates} == {
            k: v for k, v in run.setup.items() if k not in rates
        }


def test_the_claims_open_as_steps_that_follow_the_flow():
    preset, knobs, eta_y, eta_z = claims.SETTINGS[2]
    settings = {"settings": [{"preset": preset, **knobs, "eta_y": eta_y, "eta_z": eta_z, "context": "inf"}]}
    setup = opened(address(settings)).setup
    assert setup["classes"] == {"preset": "syn-medium", "n_queries": 3}
    assert (setup["context"], setup["batch_size"], setup["momentum"]) == ("inf", None, 0)


def test_what_no_address_can_say_has_none():
    assert address(fig1.compute(QUICK).settings) is None
    assert address(fig3.compute(QUICK).settings) is None
    assert address({"corpus": "a text", "layers": [1, 3], "eta": 5.0}) is None
    assert address({"classes": "syn-small", "steps": 10}) is None

"""The models say what is really said, the server shows them without help from outside, and refusals are sentences."""

import json
import re
from typing import Any

import pytest
from explorer_site import SMALL, Site
from pydantic import BaseModel

from scansnap.checks import InputError
from scansnap.explorer.messages import decks, http, socket, told
from scansnap.explorer.messages.fields import read
from scansnap.explorer.protocol import LIMITS

TEXTS: dict[str, type[BaseModel]] = {model.model_fields["type"].default: model for model in socket.SAID}


@pytest.mark.parametrize(("path", "body", "model"), [
    ("/api/catalogue", None, http.Catalogue), ("/api/tour", None, http.Tour), ("/api/health", None, http.Health),
    ("/api/lens", None, told.TextModels), ("/api/check", SMALL, http.CheckSaid),
    ("/api/check", {"classes": {"preset": "textbook"}, "eta_y": 0.0}, http.CheckSaid),
    ("/api/curves", {"setup": SMALL, "last": 50, "points": 9}, http.CurvesSaid),
    ("/api/flow", {"setup": SMALL, "last": 20, "points": 5}, http.FlowSaid),
    ("/api/decks", None, decks.Decks),
    ("/api/map", {**SMALL, "steps": 5}, http.MapSaid),
])  # fmt: skip
def test_answers_are_what_their_models_say(site: Site, path: str, body: Any, model: type[BaseModel]) -> None:
    answer = site.client.get(path) if body is None else site.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    model.model_validate(answer.json())  # no key missing, none too many
    described = site.client.get("/openapi.json").json()["paths"][path]["get" if body is None else "post"]
    assert described["description"]
    assert described["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith(model.__name__)


def test_everything_said_of_a_run_is_what_its_models_say(quiet: Site) -> None:
    client = quiet.open({**SMALL, "steps": 40})
    client.wait_state("done")
    for message in ({"op": "rates", "eta_y": 2}, {"op": "step", "n": 0}, {"op": "reset"}, {"op": "ping", "id": [1]}):
        client.send(**message)
    client.wait(lambda c: all(c.last(kind) for kind in ("mark", "error", "reset", "pong")))
    assert client.run is not None
    about = f"/api/runs/{client.run['run']}"
    for path, model in (("", socket.RunText), ("/claims", told.ClaimsSaid), ("/film", told.FilmSaid)):
        model.model_validate(quiet.client.get(about + path).json())
    client.send(op="close")
    client.wait(lambda c: c.last("closed"))
    client.close()
    assert {text["type"] for text in client.texts} == set(TEXTS)
    for text in client.texts:
        TEXTS[text["type"]].model_validate(text)


def test_the_description_has_every_message_with_its_range(site: Site) -> None:
    said = site.client.get("/openapi.json").json()
    assert said == site.client.get("/api/openapi.json").json()
    schemas = said["components"]["schemas"]
    names = [ref["$ref"].split("/")[-1] for side in ("asked", "said") for ref in said["x-websocket"][side]]
    assert names == [model.__name__ for model in (*socket.ASKED, *socket.SAID)]
    for name in names:
        assert schemas[name]["description"], name
    assert schemas["Step"]["properties"]["n"] | {"title": ""} == {
        "type": "integer", "minimum": 1, "maximum": LIMITS["single_steps"], "default": 1, "title": "",
        "description": "How many steps.",
    }  # fmt: skip
    assert schemas["Start"]["properties"]["setup"]["$ref"].endswith("/Setup")
    assert schemas["Setup"]["properties"]["eta_y"]["anyOf"][0]["maximum"] == 10000
    refs = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(said)))
    assert refs <= set(schemas), "every name that is pointed at is there"


def test_the_page_of_the_description_needs_nothing_from_outside(site: Site) -> None:
    answer = site.client.get("/docs")
    assert answer.status_code == 200
    assert "text/html" in answer.headers["content-type"]
    assert "<script" not in answer.text
    links = re.findall(r'(?:href|src|action)="([^"]*)"', answer.text)
    assert len(links) > 50
    places = {link for link in links if not re.fullmatch(r"#\w+", link)}
    assert places == {"openapi.json", "static/icon.svg"}, "relative: a proxy may have put them under a path"
    assert {link[1:] for link in links if link.startswith("#")} <= set(re.findall(r'id="(\w+)"', answer.text))
    for words in ("POST /api/flow", "AskTable", "eta_y = 1.0", "integer ≥ 1 ≤ 10000", "Theorem 3", "up to 30 times a"):
        assert words in answer.text
    assert "@import" not in answer.text
    assert "url(" not in answer.text


REFUSED: list[tuple[type[BaseModel], dict[str, Any], str]] = [
    (socket.Step, {"op": "step", "n": 0}, "n is 0; it must be a whole number of at least 1 and at most 10000."),
    (socket.Step, {"op": "step", "n": True}, "n is True; it must be a whole number of at least 1 and at most 10000."),
    (socket.Speed, {"op": "speed", "speed": 0}, "speed is 0.0; it must be a finite number above 0 and at most 1e+06."),
    (socket.Rates, {"op": "rates"}, "eta_y is None; it must be given, or eta_z."),
    (socket.Rates, {"op": "rates", "eta_z": -1},
     "eta_z is -1.0; it must be a finite number at least 0 and at most 10000."),
    (socket.Start, {"op": "start"}, "setup is None; it must be an object."),
    (socket.Start, {"op": "start", "setup": SMALL, "play": 1}, "play is 1; it must be true or false."),
    (socket.Extend, {"op": "extend"},
     "steps is None; it must be a whole number of at least 1 and at most 10000000."),
    (http.CurvesAsked, {"setup": SMALL, "last": 5, "c0": 0},
     "c0 is 0.0; it must be a finite number above 0 and at most 1e+30."),
    (http.FlowAsked, {"setup": SMALL}, "last is None; it must be a whole number of at least 1 and at most 10000000."),
    (http.FlowAsked, {"setup": SMALL, "last": 5, "points": 201},
     "points is 201; it must be a whole number of at least 2 and at most 200."),
    (http.FlowAsked, {"setup": SMALL, "last": 5, "lsat": 5},
     "the key 'lsat' in the request is 5; it must be left out or one of setup, last, points, by."),
]  # fmt: skip


@pytest.mark.parametrize(("model", "given", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_a_refusal_is_one_sentence(model: type[BaseModel], given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read(model, given, "" if "op" in given else "the request")
    assert str(caught.value) == sentence


def test_a_parameter_is_refused_in_a_sentence_too(site: Site) -> None:
    answer = site.client.get("/api/runs/none/csv?frames=many")
    assert (answer.status_code, answer.json()) == (
        422,
        {"field": "frames", "message": "frames is 'many'; it must be a whole number."},
    )

"""Whatever is sent, the server answers and goes on: no 500, no hang."""

import json
import warnings
from collections import Counter
from typing import Any

import httpx
import pytest
from explorer_site import PATIENCE, SMALL, Site
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from scansnap.explorer.messages.socket import OPS

schemathesis = pytest.importorskip("schemathesis")

FUZZ = settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.mark.hypothesis
def test_http_by_its_description(site: Site) -> None:
    """Requests made from the OpenAPI description, valid and not."""
    description = schemathesis.openapi.from_dict(site.client.get("/api/openapi.json").json())
    n_sent = 0
    for found in description.get_all_operations():
        operation = found.ok()

        @settings(FUZZ, max_examples=40)
        @given(case=operation.as_strategy() | operation.as_strategy(
            generation_mode=schemathesis.GenerationMode.NEGATIVE))  # fmt: skip
        def send(case: Any) -> None:
            nonlocal n_sent
            if case.path.endswith("/flow") and isinstance(case.body, dict) and isinstance(case.body.get("last"), int):
                case.body["last"] = min(case.body["last"], 100)  # long flows have their own test
            try:
                response = case.call(base_url=str(site.client.base_url), timeout=PATIENCE)
            except (ValueError, UnicodeError):
                return  # not sendable at all
            n_sent += 1
            assert response.status_code < 500 or response.status_code == 503, (response.status_code, response.text)
            if response.status_code >= 400 and case.method != "HEAD":
                assert set(json.loads(response.text)) == {"field", "message"}

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            send()
    assert n_sent > 200
    assert site.client.get("/api/health").status_code == 200


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_KEYS = ("n", "speed", "eta_y", "eta_z", "steps", "size", "since", "run", "id", "setup", "play")
_MESSAGE = st.builds(
    lambda op, rest: json.dumps({"op": op, **rest}),
    st.sampled_from(tuple(OPS)),
    st.dictionaries(st.sampled_from(_KEYS), _JSON | st.integers(0, 300), max_size=3),
)
_ANYTHING = _MESSAGE | _JSON.map(json.dumps) | st.text(max_size=50) | st.binary(max_size=50)


@pytest.mark.hypothesis
def test_websocket_messages(quiet: Site) -> None:
    """Random operations, JSON, texts and bytes on a socket with a run; after each burst it answers and runs again."""

    @settings(FUZZ, max_examples=60)
    @given(st.lists(_ANYTHING, max_size=12))
    def burst(messages: list[Any]) -> None:
        with quiet.connect() as socket:

            def hear(wanted: dict[str, Any]) -> None:
                """Read until a message with these words comes, counting what is said."""
                while True:
                    answer = socket.recv(PATIENCE)
                    said = json.loads(answer) if isinstance(answer, str) else {"type": "binary"}
                    heard[said["type"]] += 1
                    if wanted.items() <= said.items():
                        return

            # the server answers a ping itself, but the run's answers come from its worker, each in its own time
            socket.send(json.dumps({"op": "start", "setup": {**SMALL, "steps": 50}}))
            hear({"type": "run"})
            for message in messages:
                socket.send(message.encode("utf-8", "replace").decode() if isinstance(message, str) else message)
            socket.send(json.dumps({"op": "ping", "id": "end"}))
            hear({"type": "pong", "id": "end"})
            socket.send(json.dumps({"op": "start", "setup": {**SMALL, "steps": 51}}))
            hear({"type": "run", "steps": 51})
            hear({"type": "state", "state": "done"})
            socket.send(json.dumps({"op": "close"}))
            hear({"type": "closed", "reason": "Closed by the page."})
            bursts.append(messages)

    heard: Counter[str] = Counter()
    bursts: list[Any] = []
    burst()
    assert len(bursts) > 40
    assert heard["run"] >= 2 * len(bursts)
    assert heard["error"] > 0
    assert quiet.client.get("/api/health").json()["ok"]


@pytest.mark.parametrize(
    "junk",
    [b"", b"\x81", b"\x81\xff", b"\xff" * 40, b"\x82\xfe\xff\xff\x00\x00\x00\x00abc", b"\x88\x80\x00\x00\x00\x00",
     b"\x81\x85\x00\x00\x00\x00\xff\xfe\xfd\xfc\xfb"],
)  # fmt: skip
def test_broken_websocket_frames(site: Site, junk: bytes) -> None:
    socket = site.connect()
    socket.socket.sendall(junk)
    socket.socket.close()
    assert site.client.get("/api/health").status_code == 200


@pytest.mark.parametrize(
    "junk", [b"GET / HTTP/1.1\r\n", b"\x00\x01\x02\r\n\r\n", b"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n"]
)
def test_broken_http(site: Site, junk: bytes) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", site.port), PATIENCE) as raw:
        raw.sendall(junk)
    assert httpx.get(f"http://127.0.0.1:{site.port}/api/health", timeout=PATIENCE).status_code == 200

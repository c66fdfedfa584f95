"""The WebSocket with real runs: control, reconnection, load, and pages that vanish."""

import asyncio
import json
from collections.abc import Callable
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from explorer_site import PATIENCE, SMALL, Client, Site, wait_for_runs, wait_until
from websockets.asyncio.client import connect as async_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import scansnap as ss
from scansnap.explorer.live import visitors
from scansnap.explorer.live.worker import Worker
from scansnap.explorer.protocol import LAST, LIMITS, REPLAY, RESTART, decode, encode, unpack_frames


def test_frames_over_the_wire_are_simulate_bit_for_bit(quiet: Site) -> None:
    client = quiet.open({**SMALL, "steps": 120})
    client.wait_state("done")
    client.close()
    assert client.run is not None
    layout = client.run["layout"]
    steps = sorted(client.frames)
    assert steps[:51] == list(range(51))
    assert steps[-1] == 120
    data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, seed=0, momentum=0.9, steps=120,
                       record=steps, device="cpu").isel(run=0)  # fmt: skip
    where = {f["name"]: slice(f["offset"], f["offset"] + f["size"]) for f in layout["fields"]}
    frames = np.array([client.frames[s] for s in steps])
    np.testing.assert_array_equal(frames[:, where["loss"]][:, 0], data.loss)
    np.testing.assert_array_equal(frames[:, where["entropy"]], data.entropy)
    expected = np.concatenate([data.attention.values[:, n, t] for n, t in enumerate(layout["tokens"])], axis=1)
    np.testing.assert_array_equal(frames[:, where["attention"]], expected)
    expected = np.concatenate([data.z.values[:, q, t] for q, t in enumerate(layout["query_tokens"])], axis=1)
    np.testing.assert_array_equal(frames[:, where["z"]], expected)


def test_the_controls_of_a_run(quiet: Site) -> None:
    client = quiet.open({**SMALL, "steps": 100}, play=False)
    client.wait_state("paused")
    assert sorted(client.frames) == [0]
    client.send(op="step")
    client.wait(lambda c: 1 in c.frames)
    client.send(op="step", n=9)
    client.wait(lambda c: c.last("state").get("step") == 10)
    client.send(op="rates", eta_y=2.0)
    client.wait(lambda c: c.last("mark"))
    assert client.last("mark") == {"type": "mark", "step": 10, "eta_y": 2.0, "eta_z": 1.0}
    client.send(op="y", size=16)
    client.wait(lambda c: c.tables)
    assert client.tables[0][:2].tolist() == [16, 3]
    client.send(op="speed", speed=500)
    client.send(op="play")
    client.wait_state("done")
    assert client.last("state")["step"] == 100
    client.send(op="extend", steps=150)
    client.wait(lambda c: c.last("state").get("steps") == 150)
    client.send(op="play")
    client.wait(lambda c: c.last("state").get("step") == 150)
    client.flags.clear()
    client.send(op="film")
    client.wait(lambda c: any(f & LAST for f in c.flags))
    assert client.flags[0] & (REPLAY | RESTART) == REPLAY | RESTART
    client.send(op="reset")
    client.wait(lambda c: c.last("reset") and c.last("state").get("step") == 0)
    assert client.last("state")["eta_y"] == 1.0
    client.send(op="close")
    client.wait(lambda c: c.last("closed"))
    wait_for_runs(quiet, 0)
    client.send(op="play")
    client.wait(lambda c: c.last("error"))
    assert client.last("error")["field"] == "run"
    client.close()


REFUSED: list[tuple[Any, str]] = [
    ({"op": "start"}, "setup"),
    ({"op": "start", "setup": {**SMALL, "eta_y": -1}}, "eta_y"),
    ({"op": "start", "setup": SMALL, "speed": -3}, "speed"),
    ({"op": "start", "setup": SMALL, "play": 1}, "play"),
    ({"op": "start", "setup": SMALL, "marks": 3}, "marks"),
    ({"op": "start", "setup": SMALL, "marks": [{"step": 3, "eta_y": 1}]}, "marks"),
    ({"op": "start", "setup": SMALL, "marks": [{"step": 3, "eta_y": -1, "eta_z": 1}]}, "eta_y"),
    ({"op": "start", "setup": SMALL, "marks": 2 * [{"step": 3, "eta_y": 1, "eta_z": 1}]}, "marks"),
    ({"op": "attach", "run": "none"}, "run"),
    ({"op": "attach", "run": ["x"]}, "run"),
    ({"op": "step", "n": 10**9}, "n"),
    ({"op": "step", "n": "x"}, "n"),
    ({"op": "speed", "speed": 0}, "speed"),
    ({"op": "rates"}, "eta_y"),
    ({"op": "rates", "eta_z": -1}, "eta_z"),
    ({"op": "rates", "eta_z": [1]}, "eta_z"),
    ({"op": "extend", "steps": 10**12}, "steps"),
    ({"op": "y", "size": 10**6}, "size"),
    ({"op": "y", "step": -1}, "step"),
    ({"op": "fly"}, "request"),
    ({"op": {}}, "request"),
    ([1], "request"),
]


def test_refused_messages_change_nothing(quiet: Site) -> None:
    client = quiet.open(play=False).wait_state("paused")
    for message, field in REFUSED:
        client.texts.clear()
        client.socket.send(json.dumps(message))
        client.wait(lambda c: c.last("error"))
        assert client.last("error")["field"] == field, (message, client.last("error"))
        client.send(op="step")
        state = client.wait_state("paused").last("state")
        assert (state["state"], state["eta_y"], state["steps"]) == ("paused", 1.0, 200)
    assert state["step"] == len(REFUSED)
    client.close()


def test_a_dropped_connection_gets_what_it_missed(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet.switchboard, "grace_seconds", PATIENCE)
    first = quiet.open({**SMALL, "steps": 4000}, speed=2000)
    first.wait(lambda c: max(c.frames, default=0) > 60)
    assert first.run is not None
    seen = max(first.frames)
    entry = quiet.switchboard.find(first.run["run"])
    first.socket.socket.close()  # no goodbye
    wait_until(lambda: entry.watcher is None, "the server does not notice")
    second = Client(quiet.connect())
    second.send(op="attach", run=first.run["run"], since=seen)
    second.wait_state("done")
    assert min(second.frames) > seen
    assert second.flags[0] & REPLAY
    assert second.run is not None
    assert second.run["layout"] == first.run["layout"]
    # everything scheduled is there, as if the connection had held
    whole = Client(quiet.connect())
    whole.send(op="attach", run=first.run["run"], since=-1)
    whole.wait(lambda c: any(f & LAST for f in c.flags))
    assert set(whole.frames) <= set(first.frames) | set(second.frames)
    second.wait(lambda c: c.last("closed"))
    assert "another page" in second.last("closed")["reason"]
    whole.send(op="close")
    second.close()
    whole.close()


def test_a_run_whose_page_is_gone_waits_for_it_and_then_stops(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet.switchboard, "grace_seconds", PATIENCE)
    client = quiet.open({**SMALL, "steps": 10**7})
    assert client.run is not None
    name = client.run["run"]
    entry = quiet.switchboard.find(name)
    client.socket.socket.close()
    wait_until(lambda: entry.expiry is not None, "the server does not notice")
    step = quiet.client.get(f"/api/runs/{name}").json()["step"]
    wait_until(lambda: quiet.client.get(f"/api/runs/{name}").json()["step"] > step, "the run does not go on")
    monkeypatch.setattr(quiet.switchboard, "grace_seconds", 0.1)
    again = Client(quiet.connect())
    again.send(op="attach", run=name)
    again.wait(lambda c: c.run is not None)
    again.socket.socket.close()
    wait_for_runs(quiet, 0)
    assert quiet.client.get("/api/health").json()["memory"] == 0
    assert quiet.client.get(f"/api/runs/{name}").status_code == 404


def test_twenty_runs_at_once_stay_responsive(quiet: Site) -> None:
    """Every run gets frames, every page is answered, and the server itself as well."""
    medium = {"classes": {"preset": "syn-medium", "n_queries": 10}, "steps": 10**6}

    async def page(n: int, opened: asyncio.Barrier) -> int:
        """How far the run came before its last answer, with all runs going."""
        address = f"ws://127.0.0.1:{quiet.port}/ws"
        async with async_connect(address, max_size=None, ping_interval=None, open_timeout=PATIENCE) as socket:
            await socket.send(json.dumps({"op": "start", "setup": medium if n % 2 else {**SMALL, "steps": 10**6}}))
            await _until(socket, lambda step, text: step > 5)
            waiting = asyncio.create_task(opened.wait())
            step = await _until(socket, lambda step, text: waiting.done())  # reads on while others start
            last = await _until(socket, lambda now, text: now > step + 5)
            await socket.send('{"op": "ping", "id": 7}')
            await _until(socket, lambda step, text: text.get("type") == "pong")
            await asyncio.to_thread(quiet.client.get, "/api/health")
            await socket.send('{"op": "close"}')
            return last

    async def all_pages() -> list[int]:
        opened = asyncio.Barrier(20)
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*[page(n, opened) for n in range(20)])

    assert min(asyncio.run(all_pages())) > 5
    assert quiet.client.post("/api/check", json=SMALL).status_code == 200


async def _until(socket: Any, done: Callable[[int, dict[str, Any]], bool]) -> int:
    """Read until ``done(step of the latest frame, latest text)``; the step."""
    step, text = -1, {}
    while not done(step, text):
        message = await socket.recv()
        if isinstance(message, bytes):
            step = int(unpack_frames(message)[2][-1])
        else:
            text = json.loads(message)
            assert text["type"] not in ("error", "closed"), text
    return step


def test_too_many_runs_are_refused_in_words(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "runs", 1)
    first = quiet.open(play=False)
    second = Client(quiet.connect())
    second.send(op="start", setup=SMALL)
    second.wait(lambda c: c.last("error"))
    assert "1 runs at once" in second.last("error")["message"]
    monkeypatch.setitem(LIMITS, "runs", 5)
    monkeypatch.setitem(LIMITS, "server_bytes", 1)
    second.texts.clear()
    second.send(op="start", setup=SMALL)
    second.wait(lambda c: c.last("error"))
    assert "MiB" in second.last("error")["message"]
    for client in (first, second):
        client.close()


def test_other_pages_cannot_connect(site: Site) -> None:
    for options in ({"origin": "http://evil.example"}, {"additional_headers": {"Host": "evil.example"}}):
        with pytest.raises(InvalidStatus) as caught:
            site.connect(**options)  # type: ignore[arg-type]
        assert caught.value.response.status_code == 403
    site.connect(origin=f"http://localhost:{site.port}").close()  # type: ignore[arg-type]


def test_too_many_and_too_large_messages_end_the_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.connect() as socket:
        socket.send("x" * (int(LIMITS["message_bytes"]) + 1))
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(PATIENCE)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
    monkeypatch.setattr(visitors, "time", SimpleNamespace(monotonic=lambda: 0.0))  # all in the same moment
    with site.connect() as socket:
        with pytest.raises(ConnectionClosed) as caught:  # noqa: PT012  # either side of the pipe may notice first
            for _ in range(2 * int(LIMITS["messages_per_second"]) + 1):
                socket.send('{"op": "ping"}')
            while True:
                socket.recv(PATIENCE)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1008
    assert site.client.get("/api/health").status_code == 200


def test_a_worker_that_dies_takes_only_its_runs_with_it(quiet: Site) -> None:
    client = quiet.open(play=False)
    quiet.switchboard.pool.handles[0].process.kill()
    client.wait(lambda c: c.last("closed"))
    wait_for_runs(quiet, 0)
    client.send(op="start", setup=SMALL)
    client.wait_state("done")
    client.close()


def test_a_slow_reader_does_not_stop_a_run(quiet: Site) -> None:
    """A client that reads nothing: the run goes on, its film is kept, and nothing piles up."""
    medium = {"classes": {"preset": "syn-medium", "n_queries": 10}, "steps": 1500}
    slow = quiet.connect(max_queue=1)
    slow.send(json.dumps({"op": "start", "setup": medium}))
    wait_for_runs(quiet, 1)
    [name] = quiet.switchboard.runs
    wait_until(lambda: quiet.client.get(f"/api/runs/{name}").json()["state"] == "done", "the run does not go on")
    client = Client(slow)
    client.wait_state("done")
    assert max(client.frames) == 1500
    slow.close()


def test_a_run_that_breaks_does_not_take_the_others_along() -> None:
    """The worker's loop itself, with a run that raises in its turn."""
    here, there = Pipe()
    worker = Worker(there)
    for name in ("good", "bad"):
        worker.handle(encode({"op": "open", "run": name, "setup": {**SMALL, "steps": 50}, "req": 1}))
        worker.handle(encode({"op": "attach", "run": name, "since": -1, "again": False}))
        worker.handle(encode({"op": "play", "run": name}))

    def broken(n: int) -> int:
        raise ZeroDivisionError

    worker.runs["bad"].live.advance = broken  # type: ignore[method-assign]
    while "bad" in worker.runs or worker.runs["good"].playing:
        worker.turns()
    assert set(worker.runs) == {"good"}
    assert worker.runs["good"].state == "done"
    said = []
    while here.poll():
        header, payload = decode(here.recv_bytes())
        if header.get("run") == "bad" and header["kind"] == "text":
            said.append(json.loads(payload))
    assert said[-1]["type"] == "closed"
    assert "ZeroDivisionError" in said[-1]["reason"]
    for end in (here, there):
        end.close()

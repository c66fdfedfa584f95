"""The command: refusals before anything starts, and a server that comes and goes cleanly."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from explorer_site import PATIENCE, SMALL, wait_until
from websockets.sync.client import connect

from scansnap.checks import InputError
from scansnap.cli.serve import serve


def test_bad_options_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--folder"):
        serve("127.0.0.1", 0, tmp_path / "none", False)
    with pytest.raises(InputError, match="--port"):
        serve("127.0.0.1", 70_000, None, False)
    with pytest.raises(InputError, match="--host"):
        serve("no such host", 0, None, False)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="free"):
        serve("127.0.0.1", taken.getsockname()[1], None, False)


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command in a process group of its own, and its port."""
    command = [sys.executable, "-m", "scansnap", "serve", "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://localhost:(\d+)/", line)
        assert found is not None, line
        yield process, int(found.group(1))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def end(process: subprocess.Popen[str]) -> str:
    """What it says until it has ended; with it, all its processes have."""
    _, said = process.communicate(timeout=PATIENCE)
    wait_until(lambda: not alive(process.pid), "a process of its group is left")
    return said


def alive(group: int) -> list[str]:
    """Processes of a group that have not ended; one that nobody has asked about yet is only a name."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, number = place.read_text().rpartition(")")[2].split()[:3]
            if int(number) == group and state != "Z":
                found.append(place.parent.name)
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@needs_proc
def test_it_serves_until_ctrl_c_and_leaves_no_process(served: tuple[subprocess.Popen[str], int]) -> None:
    process, port = served
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=PATIENCE) as answer:
        assert json.load(answer)["ok"]
    assert len(alive(process.pid)) > 1, "it has workers"
    process.send_signal(signal.SIGINT)
    assert end(process) == ""
    assert process.returncode == 130


@needs_proc
@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]],
                         ids=["Ctrl-C", "SIGTERM", "Ctrl-C twice"])  # fmt: skip
def test_stopped_in_full_swing_it_leaves_no_process_and_no_traceback(
    served: tuple[subprocess.Popen[str], int], numbers: list[int]
) -> None:
    """With runs under way, a client that does not read, slow requests, and a computation."""
    process, port = served
    with contextlib.ExitStack() as stack:

        def run(setup: dict[str, Any], **options: Any) -> Any:
            address = f"ws://127.0.0.1:{port}/ws"
            made = connect(address, max_size=None, ping_interval=None, open_timeout=PATIENCE, **options)
            client = made.__enter__()
            stack.callback(client.socket.close)  # no goodbye: one that does not read would wait for the answer
            client.send(json.dumps({"op": "start", "setup": {**setup, "steps": 10**6}}))
            return client

        def ask(head: str, body: bytes = b"", missing: int = 0) -> None:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(f"{head}\r\nHost: localhost:{port}\r\nContent-Length: {len(body) + missing}\r\n".encode())
            if body:
                client.sendall(b"\r\n" + body)

        for _ in range(3):
            reader = run(SMALL, max_queue=None)
            while not isinstance(reader.recv(PATIENCE), bytes):
                pass
        deaf = run({"classes": {"preset": "syn-medium", "n_queries": 30}}, max_queue=1)
        for _ in range(30):
            deaf.send(json.dumps({"op": "film"}))
        slow = {"setup": {"classes": {"preset": "zipf", "vocab": 5000, "classes": 40}}, "last": 10**7, "points": 200}
        ask("GET / HTTP/1.1")  # a head without end
        ask("GET /vendor/plotly.min.js HTTP/1.1\r\nConnection: close", b"x")  # and it does not read
        ask("POST /api/check HTTP/1.1", b"{", missing=9)  # a body without end
        ask("POST /api/flow HTTP/1.1", json.dumps(slow).encode())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=PATIENCE) as answer:
            assert json.load(answer)["runs"] >= 3
        for number in numbers:
            process.send_signal(number)
        said = end(process)
    assert "Traceback" not in said, said
    assert process.returncode == 128 + numbers[0]

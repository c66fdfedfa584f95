"""The command: refusals before anything starts, and a server that comes and goes cleanly."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from scansnap.checks import InputError
from scansnap.commands.serve import serve


def test_bad_options_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--folder"):
        serve("127.0.0.1", 0, tmp_path / "none", False)
    with pytest.raises(InputError, match="--port"):
        serve("127.0.0.1", 70_000, None, False)
    with pytest.raises(InputError, match="--host"):
        serve("no such host", 0, None, False)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="free"):
        serve("127.0.0.1", taken.getsockname()[1], None, False)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent otherwise there")
def test_it_serves_until_ctrl_c_and_leaves_no_process() -> None:
    command = [sys.executable, "-m", "scansnap.cli", "serve", "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://localhost:(\d+)/", line)
        assert found is not None, line
        with urllib.request.urlopen(f"http://127.0.0.1:{found.group(1)}/api/health", timeout=60) as answer:
            assert json.load(answer)["ok"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130, -signal.SIGINT)
        end = time.monotonic() + 30
        while _alive(process.pid):
            assert time.monotonic() < end, "a process of its group is left"
            time.sleep(0.05)
    finally:
        process.kill()
        process.stderr.close()


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

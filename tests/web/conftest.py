"""A real server on a free port, in a thread, with one worker process; shared by all tests of this folder."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from explorer_site import Site

if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "websockets", "httpx")):
    collect_ignore = ["test_connection.py", "test_fuzz.py", "test_serve.py", "test_server.py"]  # need scansnap[web]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    static = tmp_path_factory.mktemp("static")
    (static / "index.html").write_text("<!doctype html><title>page</title>")
    (static / "film.html").write_text("<!doctype html><script>const film = /*__FILM_DATA__*/;</script>")
    import httpx
    import uvicorn
    from explorer_site import GRACE, Site

    from scansnap.web.protocol import LIMITS
    from scansnap.web.server import WebSettings, create_app

    folder = tmp_path_factory.mktemp("models")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    app = create_app(WebSettings(port=port, workers=1, grace_seconds=GRACE, static=static, folder=folder))
    config = uvicorn.Config(app, log_level="error", ws="websockets-sansio", lifespan="on",
                            ws_max_size=int(LIMITS["message_bytes"]))  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        found = Site(port, static, client, app, folder)
        while not server.started:
            time.sleep(0.01)
        yield found
    server.should_exit = True
    thread.join(20)
    listening.close()
    assert not thread.is_alive(), "the server did not end"


@pytest.fixture
def quiet(site: Site) -> Iterator[Site]:
    """The server with no runs before, and waits until there are none after."""
    from explorer_site import wait_for_runs

    wait_for_runs(site, 0)
    yield site
    wait_for_runs(site, 0)

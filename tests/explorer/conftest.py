"""What all tests of this folder share: a real server on a free port, in a thread, with one worker process; and for the
browser's tests one as a process of its own, which takes seconds to start and forgets who closed a page.
"""

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

# these need scansnap[web]
if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "websockets", "httpx", "tomli_w")):
    collect_ignore_glob = ["test_*.py"]

_SECONDS = ("head_seconds", "body_seconds", "stall_seconds", "flow_seconds", "claims_limit_seconds", "lens_seconds",
            "answer_seconds", "margin_seconds")  # fmt: skip


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    static = tmp_path_factory.mktemp("static")
    (static / "index.html").write_text("<!doctype html><title>page</title>")
    (static / "film.html").write_text(
        "<!doctype html><script>const film = /*__FILM_DATA__*/;</script><script>/*__FILM_PLAYER__*/</script>"
    )
    (static / "js" / "draw").mkdir(parents=True)
    (static / "js" / "draw" / "player.js").write_text("// plays\n")
    import httpx
    import uvicorn
    from explorer_site import GRACE, PATIENCE, Site

    from scansnap.explorer.api.listening import configuration
    from scansnap.explorer.api.server import WebSettings, create_app
    from scansnap.explorer.protocol import LIMITS

    folder = tmp_path_factory.mktemp("models")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    probe = tmp_path_factory.mktemp("probes") / "probe.zarr"
    app = create_app(WebSettings(port=port, workers=1, grace_seconds=GRACE, static=static, folder=folder, probe=probe))
    # on a machine that is busy with other things nothing may be given up as too slow, unless a test says so
    before = {name: LIMITS[name] for name in _SECONDS}
    LIMITS.update(dict.fromkeys(_SECONDS, PATIENCE))
    options = {"log_level": "error", "ws_ping_interval": None, "timeout_keep_alive": int(PATIENCE)}
    server = uvicorn.Server(configuration(app, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
        found = Site(port, static, client, app, folder, probe)
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield found
    server.should_exit = True
    thread.join(PATIENCE)
    listening.close()
    LIMITS.update(before)
    assert not thread.is_alive(), "the server did not end"


@pytest.fixture
def quiet(site: Site) -> Iterator[Site]:
    """The server with no runs, whatever the tests before left, and nothing left for those after."""
    from explorer_site import end_runs

    end_runs(site)
    yield site
    end_runs(site)


@pytest.fixture(scope="session")
def served() -> Iterator[str]:
    """The address of ``scansnap serve``; here and not beside the pages, as an imported fixture is one per module."""
    from browser import serving

    with serving() as address:
        yield address

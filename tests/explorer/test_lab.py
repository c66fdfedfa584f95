"""The server of the lab extras: one user on the loopback address, and nobody else."""

import http.client
import json
import threading
from collections.abc import Callable

import pytest
from probe_file import HOSTILE, write

import scansnap as ss
from scansnap.checks import InputError
from scansnap.cli.explorer import explorer
from scansnap.explorer.lab.probe import files, html
from scansnap.explorer.lab.refusal import Refused
from scansnap.explorer.lab.server import MOST_BYTES, Extras, LabServer
from scansnap.html.page import script_hash
from scansnap.probe.report.page import PACKAGE

SMALL = {"classes": {"preset": "syn-small"}, "eta_y": 1.0, "eta_z": 1.0, "steps": 60}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with LabServer(Extras(folder, folder / "probe.zarr")) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


class Answer:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()

    @property
    def json(self):
        return json.loads(self.text)


Ask = Callable[..., Answer]


@pytest.fixture
def ask(server):
    def call(method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"content-type": "application/json"} if body is not None else {}
        connection.request(method, path, sent, {**kind, **{k.replace("_", "-"): v for k, v in headers.items()}})
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    return call


def test_the_page_says_which_extras_there_are(ask):
    page = ask("GET", "/")
    assert page.status == 200
    assert '"lab":{"lens":true,"probe":true,"verify":true}' in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_it_listens_on_the_loopback_address_only(server):
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("headers", [
    {"host": "evil.example"}, {"host": "evil.example:80"}, {"origin": "http://evil.example"}, {"origin": "null"},
    {"sec_fetch_site": "cross-site"}])  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/api/lens", "/probe"])
def test_other_sites_are_refused(ask, headers, path):
    assert ask("GET", path, **headers).status == 403
    assert ask("POST", "/api/verify", SMALL, **headers).status == 403


def test_its_own_page_is_not(ask, server):
    for name in ("127.0.0.1", "localhost"):
        own = f"{name}:{server.port}"
        assert ask("GET", "/", host=own, origin=f"http://{own}", sec_fetch_site="same-origin").status == 200


def test_a_set_up_is_judged(ask):
    said = ask("POST", "/api/verify", SMALL)
    assert said.status == 200
    assert said.json["step"] == 60
    assert {"holds", "not applicable"} >= {
        claim["status"] for claim in said.json["claims"] if claim["kind"] == "identity"
    }
    refused = ask("POST", "/api/verify", {**SMALL, "eta_y": -1})
    assert (refused.status, refused.json["field"]) == (422, "eta_y")


@pytest.mark.parametrize(("body", "headers", "status"), [
    (b"{", {}, 400), (b"[" * 5000, {}, 400), (SMALL, {"content_type": "text/plain"}, 415),
    (b" " * (MOST_BYTES + 1), {}, 413), (SMALL, {"content_length": "x"}, 413)])  # fmt: skip
def test_bodies_are_limited(ask, body, headers, status):
    assert ask("POST", "/api/verify", body, **headers).status == status


def test_everything_else_is_not_there(ask):
    for path in ("/static/js/main.js", "/../pyproject.toml", "/api", "/%2e%2e/x"):
        assert ask("GET", path).status == 404
    assert ask("POST", "/api/other", SMALL).status == 404
    assert ask("DELETE", "/").status == 501


def test_without_a_model_the_lens_says_so(ask):
    assert ask("GET", "/api/lens").json == {"models": []}
    refused = ask("GET", "/api/lens/none?query=the")
    assert (refused.status, refused.json["field"]) == (404, "lens")


# --- probes' files ---------------------------------------------------------------------------------------------------


def test_the_file_given_at_start_is_shown_as_it_is_now(ask, server):
    before = ask("GET", "/probe")
    assert (before.status, before.json["field"]) == (422, "request")
    assert server.extras.probe is not None
    write(server.extras.probe)
    page = ask("GET", "/probe")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.text.count('class="cell ') == 4 + 2
    assert HOSTILE not in page.text
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == f"'{script_hash(PACKAGE)}'"
    assert policy["frame-ancestors"] == "'self'", "the page shows it in a frame"
    assert page.headers["x-content-type-options"] == "nosniff"


def test_without_a_file_there_is_no_page():
    with pytest.raises(Refused) as refused:
        html(None)
    assert refused.value.status == 404


def test_what_is_no_probes_file_is_refused_before_anything_starts(tmp_path):
    run = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1, eta_z=1, steps=2)
    ss.save(run, tmp_path / "run.zarr")
    (tmp_path / "empty.zarr").mkdir()
    for name in ("run.zarr", "empty.zarr", "none.zarr", "text.txt"):
        with pytest.raises(InputError) as refused:
            explorer(probe=tmp_path / name, open_browser=False)
        assert refused.value.field == "--probe"


def test_of_a_folder_each_file_has_its_report_and_no_other_file_can_be_asked_for(tmp_path):
    folder, outside = tmp_path / "probes", tmp_path / "outside.zarr"
    (folder / "seeds").mkdir(parents=True)
    with pytest.raises(InputError):
        explorer(probe=folder, open_browser=False)
    write(folder / "seeds" / "b.zarr")
    write(outside)
    (folder / "away.zarr").symlink_to(outside)
    assert list(files(folder)) == ["seeds/b.zarr"], "a link that leads out is none of them"
    write(folder / "a.zarr")  # a training that began later
    assert list(files(folder)) == ["a.zarr", "seeds/b.zarr"]
    assert html(folder, "seeds/b.zarr").count('class="cell ') == 4 + 2
    for name in ("away.zarr", "../outside.zarr", "c.zarr"):
        with pytest.raises(Refused) as refused:
            html(folder, name)
        assert refused.value.status == 404


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_file_has_no_server(tmp_path, scansnap):
    code, _, err = scansnap("explorer", "--out", "x.html", "--verify")
    assert code == 2
    assert "--out" in err
    assert not (tmp_path / "x.html").exists()


def test_the_command_writes_one_file_and_asks_before_it_replaces_one(tmp_path, scansnap):
    for command in ("explorer", "serve"):
        assert scansnap(command, "--out", f"{command}.html")[0] == 0
        assert (tmp_path / f"{command}.html").stat().st_size > 10**5
        assert scansnap(command, "--out", f"{command}.html")[0] == 2
        assert scansnap(command, "--out", f"{command}.html", "--overwrite")[0] == 0


def test_without_out_it_opens_a_file_of_the_cache(tmp_path, scansnap, monkeypatch):
    opened = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert scansnap("explorer")[0] == 0
    assert opened == [(tmp_path / "cache" / "scansnap" / "explorer.html").as_uri()]

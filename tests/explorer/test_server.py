"""The HTTP side: answers, refusals, headers, files."""

import asyncio
import base64
import csv
import io
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_site import PATIENCE, SMALL, Site, wait_until

import scansnap as ss
from scansnap.explorer.api import questions
from scansnap.explorer.protocol import LIMITS, Refused


def refused(response: Any, status: int, field: str) -> str:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"field", "message"}
    assert body["field"] == field
    return str(body["message"])


def test_the_page_and_its_library(site: Site) -> None:
    page = site.client.get("/")
    assert page.status_code == 200
    assert "<title>page</title>" in page.text
    library = site.client.get("/vendor/plotly.min.js")
    assert library.status_code == 200
    assert "javascript" in library.headers["content-type"]
    assert len(library.content) > 1e6


@pytest.mark.parametrize("path", ["/", "/api/health", "/nothing", "/api/runs/none", "/static/nothing.js"])
def test_every_answer_carries_the_safety_headers(site: Site, path: str) -> None:
    headers = site.client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""])
def test_other_names_are_refused(site: Site, host: str) -> None:
    refused(site.client.get("/", headers={"host": host.format(port=site.port)}), 403, "request")


def test_own_names_are_served(site: Site) -> None:
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
        assert site.client.get("/api/health", headers={"host": f"{name}:{site.port}"}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"])
def test_other_pages_are_refused(site: Site, origin: str) -> None:
    headers = {"origin": origin.format(port=site.port)}
    refused(site.client.post("/api/check", json=SMALL, headers=headers), 403, "request")
    own = {"origin": f"http://127.0.0.1:{site.port}"}
    assert site.client.post("/api/check", json=SMALL, headers=own).status_code == 200


@pytest.mark.parametrize("path", ["/static/../conftest.py", "/static/%2e%2e/%2e%2e/etc/passwd", "/static//etc/passwd",
                                  "/static/link", "/api/lens/../../etc/passwd"])  # fmt: skip
def test_no_file_outside_is_served(site: Site, path: str) -> None:
    link = site.static / "link"
    if not link.is_symlink():
        link.symlink_to("/etc/passwd")
    response = site.client.get(path)
    assert response.status_code == 404
    assert "root:" not in response.text


def test_the_catalogue_explains_itself(site: Site) -> None:
    said = site.client.get("/api/catalogue").json()
    assert said["version"] == ss.__version__
    assert said["limits"] == LIMITS
    for control in said["controls"]:
        assert control["explain"]
    for preset in said["presets"]:
        assert site.client.post("/api/check", json=preset["setup"]).status_code == 200
    assert len(site.client.get("/api/tour").json()["scenes"]) == 6


def test_check_tells_classes_and_theory(site: Site) -> None:
    said = site.client.post("/api/check", json={**SMALL, "context": "inf"}).json()
    assert said["setup"]["context"] == "inf"
    assert said["engine"] in ("fused", "general")
    assert [row["dominant"] for row in said["classes"]["classes"]] == [19, 29]
    assert said["classes"]["classes"][0]["kinds"] == ["common"] * 10 + ["distinct"] * 10
    assert said["theory"]["t_snap"] == pytest.approx(2 * said["theory"]["t_scan"])


def test_curves_and_flow(site: Site) -> None:
    curves = site.client.post("/api/curves", json={"setup": SMALL, "last": 100, "points": 20}).json()
    assert len(curves["growth"][0]) == len(curves["t"]) == len(curves["gamma"])
    flow = site.client.post("/api/flow", json={"setup": SMALL, "last": 50, "points": 10}).json()
    assert len(flow["attention"][0]) == 20
    assert len(flow["attention"][0][0]) == len(flow["t"])
    for path in ("/api/curves", "/api/flow"):
        refused(site.client.post(path, json={"setup": SMALL, "last": 0}), 422, "last")
        refused(site.client.post(path, json={"setup": SMALL, "last": 5, "points": 10**9}), 422, "points")
        refused(site.client.post(path, json={"setup": {**SMALL, "eta_y": -1}, "last": 5}), 422, "eta_y")
    refused(site.client.post("/api/flow", json={"setup": {**SMALL, "optimizer": "adam"}, "last": 5}), 422, "flow")


def test_a_flow_ends_with_its_reader_and_with_its_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {"setup": {"classes": {"preset": "zipf", "vocab": 5000, "classes": 40}}, "last": 10**7, "points": 200}
    body = json.dumps(slow).encode()
    head = f"POST /api/flow HTTP/1.1\r\nHost: localhost:{site.port}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port)) as reader:
        reader.sendall(head.encode() + body)
        wait_until(lambda: site.switchboard.n_jobs, "the computation does not begin")
    wait_until(lambda: not site.switchboard.n_jobs, "the computation goes on although nobody waits for it")
    assert site.client.post("/api/flow", json={"setup": SMALL, "last": 5}).status_code == 200
    monkeypatch.setitem(LIMITS, "flow_seconds", 0.2)
    assert "0.2 seconds" in refused(site.client.post("/api/flow", json=slow), 503, "flow")
    monkeypatch.setitem(LIMITS, "jobs", 0)
    refused(site.client.post("/api/flow", json={"setup": SMALL, "last": 5}), 429, "flow")


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 400), (b"{", 400), (b"\xff", 400), (b'{"eta_y": NaN}', 400), (b"[1]", 422), (b"9" * 5000, 400),
     (b"[" * 100_000, 400), (b" " * (LIMITS["body_bytes"] + 1), 413)],
)  # fmt: skip
def test_malformed_bodies(site: Site, content: bytes, status: int) -> None:
    refused(site.client.post("/api/check", content=content), status, "request")


def test_a_body_without_a_length_is_capped_too(site: Site) -> None:
    def chunks() -> Any:
        for _ in range(40):
            yield b" " * 65536

    refused(site.client.post("/api/check", content=chunks()), 413, "request")


def test_unknown_things_are_404_in_words(site: Site) -> None:
    refused(site.client.get("/api/runs/none/claims"), 404, "run")
    refused(site.client.get("/api/nothing"), 404, "request")
    refused(site.client.get("/api/lens/model?query=the"), 404, "lens")
    refused(site.client.put("/api/check", json={}), 405, "request")


def test_a_run_to_take_away(quiet: Site, tmp_path: Path) -> None:
    client = quiet.open({**SMALL, "steps": 60})
    try:
        client.wait_state("done")
        client.send(op="rates", eta_y=2)
        client.wait(lambda c: c.last("mark"))
        assert client.run is not None
        name = client.run["run"]
        get = quiet.client.get
        assert get(f"/api/runs/{name}").json()["marks"] == [{"step": 60, "eta_y": 2.0, "eta_z": 1.0}]

        film = get(f"/api/runs/{name}/film").json()
        steps = np.frombuffer(base64.b64decode(film["steps"]), "<u4")
        data = np.frombuffer(base64.b64decode(film["data"]), "<f4").reshape(film["n"], film["floats"])
        assert steps.tolist() == sorted(client.frames)
        np.testing.assert_array_equal(data, [client.frames[s] for s in steps])

        page = get(f"/api/runs/{name}/film.html")
        assert "attachment" in page.headers["content-disposition"]
        inside = re.search(r"const film = (.*);</script>", page.text)
        assert inside is not None
        assert json.loads(inside.group(1))["data"] == film["data"]

        rows = list(csv.DictReader(io.StringIO(get(f"/api/runs/{name}/csv?frames=1000").text)))
        assert len(rows) == film["n"] * film["floats"]
        loss = {int(r["step"]): r["value"] for r in rows if r["quantity"] == "loss"}
        assert all(np.float32(loss[s]) == client.frames[s][0] for s in loss)
        one = next(r for r in rows if r["quantity"] == "attention" and r["token"] == "19")
        assert (one["class"], one["query"], one["kind"]) == ("0", "30", "distinct")
        refused(get(f"/api/runs/{name}/csv?frames=0"), 422, "frames")
        refused(get(f"/api/runs/{name}/csv?frames=x"), 422, "frames")
        few = get(f"/api/runs/{name}/csv?frames=5").text
        assert len({line.split(",")[0] for line in few.splitlines()[1:]}) <= 5

        text = get(f"/api/runs/{name}/toml").text
        assert "# from step 60 on: eta_y = 2.0" in text
        assert quiet.client.post("/api/toml", json=client.run["setup"]).text.splitlines()[1:] == [
            line for line in text.splitlines()[1:] if not line.startswith("# from step")
        ]
        claims = get(f"/api/runs/{name}/claims").json()
        assert claims["step"] == 60
        assert {c["status"] for c in claims["claims"]} <= {"holds", "fails", "undecided", "not applicable"}
        assert {c["instead"] for c in claims["claims"]} == {None}  # nothing fails where nothing is judged
        assert get(f"/api/runs/{name}/claims").json() == claims
        early = get(f"/api/runs/{name}/claims?step=20").json()  # at once: another step is another question
        assert early["step"] == 20
        assert "changed on the way" not in early["claims"][0]["why"], "the rates changed later"
        assert get(f"/api/runs/{name}/claims?step=1000").json()["step"] == 60
        refused(get(f"/api/runs/{name}/claims?step=-1"), 422, "step")
        refused(get(f"/api/runs/{name}/claims?step=x"), 422, "step")
    finally:
        client.close()
    file = tmp_path / "run.toml"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "scansnap", "run", str(file), "--out", str(tmp_path / "run.nc"),
                           "--no-figure", "--record", "60"], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    with ss.load(tmp_path / "run.nc") as saved:
        assert np.float32(saved.loss.values[0, -1]) == client.frames[60][0], "the file runs to the same number"


WORDS = ("the", "of", "river", "bank", "money", "water", "<unk>", "<eos>")


@pytest.fixture(scope="module")
def text_model(site: Site) -> Path:
    """A small trained model in the server's folder, and things there that must not be shown."""
    from scansnap.corpus.vocabulary import Vocabulary
    from scansnap.text.train import train
    from scansnap.text.yz.model import YZTransformer
    from scansnap.text.yz.settings import YZSettings

    vocabulary = Vocabulary(WORDS, [50, 30, 10, 8, 6, 5, 4, 3])
    path = site.folder / "deep" / "small.safetensors"
    path.parent.mkdir()
    model = YZTransformer(YZSettings(vocab_size=len(WORDS), init="zero", eta_y=5.0, eta_z=1.0))
    train(model, np.tile([0, 2, 1, 3, 4, 5], 60), steps=6, batch=2, length=5, checkpoint=path, vocabulary=vocabulary,
          measure=lambda model, step: {"entropy": 1.0 * step})  # fmt: skip
    train(model, np.tile([0, 2, 1, 3, 4, 5], 60), steps=6, batch=2, length=5, checkpoint=site.folder / "no.safetensors")
    outside = site.folder.parent / "secret.safetensors"
    outside.write_bytes(path.read_bytes())
    (site.folder / outside.name).symlink_to(outside)
    (site.folder / "junk.safetensors").write_bytes(b"junk")
    return path


def test_the_lens_shows_a_trained_model(site: Site, text_model: Path) -> None:
    from scansnap.text.explain import explain
    from scansnap.text.library import open_trained

    assert site.client.get("/api/lens").json() == {
        "models": [{"name": "deep/small", "title": "deep/small (yz, 6 steps)"}]
    }
    said = site.client.get("/api/lens/deep/small", params={"query": "bank"}).json()
    trained = open_trained(text_model)
    expected = explain(trained.model, trained.vocabulary, "bank", top=20)
    assert said["entropy"] == expected.entropy
    assert {row["word"]: row["attention"] for row in said["attended"]} == {
        a.word: a.attention for a in expected.attended
    }
    assert [row["word"] for row in said["votes"]] == [word for word, _ in expected.predicted]
    assert said["entropy_over_training"][-1] == {"step": 6, "entropy": 6.0}


@pytest.mark.parametrize(("name", "query", "status", "field"), [
    ("deep/small", "", 422, "query"), ("deep/small", "x" * 101, 422, "query"), ("deep/small", "unheard", 422, "query"),
    ("secret", "the", 404, "lens"), ("../secret", "the", 404, "lens"), ("%2e%2e/secret", "the", 404, "lens"),
    ("junk", "the", 422, "lens"), ("no", "the", 422, "lens")])  # fmt: skip
def test_the_lens_looks_only_into_its_folder(
    site: Site, text_model: Path, name: str, query: str, status: int, field: str
) -> None:
    response = site.client.get(f"/api/lens/{name}", params={"query": query})
    if name.startswith("../"):  # the client resolves it itself
        assert response.status_code == 404
    else:
        refused(response, status, field)


def test_a_computation_cut_off_by_the_end_of_the_server_is_unavailable_not_an_error() -> None:
    class Present:
        async def is_disconnected(self) -> bool:
            return False

    async def stopped() -> None:
        begun = asyncio.Event()

        async def long() -> bytes:
            begun.set()
            await asyncio.sleep(PATIENCE)
            return b""

        work = asyncio.ensure_future(questions.unless_gone(Present(), long()))  # type: ignore[arg-type]
        await begun.wait()
        work.cancel()
        await work

    with pytest.raises(Refused) as refusal:
        asyncio.run(stopped())
    assert refusal.value.status == 503

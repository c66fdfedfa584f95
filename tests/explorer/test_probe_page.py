"""The report on a probe's file, from the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from explorer_site import Site, wait_until
from probe_file import HOSTILE, write

import scansnap as ss
from scansnap.checks import InputError
from scansnap.cli.serve import serve
from scansnap.explorer.pages.probe import files, html
from scansnap.explorer.protocol import Refused
from scansnap.probe.report.page import script_hash


def test_the_file_given_at_start_is_shown_as_it_is_now(site: Site) -> None:
    assert site.client.get("/api/catalogue").json()["probe"] is True
    before = site.client.get("/probe")
    assert before.status_code == 422
    assert before.json()["message"].startswith("--probe is")
    write(site.probe)
    page = site.client.get("/probe")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.text.count('class="cell ') == 4 + 2
    assert HOSTILE not in page.text
    wait_until(lambda: site.switchboard.n_exports == 0, "what was read still counts")
    headers = page.headers  # it may run its own script and nothing else
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == f"'{script_hash()}'"
    assert policy["frame-ancestors"] == "'self'", "the page shows it in a frame"
    assert headers["x-content-type-options"] == "nosniff"


def test_without_a_file_there_is_no_page() -> None:
    with pytest.raises(Refused, match="--probe") as refused:
        html(None)
    assert refused.value.status == 404


def test_what_is_no_probes_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    run = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1, eta_z=1, steps=2)
    ss.save(run, tmp_path / "run.zarr")
    (tmp_path / "empty.zarr").mkdir()
    for name in ("run.zarr", "empty.zarr", "none.zarr", "text.txt"):
        with pytest.raises(InputError, match=r"^--probe is"):
            serve("127.0.0.1", 0, None, False, tmp_path / name)


def test_of_a_folder_each_file_has_its_report_and_no_other_file_can_be_asked_for(tmp_path: Path) -> None:
    folder, outside = tmp_path / "probes", tmp_path / "outside.zarr"
    (folder / "seeds").mkdir(parents=True)
    with pytest.raises(InputError, match=r"^--probe is .* or a folder that holds some"):
        serve("127.0.0.1", 0, None, False, folder)
    write(folder / "seeds" / "b.zarr")
    write(outside)
    (folder / "away.zarr").symlink_to(outside)
    assert list(files(folder)) == ["seeds/b.zarr"], "a link that leads out is none of them"
    write(folder / "a.zarr")  # a training that began later
    assert list(files(folder)) == ["a.zarr", "seeds/b.zarr"]
    assert html(folder, "seeds/b.zarr").count('class="cell ') == 4 + 2
    for name in ("away.zarr", "../outside.zarr", "c.zarr"):
        with pytest.raises(Refused, match="no probe's file") as refused:
            html(folder, name)
        assert refused.value.status == 404

"""The worker as the page starts it, one script: the newest request wins, frames and cells come one after the other."""

import json
import subprocess
from pathlib import Path

import pytest
from page_engine import FOLDER, NODE, answer, needs_node

from scansnap.explorer.bundle import bundle
from scansnap.explorer.declared import declared
from scansnap.explorer.page import STATIC, as_json
from scansnap.explorer.presets import DEFAULT

pytestmark = needs_node


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    assert NODE is not None
    folder = tmp_path_factory.mktemp("worker")
    (folder / "worker.js").write_text(bundle(STATIC / "js", "engine/worker"), encoding="utf-8")
    (folder / "declared.json").write_text(as_json(declared()))
    script = Path(__file__).with_name("workers.mjs")
    call = [NODE, script, FOLDER, folder / "worker.js", folder / "declared.json"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_newest_request_wins(said):
    assert said["older"]["kind"] == "cancelled"
    assert said["newer"]["answer"] == {"step": 300, "failed_step": None}


def test_frames_come_as_they_are_computed(said):
    newer = said["newer"]
    assert newer["types"][0] == "about"
    assert newer["types"].count("frames") > 1
    assert newer["types"][-1] == "table"
    film = answer(ask="film", setup=DEFAULT | {"steps": 300})
    assert newer["steps"] == film["steps"]
    assert newer["values"] == film["values"]


def test_lanes_do_not_wait_for_each_other(said):
    assert said["beside"]["answer"]["step"] == 20
    assert said["flow"]["answer"]["t"][-1] == 100


def test_a_request_can_be_cancelled(said):
    assert said["aborted"]["kind"] == "cancelled"
    assert "frames" in said["aborted"]["types"]


def test_refusals_name_the_control(said):
    assert (said["refused"]["kind"], said["refused"]["field"]) == ("refused", "eta_y")
    assert (said["unknown"]["kind"], said["unknown"]["field"]) == ("refused", "request")


def test_the_map_is_filled_bit_by_bit(said):
    assert sum(said["cells"]) == 81
    assert len(said["cells"]) > 10

"""The gallery has every figure with its command, small enough to keep; its script writes what the manifest says."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from repository_scripts import load_script
from scansnap.paper.report.targets import TARGETS, label

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def figures(page):
    """Of each figure of a gallery: title, picture, command."""
    return re.findall(r"^### ([^\n]+)\n\n!\[[^]]*\]\(([^)]+)\)\n\n```sh\n(.+?)\n```", page, flags=re.M | re.S)


def test_the_gallery_has_every_figure_with_its_command():
    found = figures((DOCS / "gallery.md").read_text(encoding="utf-8"))
    for name in TARGETS:
        commands = [command for _, _, command in found]
        assert any(re.search(rf"\b{name}\b", command) for command in commands), name
    for picture in {picture for _, picture, _ in found}:
        assert (DOCS / picture).is_file(), picture
    for command in ("run", "verify", "text explain", "verify --map", "explorer", "lecture", "dial"):
        assert any(f"scansnap {command}" in line for _, _, line in found), command


def test_the_gallery_holds_nothing_else_and_is_small():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    files = list((DOCS / "gallery").iterdir())
    assert {f"gallery/{file.name}" for file in files} == {picture for _, picture, _ in figures(page)
                                                         if picture.startswith("gallery/")}  # fmt: skip
    assert sum(file.stat().st_size for file in files) < 4e6
    for file in files:
        with Image.open(file) as image:
            assert image.width <= 1000, file.name


@pytest.fixture
def reproduced(tmp_path):
    """A folder as ``reproduce`` writes it, of two targets."""
    targets = {}
    for name in ("fig4", "words"):
        Image.new("RGB", (2000, 1000), "white").save(tmp_path / f"{name}.png")
        targets[name] = {"title": f"Title of {name}", "command": f"scansnap reproduce {name} --quick", "quick": True,
                         "note": "3 seeds", "versions": {"scansnap": "9.8.7"},
                         "machine": {"cores": 2, "device": "cpu"}}  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps({"targets": targets}))
    return tmp_path


def test_the_page_says_what_the_manifest_says(reproduced, tmp_path, monkeypatch):
    gallery = load_script("docs/scripts/gallery.py")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    monkeypatch.setattr(gallery, "PICTURES", pictures)
    monkeypatch.setattr(gallery, "OTHERS", ())
    page = "\n".join(gallery.page(reproduced, tmp_path))
    shown = {title: command for title, _, command in figures(page)}
    for name in ("fig4", "words"):
        assert shown[f"{label(name)}: Title of {name}"] == f"scansnap reproduce {name} --quick"
        with Image.open(pictures / f"{name}.webp") as image:
            assert image.size == (1000, 500)
    assert "scansnap 9.8.7" in page
    assert "(quick)" in page
    assert "*3 seeds.*" in page
    assert "Figure 6" not in page  # it was not made


def test_the_pictures_of_the_pages_are_there_and_the_film_is_light():
    page = (DOCS / "explorer.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\((explorer/[^)]+)\)", page))
    assert {f"explorer/{file.name}" for file in (DOCS / "explorer").iterdir()} == shown
    film = DOCS / "explorer" / "run.webp"
    with Image.open(film) as image:
        assert image.n_frames > 20
    assert film.stat().st_size < 1.5e6


def test_the_moving_picture_is_of_the_run_it_says():
    """Where the bars end and when attention snaps, computed anew; a tenth of a pixel is its rounding."""
    moving = load_script("docs/scripts/moving.py")
    moments = moving.compute()
    picture = (DOCS / "moving.svg").read_text(encoding="utf-8")
    assert f"snap at step {moments.snap:.0f}:" in picture
    ends = [float(y) for y in re.findall(r'style="transform:translateY\(([\d.]+)px\)', picture)]
    assert ends == pytest.approx(140 * (1 - moments.attention[-1] / moments.attention.max()).ravel(), abs=0.2)
    assert moments.shares["common"][-1] < 0.5 * moments.shares["common"][0]  # what the README says of it
    moved = abs(moments.attention[1:] - moments.attention[:-1]).sum((1, 2))
    assert moved[moments.steps[1:] > 2 * moments.snap].max() < 0.1 * moved.max()

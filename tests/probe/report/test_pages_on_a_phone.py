"""The report and the page of two runs on a phone: nothing runs past the right edge, and the headline comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_data import made

import scansnap as ss
from scansnap.probe.comparison.page import write_page
from scansnap.probe.report.page import report

pytestmark = pytest.mark.integration
PHONE = {"width": 390, "height": 844}
HEADLINE = "2 heads collapsed (layer 0: heads 1, 3), max logit 212 at step 1,500"
UNBOXED = ".scroll { overflow-x: visible }"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "two runs"])
def test_tables_scroll_in_their_own_box(name: str, scheme: Any, browser: Any, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    if name == "report":
        report(made(4, 12).assign_attrs(headline=HEADLINE), target)
    else:
        a, b = made(), made(seed=1)
        b["tokens"] = a["tokens"]
        names = ("baseline, learning rate 0.001", "query and key rates 8 times")
        write_page(a, b, ss.probe.diff(a, b), target, names)
    page = browser.new_page(viewport=PHONE, color_scheme=scheme)
    page.goto(target.as_uri())
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) == PHONE["width"]
    headline = page.locator("h1").bounding_box()
    assert headline["y"] + headline["height"] < PHONE["height"] / 3
    page.add_style_tag(content=UNBOXED)
    assert page.evaluate(width) > PHONE["width"], "the control: tables without their boxes"
    page.close()

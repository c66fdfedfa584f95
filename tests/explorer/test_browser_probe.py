"""The report on a probe's file in chromium: from the explorer's button to one head's numbers, by mouse and keys."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import QUICK, Page, browser, require_browser, serving

pytestmark = pytest.mark.integration

require_browser()


def test_a_probes_report_is_opened_read_and_searched(browser: Any, tmp_path: Path) -> None:
    from probe_file import write

    for name in ("a.zarr", "b.zarr"):
        write(tmp_path / name)
    with serving(probe=tmp_path) as address:
        p = Page(browser, address)
        p.page.goto(address + QUICK)
        p.page.wait_for_selector("#probe:not([hidden])")
        p.page.click("#probe")
        p.page.select_option("#probe-file", "b.zarr")
        framed = p.page.frame_locator("dialog iframe")
        framed.locator(".cell").nth(1).click()
        assert framed.locator("#d-name").inner_text() == "layer 0 · head 1", "its own script runs, in the page"
        assert p.page.evaluate("window.hit") is None
        p.check_quiet()
        with p.context.expect_page() as opened:
            p.page.click("dialog a.button")
        page = opened.value
        assert page.url.endswith("probe?file=b.zarr")
        p.page.close()
        p.page = page
        page.on("pageerror", lambda error: p.complaints.append(str(error)))
        assert page.evaluate("window.hit") is None
        assert page.locator(".cell").count() == 6
        cell = page.locator(".cell").nth(1)
        cell.click()
        assert page.inner_text("#d-name") == "layer 0 · head 1"
        assert cell.get_attribute("aria-pressed") == "true"
        page.keyboard.press("ArrowDown")
        assert page.inner_text("#d-name") == "layer 1 · head 1"
        page.keyboard.press("ArrowRight")  # the layer has two heads
        assert page.inner_text("#d-name") == "layer 1 · head 1"
        before = cell.locator(".curve").get_attribute("d")
        page.select_option("#quantity", label="from start")
        assert cell.locator(".curve").get_attribute("d") != before
        assert "Total variation" in page.inner_text("#meaning")
        page.hover("#d-plot", position={"x": 2, "y": 20})
        assert "at step 0: –" in page.inner_text("#d-read"), "nothing has moved by the first measurement"
        page.click("#all th:nth-child(10) button")  # the last entropy, the greatest first
        values = [float(text) for text in page.locator("#all tbody td:nth-child(10)").all_inner_texts()]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) > 1
        chip = page.locator(".chip:enabled").first
        chip.click()
        marked = page.locator(".cell:not(.off)").count()
        assert marked == int(chip.locator("b").inner_text()) > 0
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == 390, "nothing sticks out on a phone"
        p.check_quiet()
        p.context.close()

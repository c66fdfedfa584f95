"""The explorer's page in a browser, end to end: how soon it paints, and how evenly it plays.

    python benchmarks/explorer_frames.py [--seconds 12] [--size 1280x720] [--json FILE]

A headless chromium opens each page, waits until its film is complete, and plays it. A script in the page notes the time
of every animation frame; a frame that comes late is one the drawing of the one before kept waiting. Beside it stand the
processor seconds of the page's own thread (all of it, and scripts alone) and of all of the browser's processes.
Headless chromium has no graphics card: every pixel is drawn by the processor, as it is not on a laptop.

First paint is the browser's own (``PerformancePaintTiming``), of a page opened for the first time in a new profile.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from explorer_server import processor_seconds, serving

PAGES = {
    "the default film": "",
    "Syn-Medium, 20 classes": "#preset=medium-10&classes=syn-medium&classes.n_queries=10&eta_y=2&eta_z=1&momentum=0.9"
    "&init=uniform&steps=5000",
}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
DONE = """async () => {
  const { app } = await import(new URL("static/js/app.js", document.baseURI));
  return Boolean(app.film?.run.run && app.state.state === "done" && app.film.lastStep === app.state.step);
}"""
PLAY = """(seconds) => new Promise((done) => {
  const times = [], steps = new Set(), clock = document.querySelector("#clock b"), began = performance.now();
  const tick = (now) => {
    times.push(now);
    steps.add(clock.textContent);
    if (now - began < 1000 * seconds) requestAnimationFrame(tick); else done({ times, steps: steps.size });
  };
  document.querySelector("#play").click();
  requestAnimationFrame(tick);
})"""
PAINT = "() => Object.fromEntries(performance.getEntriesByType('paint').map((e) => [e.name, e.startTime]))"


def measure(browser: Any, pid: int, address: str, size: tuple[int, int], seconds: float) -> dict[str, float]:
    """One page: opened, waited for, played."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    paint = page.evaluate(PAINT)
    while not page.evaluate(DONE):
        page.wait_for_timeout(100)
    page.wait_for_timeout(1000)  # curves and closed forms come after it
    metrics = context.new_cdp_session(page)
    metrics.send("Performance.enable")

    def spent() -> dict[str, float]:
        return {one["name"]: one["value"] for one in metrics.send("Performance.getMetrics")["metrics"]}

    before, processor = spent(), processor_seconds(pid)
    seen = page.evaluate(PLAY, seconds)
    after, processor = spent(), processor_seconds(pid) - processor
    context.close()
    times = sorted(later - earlier for earlier, later in zip(seen["times"], seen["times"][1:], strict=False))
    played = (seen["times"][-1] - seen["times"][0]) / 1e3
    return {
        "first_paint_ms": paint["first-paint"], "contentful_paint_ms": paint["first-contentful-paint"],
        "frames_per_second": len(times) / played, "frame_median_ms": times[len(times) // 2],
        "frame_95_ms": times[int(0.95 * len(times))], "frame_worst_ms": times[-1], "steps_shown": seen["steps"],
        "page_seconds": (after["TaskDuration"] - before["TaskDuration"]) / played,
        "script_seconds": (after["ScriptDuration"] - before["ScriptDuration"]) / played,
        "browser_seconds": processor / played,
    }  # fmt: skip


def table(found: dict[str, dict[str, float]], size: str) -> str:
    rows = (
        ("first paint", "first_paint_ms", "{:.0f} ms"),
        ("first paint with content", "contentful_paint_ms", "{:.0f} ms"),
        ("frames a second while playing", "frames_per_second", "{:.1f}"),
        ("time of a frame, median", "frame_median_ms", "{:.1f} ms"),
        ("time of a frame, 95%", "frame_95_ms", "{:.1f} ms"), ("time of a frame, worst", "frame_worst_ms", "{:.0f} ms"),
        ("different steps shown", "steps_shown", "{:.0f}"),
        ("the page's thread, seconds a second", "page_seconds", "{:.2f}"),
        ("of these scripts", "script_seconds", "{:.2f}"),
        ("the whole browser, processor seconds a second", "browser_seconds", "{:.2f}"),
    )  # fmt: skip
    lines = [f"| {size} | {' | '.join(found)} |", "|---" * (1 + len(found)) + "|"]
    lines += [f"| {name} | {' | '.join(show.format(one[key]) for one in found.values())} |" for name, key, show in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How the explorer's page paints and plays in a browser.")
    parser.add_argument("--seconds", type=float, default=12, help="of playing; a whole film takes 12")
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Error: there is no chromium here; install it (apt install chromium).")
    from playwright.sync_api import sync_playwright

    width, height = (int(part) for part in given.size.split("x"))
    with serving() as (_, link), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        found = {name: measure(browser, os.getpid(), link + where, (width, height), given.seconds)
                 for name, where in PAGES.items()}  # fmt: skip
        browser.close()
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found, given.size))
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; pixels drawn by the processor.")


if __name__ == "__main__":
    main()

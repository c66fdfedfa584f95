"""The explorer's page in a browser: first paint, the time of films and of the map, memory, the size of the file.

python benchmarks/page.py [--rounds 3]

Headless chromium opens the built file from disk. A film is timed from the request to its last frame, in the page; the
map from the request to its 81st run. Every number is the best of the rounds, beside it the budget. Processor seconds
are those of the whole browser while all presets are computed, so that a busy machine can be told from a slow page.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
             "--enable-precise-memory-info"]  # fmt: skip
PAINT = "() => Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN)"
DONE = "() => modules.app.app.state.state === 'done'"
FILM = """async (name) => {
  const { app } = modules.app, { makeFilm } = modules['compute/aside'];
  const preset = app.catalogue.presets.find((p) => p.name === name), begun = performance.now();
  let first = 0;
  const film = await makeFilm('benchmark', preset.setup, [], () => { first ||= performance.now() - begun; });
  return { ms: performance.now() - begun, first, steps: film.lastStep };
}"""
MAP = """async () => {
  const { app } = modules.app, { rateMap } = modules['compute/api'], begun = performance.now();
  let first = 0;
  await rateMap(app.film.run.setup, () => { first ||= performance.now() - begun; });
  return { ms: performance.now() - begun, first };
}"""
BUDGETS = {"default film, from the page's start": 600, "any preset": 4000, "map": 3000, "first paint": 500}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    from playwright.sync_api import sync_playwright

    from scansnap.explorer.build import explorer_html

    page = explorer_html()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "explorer.html")
        file.write_text(page, encoding="utf-8")
        found = [measure(playwright, chromium, file.as_uri()) for _ in range(rounds)]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before; {rounds} rounds, the best of each\n")
    print("| | measured | budget |\n|---|---|---|")
    print(f"| size of the file | {len(page.encode()) / 1e6:.2f} MB | 2 MB |")
    for name in found[0]:
        best, unit = min(one[name] for one in found), "MB" if "memory" in name else "s" if "processor" in name else "ms"
        budget = next((f"{most} ms" for key, most in BUDGETS.items() if name.startswith(key)), "")
        print(f"| {name} | {best:.{0 if unit != 's' else 1}f} {unit} | {'500 MB' if 'memory' in name else budget} |")


def measure(playwright: Any, chromium: str | None, address: str) -> dict[str, float]:
    """One browser of its own."""
    browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.set_default_timeout(600_000)
    page.goto(f"{address}#classes=words&eta_y=2&eta_z=1&momentum=0.9&steps=1000&preset=words")
    page.wait_for_function(DONE)
    found: dict[str, float] = {
        "default film, from the page's start to its last frame": page.evaluate("() => performance.now()"),
        "first paint": page.evaluate(PAINT),
    }
    before = processor_seconds(browser)
    for name in page.evaluate("() => modules.app.app.catalogue.presets.map((p) => p.name)"):
        told = page.evaluate(FILM, name)
        found[f"any preset: {name}, {told['steps']} steps"] = told["ms"]
        found[f"any preset: {name}, its first frames"] = told["first"]
    told = page.evaluate(MAP)
    found["map of 81 runs of the default"] = told["ms"]
    found["map, its first cells"] = told["first"]
    found["processor time of the browser for all of these"] = processor_seconds(browser) - before
    found["memory of the page's processes, resident"] = resident(browser) / 1e6
    browser.close()
    return found


def processes(browser: Any) -> list[int]:
    """Renderers of a browser: those hold page and workers."""
    told = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return [int(one["id"]) for one in told if one["type"] == "renderer"]


def processor_seconds(browser: Any) -> float:
    told = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return float(sum(one["cpuTime"] for one in told))


def resident(browser: Any) -> float:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in processes(browser)]
    return float(sum(pages) * os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    main()

"""Each tutorial as a notebook (.ipynb), made when the site is built, and the link to it on the tutorial's page.

A notebook that is made cannot differ from the tutorial and stores no output. It runs on a hosted notebook service from
nothing: its first cell installs scansnap where it is missing. Links to other pages lead to ``site_url`` if mkdocs.yml
names one; otherwise they become the names of files in the repository, which a notebook elsewhere cannot open.

    python docs/hooks/notebooks.py FOLDER      # writes the notebooks without building the site
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "tutorials"
INSTALL = '''\
# Installs scansnap where it is missing, as on a hosted notebook service.
SCANSNAP = "scansnap[probe]"  # or a wheel that you uploaded: "./scansnap-….whl[probe]"

import importlib.util

if importlib.util.find_spec("scansnap") is None:
    %pip install -q "{SCANSNAP}"'''
CELL = re.compile(r"^# %%(?P<markdown> \[markdown\])?\n(?P<body>.*?)(?=^# %%|\Z)", re.M | re.S)
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
AFTER_TITLE = re.compile(r"(</h1>)")


def cells(text: str) -> list[tuple[str, str]]:
    """Kind and source of each cell of a tutorial in percent format."""
    found = []
    for cell in CELL.finditer(text):
        body = cell["body"].strip()
        if cell["markdown"]:
            found.append(("markdown", re.sub(r"^# ?", "", body, flags=re.M)))
        else:
            found.append(("code", body))
    return found


def linked(text: str, site_url: str | None) -> str:
    """A cell of text whose relative links lead out of the notebook, or to other notebooks beside it."""

    def replace(link: re.Match[str]) -> str:
        target, anchor = link["target"], link["anchor"] or ""
        if ":" in target:
            return link[0]
        if target.endswith(".py"):
            return f"[{link['text']}]({PurePosixPath(target).with_suffix('.ipynb')})"
        page = target.removeprefix("../")
        if site_url is None:
            return f"{link['text']} (`docs/{page}`)"
        return f"[{link['text']}]({site_url.rstrip('/')}/{page.removesuffix('.md')}.html{anchor})"

    return LINK.sub(replace, text)


def notebook(tutorial: Path, site_url: str | None = None) -> str:
    """The tutorial as the text of an .ipynb file, without outputs."""
    made = [("code", INSTALL), *cells(tutorial.read_text(encoding="utf-8"))]
    made[0], made[1] = made[1], made[0]  # the title is first
    content = []
    for number, (kind, text) in enumerate(made):
        source = linked(text, site_url) if kind == "markdown" else text
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        content.append(cell | {"source": source.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": content, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def on_files(files: Any, *, config: Any) -> Any:
    """Adds the notebooks; as they are no pages, they are copied."""
    from mkdocs.structure.files import File  # here: the tests of what is above need no mkdocs

    for tutorial in sorted(TUTORIALS.glob("*.py")):
        content = notebook(tutorial, config.site_url or None)
        files.append(File.generated(config, f"tutorials/{tutorial.stem}.ipynb", content=content))
    return files


def on_page_content(text: str, *, page: Any, **rest: Any) -> str:
    """Links a tutorial's page to its notebook."""
    path = PurePosixPath(page.file.src_uri)
    if path.parent.name != "tutorials":
        return text
    link = f'<a href="{path.stem}.ipynb" download>Download this tutorial as a notebook</a>'
    return AFTER_TITLE.sub(
        rf'\1<p class="notebook">{link}. Its first cell installs scansnap, also on a hosted notebook service.</p>',
        text,
        count=1,
    )


if __name__ == "__main__":
    into = Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    for one in sorted(TUTORIALS.glob("*.py")):
        (into / f"{one.stem}.ipynb").write_text(notebook(one), encoding="utf-8")

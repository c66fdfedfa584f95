"""Pages whose text lies outside docs/, and links that leave it.

A link such as ``../examples/own_norm.py`` works where the repository is read as files. In the site it leads to a page
with that file's text, made here, so that the site needs no server that has the repository. benchmarks/README.md is the
page Benchmarks. A link to something that is not there fails the build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]
PAGES = {"benchmarks/README.md": "benchmarks.md", "CONTRIBUTING.md": "source/CONTRIBUTING.md", "README.md": "index.md"}
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".c": "c",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".yml": "yaml",
    ".cff": "yaml",
    ".js": "js",
}
CODE = ("docs/hooks/", "docs/scripts/", "docs/assets/")  # shown as files of the repository, not as pages
# From left to right: what stands in a fence or between backticks is no link, but the text of a link may have backticks.
LINK = re.compile(
    r"^(?P<fence> *`{3,}|~{3,})[^\n]*\n.*?^(?P=fence)[^\n]*$"
    r"|(?P<before>!?\[(?:[^\[\]]|\[[^\]]*\](?:\([^)]*\))?)*\]\()(?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?(?=[\s)])"
    r"|`(?:[^`\n]|\n(?!\n))+`",
    re.M | re.S,
)
log = logging.getLogger("mkdocs.hooks.outside")


def linked(text: str, home: str) -> list[str]:
    """What a Markdown text at ``home`` (a path in the repository) links to, as paths in the repository."""
    found = [match["target"] for match in LINK.finditer(text) if match["before"]]
    inner = [one for match in LINK.finditer(text) if match["before"] for one in linked(match["before"][1:-2], home)]
    named = [one for one in found if one and ":" not in one]
    return inner + [posixpath.normpath(posixpath.join(posixpath.dirname(home), one)) for one in named]


def in_site(path: str) -> str:
    """Where the site has a file of the repository, as a path below docs/."""
    if path.startswith("docs/") and not path.startswith(CODE):
        return path.removeprefix("docs/")
    if path in PAGES:
        return PAGES[path]
    path = re.sub(r"(^|/)\.", r"\1", path)  # hidden files are no pages
    return f"source/{path}" if path.endswith((".md", ".png", ".svg")) else f"source/{path}.md"


def mapped(text: str, home: str) -> str:
    """The text with its links as the site has them; ``home`` is where it lies in the repository."""
    here = posixpath.dirname(in_site(home))

    def one(match: re.Match[str]) -> str:
        if not match["before"]:
            return match.group()
        before, target = match["before"], match["target"]
        if "](" in before[:-2]:  # a picture that is a link
            before = f"[{mapped(before[1:-2], home)}]("
        if target and ":" not in target:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
            target = posixpath.relpath(in_site(path), here or ".")
        return f"{before}{target}{match['anchor'] or ''}"

    return LINK.sub(one, text)


def source_page(path: str) -> str:
    """A file of the repository as a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"---\ntitle: {path}\nsearch: {{ exclude: true }}\n---\n\n# {path}\n\n``````{language}\n{text}\n``````\n"


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages from outside, and those that are linked to, in turn."""
    from mkdocs.structure.files import File  # here: the tests of what is above need no mkdocs

    waiting = ["benchmarks/README.md"]
    for page in files.documentation_pages():
        if page.src_uri.endswith(".md"):
            waiting += linked(page.content_string, f"docs/{page.src_uri}")
    seen: set[str] = set()
    for path in waiting:  # grows
        if path in seen or files.get_file_from_path(in_site(path)) or not (ROOT / path).is_file():
            continue  # what is not there is told when the link is looked at
        seen.add(path)
        if path.endswith((".png", ".svg")):
            files.append(File.generated(config, in_site(path), abs_src_path=str(ROOT / path)))
        elif path.endswith(".md"):
            text = (ROOT / path).read_text(encoding="utf-8")
            files.append(File.generated(config, in_site(path), content=mapped(text, path)))
            waiting += linked(text, path)
        else:
            files.append(File.generated(config, in_site(path), content=source_page(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **rest: Any) -> str:
    """Links of our own pages that leave docs/."""
    return markdown if page.file.generated_by else mapped(markdown, f"docs/{page.file.src_uri}")

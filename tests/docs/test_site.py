"""What the site promises, without building it: every public name documented and in the reference, every page in the
navigation, links that lead somewhere, tables from the declarations, formulas without scripts."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from repository_scripts import load_script

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE = ("hooks", "scripts")  # folders of docs/ that are no pages


def hook(name: str) -> ModuleType:
    return load_script(f"docs/hooks/{name}.py")


names = hook("names")


def navigation() -> set[str]:
    """Pages that mkdocs.yml names; what is commented out does not count."""
    text = re.sub(r"(^|\s)#.*", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.M)
    return set(re.findall(r"^ +- (?:.*: )?([\w/]+\.(?:md|py|ipynb))$", text.partition("\nnav:")[2], re.M))


def pages(docs: Path = DOCS) -> set[str]:
    found = {path.relative_to(docs) for ending in ("md", "ipynb") for path in docs.rglob(f"*.{ending}")}
    found |= {path.relative_to(docs) for path in docs.glob("tutorials/*.py")}
    return {path.as_posix() for path in found if path.parts[0] not in OUTSIDE}


def test_every_page_is_in_the_navigation() -> None:
    made = {"benchmarks.md"}  # by docs/hooks/outside.py
    assert pages() | made == navigation()


def test_a_page_outside_the_navigation_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lost.md").write_text("# Lost")
    assert pages(tmp_path) - navigation() == {"lost.md"}


def test_every_public_name_says_what_it_is() -> None:
    assert names.undocumented(names.public()) == []


def test_a_public_name_without_a_docstring_is_noticed() -> None:
    class Silent:
        def method(self) -> None:
            pass

    def silent() -> None:
        pass

    assert names.undocumented({"Silent": Silent, "silent": silent, "K": 3}) == [
        "Silent",
        "silent",
        "K",
        "Silent.method",
    ]


def test_every_public_name_is_in_the_reference() -> None:
    public = names.public()
    assert {"scansnap.simulate", "scansnap.theory.growth", "scansnap.text.predict", "scansnap.dial.Component"} <= set(
        public
    )
    assert set(public) - names.referenced() == set()


def test_a_public_name_outside_the_reference_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "x.md").write_text("::: scansnap.flow\n\n::: scansnap.measure\n\n::: scansnap.dial\n"
                                                 "    options: {members: []}\n")  # fmt: skip
    shown = names.referenced(tmp_path)
    assert {"scansnap.flow", "scansnap.measure.fates", "scansnap.dial"} <= shown
    assert not {"scansnap.simulate", "scansnap.dial.Component"} & shown


outside = hook("outside")


def test_links_that_leave_the_docs_lead_to_pages_of_the_site() -> None:
    text = (
        "[a](../examples/own_norm.py) [b](../benchmarks/README.md#ray) [c](theory.md#x) [d](https://x.org) `[e](../f)`"
    )
    assert outside.mapped(text, "docs/extending.md") == (
        "[a](source/examples/own_norm.py.md) [b](benchmarks.md#ray) [c](theory.md#x) [d](https://x.org) `[e](../f)`"
    )
    assert outside.mapped("[a](../docs/text.md) ![b](scaling.png)", "benchmarks/README.md") == (
        "[a](text.md) ![b](source/benchmarks/scaling.png)"
    )
    inner = outside.mapped("[`a`](../hooks/maths.py) and [`b`](../../.github/c.yml)", "docs/contributing/site.md")
    assert inner == "[`a`](../source/docs/hooks/maths.py.md) and [`b`](../source/github/c.yml.md)"
    assert outside.mapped("[![p](q.png)](../examples/r.py)", "docs/x.md") == "[![p](q.png)](source/examples/r.py.md)"
    assert outside.mapped("```md\n[a](../b.py)\n```\n[a](../b.py)", "docs/x.md") == (
        "```md\n[a](../b.py)\n```\n[a](source/b.py.md)"
    )
    assert outside.linked("[![p](q.png)](../examples/r.py) `[a](b)`", "docs/x.md") == ["docs/q.png", "examples/r.py"]


def linking() -> list[Path]:
    return [ROOT / "benchmarks" / "README.md", *sorted(DOCS / page for page in pages() if page.endswith(".md"))]


@pytest.mark.parametrize("page", linking(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_links_to_is_there(page: Path) -> None:
    home = page.relative_to(ROOT).as_posix()
    made = {"docs/benchmarks.md"}
    missing = [one for one in outside.linked(page.read_text(encoding="utf-8"), home) if not (ROOT / one).is_file()]
    assert set(missing) <= made


class OnePage:
    """A site with one page, which has one heading."""

    src_uri, page = "theory.md", SimpleNamespace(present_anchor_ids={"memory"})

    def get_file_from_path(self, path: str) -> OnePage | None:
        return self if path == self.src_uri else None

    def url_relative_to(self, other: object) -> str:
        return "../theory.html"


def test_links_of_tutorials_lead_to_pages_and_headings(caplog: pytest.LogCaptureFixture) -> None:
    here = SimpleNamespace(src_uri="tutorials/1.py")
    text = '<a href="../theory.md#memory">a</a> <a href="#try">b</a> <a href="https://x.org/y.md">c</a>'
    made = outside.resolved(text, here, OnePage())
    assert made == text.replace("theory.md", "theory.html")
    outside.on_env(None)
    assert caplog.messages == []
    outside.resolved('<a href="../theory.md#nothing">a</a> <a href="../lost.md">b</a>', here, OnePage())
    outside.on_env(None)
    assert ["lost.md" in one or "#nothing" in one for one in caplog.messages] == [True, True]


def test_what_notebooks_bring_from_elsewhere_is_left_out() -> None:
    offline = hook("offline")
    ours, theirs = (
        '<script>copy()</script><script type="module">draw()</script>',
        (
            '<script src=""> </script><script type="text/x-mathjax-config">a</script>'
            '<script type="module">const x = await import("https://c.d/mermaid.mjs")</script>'
        ),
    )
    assert offline.NOTEBOOKS.sub("", ours + theirs) == ours


tables = hook("tables")


def test_every_table_a_page_asks_for_can_be_made_and_has_what_is_declared() -> None:
    asked = {name for page in linking() for name in tables.MARK.findall(page.read_text(encoding="utf-8"))}
    assert asked == set(tables.TABLES)
    for make in tables.TABLES.values():
        assert make().count("\n|") > 3


def test_the_command_line_page_has_every_command_and_option() -> None:
    text = tables.command_line()
    for name, command in tables.leaves(tables.typer.main.get_command(tables.commands())):
        part = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert "```sh\nscansnap " in part, name
        assert [
            option for one in command.params for option in one.opts if option[0] == "-" and f"`{option}" not in part
        ] == []


def test_the_settings_page_is_made_anew() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="settings.md"))
    assert tables.on_page_markdown("out of date", page=page) == tables.reference.reference()


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml.converter")  # of the extra docs
    maths = hook("maths")
    made = maths.mathml('<p><span class="arithmatex">\\(a &lt; \\eta_Y\\)</span></p>')
    assert made.startswith("<p><math")
    assert "arithmatex" not in made
    assert "<mi>η</mi>" in made.replace("&#x003B7;", "η").replace("&#x3b7;", "η")


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("η_Y/η_Z", "η<sub>Y</sub>/η<sub>Z</sub>"),
        ("f_nᵀf_n' and 1 − c_max", "f<sub>n</sub>ᵀf<sub>n'</sub> and 1 − c<sub>max</sub>"),
        ("Σ_{n∈ψ} f_nl e^{u f_n}", "Σ<sub>n∈ψ</sub> f<sub>nl</sub> e<sup>u f<sub>n</sub></sup>"),
        ("e^q, t^ρ", "e<sup>q</sup>, t<sup>ρ</sup>"),
        ("my_file t_snap_ln n_queries __init__ 2^10", "my_file t_snap_ln n_queries __init__ 2^10"),
        ('<code>η_Y</code> <a href="c_n.html">x</a>', '<code>η_Y</code> <a href="c_n.html">x</a>'),
        ("<pre><span>η_Y</span> e^{2}</pre>", "<pre><span>η_Y</span> e^{2}</pre>"),
    ],
)
def test_indices_and_powers_stand_where_they_belong(written: str, seen: str) -> None:
    assert hook("maths").lowered(written) == seen


def test_a_formula_that_cannot_be_drawn_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("latex2mathml.converter")
    hook("maths").drawn(r"\frac{a}{b}", block=True)
    assert caplog.messages == []
    hook("maths").drawn(r"\nosuchcommand a", block=True)
    assert "nosuchcommand" in caplog.text


def test_what_would_be_fetched_is_noticed() -> None:
    fetched = hook("offline").fetched
    assert fetched('<script src="https://cdn.x/y.js"></script> <link rel=stylesheet href="//f.x/z.css">') == [
        "https://cdn.x/y.js", "//f.x/z.css"]  # fmt: skip
    assert fetched('<script type="module">await import("https://c.d/e.mjs")</script>') == ["https://c.d/e.mjs"]
    assert fetched("@import 'https://a.b/c'; d { background: url(http://e.f/g) }") == ["https://a.b/c", "http://e.f/g"]
    assert fetched('<a href="https://x.org">x</a> <script src="assets/x.js"></script> url(data:image/svg+xml,…)') == []


def test_the_help_of_settings_is_among_the_parameters() -> None:
    pytest.importorskip("griffe")  # of the extra docs
    with_parameters = hook("settings").with_parameters
    section = "Parameters\n----------\n"
    assert with_parameters("Does it.", "a\n    Help.\n") == f"Does it.\n\n{section}a\n    Help.\n"
    both = with_parameters(f"Does it.\n\n{section}b\n    Text.", "a\n    Help.\n")
    assert both == f"Does it.\n\n{section}a\n    Help.\nb\n    Text."
    assert with_parameters("Does it.\n\nExamples\n--------\n>>> 1", "a\n    Help.\n") == (
        f"Does it.\n\n{section}a\n    Help.\n\nExamples\n--------\n>>> 1"
    )


def test_there_is_one_logo() -> None:
    """The icon of the explorer; the heads of its page and of the probe's report draw the same bars."""
    bars = re.compile(r'<rect[^>]*? x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"')
    static = ROOT / "src/scansnap/explorer/static"
    files = (static / "icon.svg", static / "index.html", ROOT / "src/scansnap/probe/report/report.html")
    shapes = [bars.findall(path.read_text(encoding="utf-8").replace("<rect x", "<rect  x"))[:3] for path in files]
    assert len(shapes[0]) == 3
    assert shapes[1:] == shapes[:1] * 2
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"^  (?:logo|favicon): (\S+)", config, re.M)) == {hook("explorer").LOGO}
    assert not list((DOCS / "assets").glob("*.svg"))

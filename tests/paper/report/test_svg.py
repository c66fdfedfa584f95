"""Drawings in the page: nothing that all share comes twice, names are unique, and colours follow the page's."""

import re

import pytest

from scansnap.paper.report.svg import DARK_PAPER, MIN_CONTRAST, Drawings, channels, contrast, on_dark
from scansnap.plots.style import SERIES, render, settle, styled


@pytest.fixture(scope="module")
def drawn():
    """Two drawings with text, markers, clipped lines, greys and colours."""

    def one(colour):
        with styled(3.0, 2.0) as figure:
            ax = figure.subplots()
            ax.plot([0, 1, 2], [0, 1, 4], "o-", color=colour)
            ax.axhline(1, color="0.6")
            ax.set(xlabel=r"$\eta_Y$ of it", title="a < b")
        settle(figure)
        return render(figure, "svg")

    return one("#0072B2"), one("#D55E00")


@pytest.fixture(scope="module")
def page(drawn):
    drawings = Drawings()
    parts = [drawings.inline(svg, f"fig{i}", f'Figure {i} & "more" <b>') for i, svg in enumerate(drawn)]
    return drawings, parts


def test_names_are_unique_and_whatever_is_used_is_there(page):
    drawings, parts = page
    text = "".join(map(str, (drawings.shared(), *parts)))
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = {*re.findall(r'href="#([^"]+)"', text), *re.findall(r"url\(#([^)]+)\)", text)}
    assert used <= set(ids)
    assert used
    assert {"fig0-body", "fig1-body"} <= set(ids)


def test_glyphs_and_styles_come_once_so_that_the_page_is_small(page, drawn):
    drawings, parts = page
    letters = [name for name, _ in drawings.glyphs.values()]
    assert len(letters) == len(set(letters))
    assert all("scale(0.015625)" not in part for part in parts)
    assert all(" style=" not in part[part.index("<g") :] for part in parts)
    assert sum(map(len, parts)) + len(drawings.shared()) < 0.6 * sum(map(len, drawn))


def test_the_drawing_has_a_name_and_its_size_and_escapes_it(page):
    _, (first, _) = page
    assert first.startswith('<svg class="drawing" role="img" aria-label="Figure 0 &amp; &quot;more&quot; &lt;b&gt;" ')
    assert 'viewBox="0 0 216 144"' in first
    assert "--width: 367px" in first
    assert "<metadata" not in first
    assert "<!--" not in first


def test_black_white_and_grey_are_the_pages_and_colours_have_a_dark_value(page):
    drawings, parts = page
    shared = drawings.shared()
    assert set(drawings.colours) == {"0072b2", "d55e00"}
    assert "fill:var(--paper)" in shared
    assert "stroke:var(--ink)" in shared
    assert "stroke:color-mix(in srgb, var(--ink) 40%, var(--paper))" in shared
    assert "stroke:var(--c0072b2)" in shared
    assert f"--c0072b2:light-dark(#0072b2,{on_dark('0072b2')});" in shared
    assert not any(re.search(r"(fill|stroke):\s*#", str(part)) for part in (shared, *parts))


@pytest.mark.parametrize("colour", [colour[1:].lower() for colour in SERIES[:-1]])
def test_every_colour_of_a_series_is_seen_on_dark_paper(colour):
    assert contrast(channels(on_dark(colour)[1:]), DARK_PAPER) >= MIN_CONTRAST


def test_what_lies_beneath_text_stays_a_faint_tint():
    assert contrast(channels(on_dark("8ccfae")[1:]), DARK_PAPER) < 3
    assert contrast(channels(on_dark("8ccfae")[1:]), (0xE6, 0xED, 0xF3)) > MIN_CONTRAST  # the page's ink on it


def test_something_else_is_no_drawing():
    with pytest.raises(ValueError, match="not a drawing"):
        Drawings().inline(b"<svg></svg>", "fig0", "")

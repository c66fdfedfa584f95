"""Drawings inside the page: matplotlib's SVG, with shared parts stored once and in the colours of the page.

Glyphs and styles come once for all drawings. Colours become CSS variables with a second value for dark pages: black and
white are the page's ink and paper, greys mixtures of the two; a colour that is hard to see on the dark paper is
lightened until it is not, and a pale one, which lies beneath text, becomes as faint a tint of the dark paper.
"""

from __future__ import annotations

import re
from html import escape

from markupsafe import Markup

DARK_PAPER = (0x0D, 0x11, 0x17)  # as in base.css
MIN_CONTRAST = 4.5  # of a thin line
PER_POINT = 1.7  # pixels: text is then as large as on the page around it

_HEAD = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)
_GLYPH = re.compile(r'<path id="([^"]+)"(?: d="([^"]*)")? transform="scale\(0\.015625\)"/>')
_NAMELESS = re.compile(r'(<(?:g|image)\b[^>]*?) id="[^"]*"')
_SHAPE = re.compile(r'(?<= )(d|x|y|transform)="([^"]*)"')
_MOVE = re.compile(r"translate\([^)]*\)")
_DIGITS = re.compile(r"(\d\.\d\d)\d+")
_NAMES = re.compile(r'( id="|href="#|url\(#)([^")]+)')
_STYLE = re.compile(r' style="([^"]*)"')
_COLOUR = re.compile(r"#([0-9a-f]{6})\b")


class Drawings:
    """The drawings of one page and their shared glyphs, styles and colours."""

    def __init__(self) -> None:
        self.glyphs: dict[str, tuple[str, str]] = {}  # by matplotlib's name: a short one, and the outline
        self.classes: dict[str, str] = {}  # by style
        self.colours: dict[str, None] = {}

    def inline(self, svg: bytes, name: str, alt: str) -> Markup:
        """An ``svg`` element with a text alternative; its width is in ``--width`` and left to the style sheet.

        Its content has the id ``name-body``, so that other elements can show a part of it.
        """
        text = _HEAD.sub("", svg.decode()).replace("xlink:href", "href")
        body = _NAMELESS.sub(r"\1", text[text.index(">") + 1 : text.rindex("</svg>")])
        body = _GLYPH.sub(self._glyph, body)
        body = _SHAPE.sub(_rounded, body)
        body = _NAMES.sub(
            lambda match: match[1] + (self.glyphs[match[2]][0] if match[2] in self.glyphs else f"{name}-{match[2]}"),
            body,
        )
        body = _STYLE.sub(self._class, body)
        body = re.sub(r"\s*\n\s*", "", re.sub(r"<defs>\s*</defs>", "", body))
        _, _, width, height = size_of(svg)
        return Markup(
            f'<svg class="drawing" role="img" aria-label="{escape(alt)}" viewBox="0 0 {width:g} {height:g}" '
            f'style="--width: {round(width * PER_POINT)}px; aspect-ratio: {width:g} / {height:g}">'
            f'<g id="{escape(name)}-body">{body}</g></svg>'
        )

    def shared(self) -> Markup:
        """Glyphs and styles: once in the page, after all drawings were inlined."""
        paths = "".join(
            f'<path id="{name}" d="{" ".join(d.split())}" transform="scale(0.015625)"/>'
            for name, d in self.glyphs.values()
        )
        rules = "".join(f".{short}{{{style}}}" for style, short in self.classes.items())
        colours = "".join(f"--c{colour}:light-dark(#{colour},{on_dark(colour)});" for colour in self.colours)
        return Markup(
            f'<svg class="shared" aria-hidden="true" width="0" height="0"><defs>{paths}</defs></svg>\n<style>'
            f":root{{{colours}}}{rules}</style>"
        )

    def _glyph(self, match: re.Match[str]) -> str:
        self.glyphs.setdefault(match[1], (f"g{len(self.glyphs)}", match[2] or ""))  # a space has no outline
        return ""

    def _class(self, match: re.Match[str]) -> str:
        style = _COLOUR.sub(self._colour, match[1]).replace(": ", ":").replace("; ", ";")
        return f' class="{self.classes.setdefault(style, f"s{len(self.classes)}")}"'

    def _colour(self, match: re.Match[str]) -> str:
        colour = match[1]
        red, green, blue = channels(colour)
        if red == green == blue:
            ink = round(100 * (1 - red / 255))
            return {100: "var(--ink)", 0: "var(--paper)"}.get(
                ink, f"color-mix(in srgb, var(--ink) {ink}%, var(--paper))"
            )
        self.colours.setdefault(colour)
        return f"var(--c{colour})"


def size_of(svg: bytes) -> tuple[float, float, float, float]:
    """Left, top, width and height in points."""
    match = re.search(rb'<svg[^>]* viewBox="([-\d. ]+)"', svg)
    if match is None:
        raise ValueError("not a drawing of matplotlib")
    left, top, width, height = map(float, match[1].split())
    return left, top, width, height


def on_dark(colour: str) -> str:
    """The colour on dark paper that corresponds to ``colour`` on white: #rrggbb."""
    rgb = channels(colour)
    if luminance(rgb) >= 0.45 and 1 - min(rgb) / max(rgb) < 0.5:
        return _hex(_mixed(rgb, DARK_PAPER, 0.62))
    share = 0.0
    while contrast(_mixed(rgb, (255, 255, 255), share), DARK_PAPER) < MIN_CONTRAST:
        share += 0.05
    return _hex(_mixed(rgb, (255, 255, 255), share))


RGB = tuple[int, int, int]


def channels(colour: str) -> RGB:
    red, green, blue = bytes.fromhex(colour)
    return red, green, blue


def luminance(rgb: RGB) -> float:
    """Relative luminance of sRGB (WCAG 2.2)."""
    linear = [(x / 255 / 12.92) if x <= 10 else ((x / 255 + 0.055) / 1.055) ** 2.4 for x in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: RGB, b: RGB) -> float:
    """Contrast ratio (WCAG 2.2)."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def _mixed(a: RGB, b: RGB, share: float) -> RGB:
    red, green, blue = (round((1 - share) * x + share * y) for x, y in zip(a, b, strict=True))
    return red, green, blue


def _hex(rgb: RGB) -> str:
    return "#" + bytes(rgb).hex()


def _rounded(match: re.Match[str]) -> str:
    """Round to hundredths of a point; scales are unchanged."""
    name, value = match[1], re.sub(r"\s*\n", " ", match[2]).strip()
    short = _MOVE.sub(_short, value) if name == "transform" else _short(value)
    return f'{name}="{short}"'


def _short(match: re.Match[str] | str) -> str:
    return _DIGITS.sub(r"\1", match if isinstance(match, str) else match[0])

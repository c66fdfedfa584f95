"""Mathematics in MathML, which browsers set themselves, from how it is written in the code: "β_nn′(t)", "t₀′", "√d"."""

from __future__ import annotations

import re
from html import escape

from markupsafe import Markup

SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
PRIME, TRANSPOSED = "′", "⊤"
_TOKEN = re.compile(
    r"(?P<word>(?<![A-Za-z])[A-Za-z]{3,})|(?P<letter>[A-Za-zα-ωΑ-Ωżξ∞])|(?P<number>\d+)|(?P<root>√)"
    r"|(?P<space>\s+)|(?P<sign>.)"
)
_INDEX = re.compile(r"_(?:\{([^{}]*)\}|([A-Za-z]+[′']*|\d+))")


def mathml(text: str) -> Markup:
    """One formula, inline."""
    return Markup(f"<math>{_row(text)}</math>")


def _row(text: str) -> str:
    parts, at = [], 0
    while at < len(text):
        part, at = _atom(text, at)
        parts.append(part)
    return f"<mrow>{''.join(parts)}</mrow>"


def _atom(text: str, at: int) -> tuple[str, int]:
    """A letter, number, root or sign, with what stands below and above it; and where the next begins."""
    match = _TOKEN.match(text, at)
    assert match is not None  # a sign is anything
    at = match.end()
    if match["space"]:
        return "", at
    if match["root"]:
        inside, at = _atom(text, at)
        return f"<msqrt>{inside}</msqrt>", at
    base = _written(match)
    below, at = _below(text, at)
    above = ""
    while at < len(text) and text[at] in f"ᵀ{PRIME}'":
        above += f"<mo>{TRANSPOSED if text[at] == 'ᵀ' else PRIME}</mo>"
        at += 1
    above = f"<mrow>{above}</mrow>" if above else ""
    if below and above:
        return f"<msubsup>{base}{below}{above}</msubsup>", at
    if below or above:
        tag = "msub" if below else "msup"
        return f"<{tag}>{base}{below}{above}</{tag}>", at
    return base, at


def _written(match: re.Match[str]) -> str:
    if match["word"]:
        return f"<mi>{escape(match['word'])}</mi>"
    if match["number"]:
        return f"<mn>{match['number']}</mn>"
    return f"<mi>{match['letter']}</mi>" if match["letter"] else f'<mo stretchy="false">{escape(match["sign"])}</mo>'


def _below(text: str, at: int) -> tuple[str, int]:
    """An index: after _, or written small."""
    if match := _INDEX.match(text, at):
        inside = match[1] if match[1] is not None else match[2]
        named = inside.isalpha() and inside.isupper() and len(inside) > 1  # G_DT: a name, not a product
        return (f"<mi>{inside}</mi>" if named else _row(inside)), match.end()
    small = re.compile(f"[{''.join(SUBSCRIPTS)}]+").match(text, at)
    if small is None:
        return "", at
    return f"<mn>{''.join(SUBSCRIPTS[digit] for digit in small[0])}</mn>", small.end()

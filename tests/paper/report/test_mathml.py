"""Mathematics for browsers, from how it is written in the code."""

from xml.etree import ElementTree

import pytest

from scansnap.paper.figures.table1 import SYMBOLS
from scansnap.paper.report.mathml import mathml


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("c_n", "<msub><mi>c</mi><mrow><mi>n</mi></mrow></msub>"),
        ("t₀′", "<msubsup><mi>t</mi><mn>0</mn><mrow><mo>′</mo></mrow></msubsup>"),
        ("β_nn′", "<msub><mi>β</mi><mrow><mi>n</mi><msup><mi>n</mi><mrow><mo>′</mo></mrow></msup></mrow></msub>"),
        ("W_Kᵀ", "<msubsup><mi>W</mi><mrow><mi>K</mi></mrow><mrow><mo>⊤</mo></mrow></msubsup>"),
        ("G_DT", "<msub><mi>G</mi><mi>DT</mi></msub>"),
        ("√d", "<msqrt><mi>d</mi></msqrt>"),
        ("a<b", '<mi>a</mi><mo stretchy="false">&lt;</mo><mi>b</mi>'),
    ],
)
def test_formulas(text, inside):
    assert mathml(text) == f"<math><mrow>{inside}</mrow></math>"


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.name)
def test_every_symbol_is_well_formed_and_loses_nothing(symbol):
    plain = str.maketrans({" ": "", "_": "", "{": "", "}": "", "√": "", "ᵀ": "⊤", "₀": "0", "₂": "2"})
    root = ElementTree.fromstring(mathml(symbol.symbol))
    assert sorted("".join(root.itertext())) == sorted(symbol.symbol.translate(plain))
    children = {"msub": 2, "msup": 2, "msubsup": 3, "msqrt": 1}
    assert all(len(element) == children[element.tag] for element in root.iter() if element.tag in children)

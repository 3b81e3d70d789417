"""Formulas: what is outside the subset is refused, and every formula of the suite is inside."""

from xml.etree import ElementTree

import pytest
from gradcheck_cases import SUITE

mathml = pytest.importorskip("_pages.mathml")


@pytest.mark.parametrize(
    "latex",
    [
        r"\unknown x",
        "x_",
        "{x",
        "x}",
        r"\begin{cases} x",
        r"\begin{matrix} x \end{matrix}",
        "x & y",
    ],
)
def test_what_it_cannot_say_it_refuses(latex):
    with pytest.raises(mathml.FormulaError):
        mathml.mathml(latex)


def test_a_formula_is_well_formed_and_loses_no_letter():
    for spec in SUITE:
        shown = "".join(ElementTree.fromstring(mathml.mathml(spec.formula)).itertext())
        for name in ("softmax", "gelu", "wte", "offset", "base", "else"):
            assert (name in shown) == (name in spec.formula.replace(r"\_", "_")), shown
        assert not set(shown) & set("\\$"), shown


def test_scripts_fractions_and_limits():
    assert "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>" in mathml.mathml("x_i^2")
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>d</mi></mrow></mfrac>" in mathml.mathml(
        r"\frac{1}{d}"
    )
    assert mathml.mathml(r"\sum_i x").startswith('<math display="block"><munder>')
    assert "<mo>+=</mo>" in mathml.mathml(r"y \mathrel{+}= x")

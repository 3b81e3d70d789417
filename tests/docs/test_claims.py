"""Numbers that pages say in words are the code's."""

from pathlib import Path

import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.processes.crash_or_hang import LIMITS
from gradcheck.judge.compare import ERROR_BAR_FACTOR
from gradcheck.judge.contract_check import PROPERTIES
from gradcheck.numerics import noise, richardson
from gradcheck.results.verdict import Verdict
from gradcheck.spec.rule import STEPS

DOCS = Path(__file__).parents[2] / "docs"
WORDS = {11: "eleven", 12: "twelve", 16: "sixteen", 20: "twenty"}


def word(number: int) -> str:
    return WORDS.get(number, str(number))


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("explanation/pass.md", f"{word(len(PROPERTIES))} properties"),
        ("explanation/contract.md", f"{word(len(PROPERTIES))} properties"),
        ("guides/model.md", f"{word(len(SUITE.models))} models"),
        ("guides/rules.md", f"at least {STEPS} steps"),
        ("explanation/judgement.md", f"tries {richardson.PILOT_LEVELS} steps"),
        ("explanation/judgement.md", f"all {word(richardson.LADDER_LEVELS)} steps"),
        ("explanation/judgement.md", f"{word(noise.LINE.size)} points"),
        ("explanation/judgement.md", "each a quarter of the last"),
        ("explanation/judgement.md", "U twice the error bar"),
        (
            "explanation/isolation.md",
            f"After {LIMITS[Verdict.CRASH]} crashes or {LIMITS[Verdict.TIMEOUT]} hangs",
        ),
    ],
)
def test_a_number_in_words_is_the_codes(page, says):
    text = " ".join((DOCS / page).read_text(encoding="utf-8").replace("[", "").split())
    assert says in text


def test_what_is_said_of_ratios_and_bars():
    assert richardson.RATIO == 4
    assert richardson.TRIPLE == 3
    assert richardson.SIGMAS == 3
    assert ERROR_BAR_FACTOR == 2

"""The expression of `-k`: what it says of names, and where it is no expression."""

import pytest

from gradcheck.errors import UsageError
from gradcheck.spec.keyword_expression import MAX_DEPTH, parsed

NAMES = ["softmax/default/typical", "softmax/causal/empty", "RMS_norm/weight/zero", "and/or/not"]


def meant(text):
    holds = parsed(text)
    return [number for number, name in enumerate(NAMES) if holds(name)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("a and", "at the end: expected a word of a name, `not` or ("),
        ("not", "at the end: expected a word"),
        ("(a or b", "at the end: expected `and`, `or` or )"),
        ("a b", "column 3, at 'b': expected `and` or `or`"),
        ("a) or b", "column 2, at ')': no ( is open here"),
        ("()", "column 2, at ')': expected a word"),
        ("and a", "column 1, at 'and': expected a word"),
        ("a or or b", "column 6, at 'or': expected a word"),
        ("a not b", "column 3, at 'not': expected `and` or `or`"),
        ("not " * (MAX_DEPTH + 1) + "a", f"more than {MAX_DEPTH} `not` and ( in each other"),
        ("(" * 100_000, f"more than {MAX_DEPTH} `not` and ( in each other"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text, said):
    with pytest.raises(UsageError) as error:
        parsed(text)
    assert said in str(error.value)
    assert str(error.value).startswith(f"-k {text!r}: ")


@pytest.mark.parametrize(
    "text", ["__import__('os').system('touch pwned')", "().__class__", "a=1", "lambda: 0", "[x]"]
)
def test_nothing_that_is_written_is_run(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        found = meant(text)
    except UsageError:
        found = []
    assert found == [] == [*tmp_path.iterdir()]


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("softmax", [0, 1]),
        ("SOFTMAX", [0, 1]),
        ("rms_norm", [2]),
        ("/default/", [0]),
        ("softmax/causal", [1]),
        ("*", []),
        ("nothing", []),
        ("not softmax", [2, 3]),
        ("not not softmax", [0, 1]),
        ("softmax and empty", [1]),
        ("softmax AND NOT empty", [0]),
        ("typical or zero", [0, 2]),
        ("softmax and empty or zero", [1, 2]),  # `and` binds closer
        ("zero or softmax and empty", [1, 2]),
        ("softmax and (empty or zero)", [1]),
        ("not (empty or zero)", [0, 3]),
        ("not empty and not zero", [0, 3]),  # `not` binds closest
        ("(((softmax)))", [0, 1]),
        ("or/not", [3]),
        ("not " * (MAX_DEPTH - 1) + "softmax", [2, 3]),
        ("(" * (MAX_DEPTH - 1) + "softmax" + ")" * (MAX_DEPTH - 1), [0, 1]),
        (" or ".join(["softmax"] * 5000), [0, 1]),
    ],
)
def test_what_it_says_of_names(text, numbers):
    assert meant(text) == numbers

"""The expression of `-k`: words, `and`, `or`, `not` and parentheses, matched against a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from gradcheck.errors import UsageError
from gradcheck.system import expression

TOKEN: Final = re.compile(r"[()]|[^\s()]+")
MAX_DEPTH: Final = 100
"""Limit on `not` and parentheses inside each other."""
OPERAND, MORE, OPEN = (
    "expected a word of a name, `not` or (",
    "expected `and` or `or`",
    "expected `and`, `or` or )",
)


def parsed(text: str) -> Callable[[str], bool]:
    """A predicate on names; case is ignored.

    A word holds where it is part of the name, literally::

        expression = conjunction { "or" conjunction }
        conjunction = negation { "and" negation }
        negation = "not" negation | "(" expression ")" | WORD

    >>> holds = parsed("softmax and not (empty or square)")
    >>> holds("softmax/default/typical"), holds("softmax/default/empty"), holds("relu/default/zero")
    (True, False, False)

    Raises:
        UsageError: `text` is not such an expression; the message names the column.
    """
    words: list[str] = []
    source = " ".join(_as_python(text, words))
    evaluate = expression.compiled(expression.parsed(source, max_chars=len(source)))

    def holds(name: str) -> bool:
        lower = name.lower()
        return bool(evaluate({f"w{i}": word in lower for i, word in enumerate(words)}))

    return holds


def _as_python(text: str, words: list[str]) -> Iterator[str]:
    """The tokens as Python has them, each word a name `w0`, `w1`, …, which `words` explains.

    Raises:
        UsageError: there is a token where none of its kind can stand.
    """
    operand, depth = True, 0  # whether an operand must follow
    opened: list[int] = []  # depth inside each open parenthesis
    for match in TOKEN.finditer(text):
        token = match[0].lower()

        def refuse(why: str, match: re.Match[str] = match) -> NoReturn:
            where = f"column {match.start() + 1}, at {match[0]!r}"
            raise UsageError(f"-k {text!r}: {where}: {why}")

        if operand and token in ("not", "("):
            depth += 1
            if depth >= MAX_DEPTH:
                refuse(f"more than {MAX_DEPTH} `not` and ( in each other")
            if token == "(":
                opened.append(depth)
        elif operand and token in ("and", "or", ")"):
            refuse(OPERAND)
        elif operand:
            operand, depth = False, opened[-1] if opened else 0
            words.append(token)
            token = f"w{len(words) - 1}"
        elif token == ")" and opened:
            opened.pop()
            depth = opened[-1] if opened else 0
        elif token in ("and", "or"):
            operand = True
        else:
            refuse("no ( is open here" if token == ")" else OPEN if opened else MORE)
        yield token
    if operand and not words and not opened and not text.strip():
        raise UsageError(f"-k {text!r}: it is empty; write a part of a case's name")
    if operand or opened:
        raise UsageError(f"-k {text!r}: at the end: {OPERAND if operand else OPEN}")

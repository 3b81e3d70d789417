"""The expression of `-k`: words, `and`, `or`, `not` and parentheses, held against a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from gradcheck.errors import UsageError

Holds = Callable[[str], bool]
"""Whether a name is meant."""
TOKEN: Final = re.compile(r"[()]|[^\s()]+")
OPERATORS: Final = ("and", "or", "not")
DEEPEST: Final = 100
"""Of `not` and parentheses in each other."""


def parsed(text: str) -> Holds:
    """What an expression says of a name; case is ignored.

    A word is in a name or is not, as it stands: nothing in it is special, and no text is run::

        expression = conjunction { "or" conjunction }
        conjunction = negation { "and" negation }
        negation = "not" negation | "(" expression ")" | WORD

    >>> holds = parsed("softmax and not (empty or square)")
    >>> holds("softmax/default/typical"), holds("softmax/default/empty"), holds("relu/default/zero")
    (True, False, False)

    Raises:
        UsageError: it is no expression; the message names the column.
    """
    parser = _Parser(text, [(match[0], match.start()) for match in TOKEN.finditer(text)])
    holds = parser.expression()
    if parser.word:
        parser.refuse("expected `and` or `or`" if parser.word != ")" else "no ( is open here")
    return holds


@dataclass(slots=True)
class _Parser:
    """Where in its tokens, (word, column from 0), the reading of an expression is."""

    text: str
    tokens: Sequence[tuple[str, int]]
    place: int = 0
    depth: int = 0

    @property
    def word(self) -> str:
        """The token to come; empty at the end."""
        return self.tokens[self.place][0] if self.place < len(self.tokens) else ""

    def expression(self) -> Holds:
        """What `or` joins."""
        parts = [self._conjunction()]
        while self._took("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda name: any(part(name) for part in parts)

    def _conjunction(self) -> Holds:
        parts = [self._negation()]
        while self._took("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda name: all(part(name) for part in parts)

    def _negation(self) -> Holds:
        self.depth += 1
        if self.depth > DEEPEST:
            self.refuse(f"more than {DEEPEST} `not` and ( in each other")
        if self._took("not"):
            inner = self._negation()
            found: Holds = lambda name: not inner(name)  # noqa: E731  a negation is one line
        elif self._took("("):
            found = self.expression()
            if not self._took(")"):
                self.refuse("expected `and`, `or` or )")
        else:
            found = self._name()
        self.depth -= 1
        return found

    def _name(self) -> Holds:
        word = self.word
        if not word or word == ")" or word.lower() in OPERATORS:
            self.refuse("expected a word of a name, `not` or (")
        self.place += 1
        wanted = word.lower()
        return lambda name: wanted in name.lower()

    def _took(self, token: str) -> bool:
        if self.word.lower() != token:
            return False
        self.place += 1
        return True

    def refuse(self, why: str) -> NoReturn:
        """Say what is wrong with the token to come.

        Raises:
            UsageError: always.
        """
        if not self.tokens:
            raise UsageError(f"-k {self.text!r}: it is empty; write a part of a case's name")
        if not self.word:
            raise UsageError(f"-k {self.text!r}: at the end: {why}")
        column = self.tokens[self.place][1] + 1
        raise UsageError(f"-k {self.text!r}: column {column}, at {self.word!r}: {why}")

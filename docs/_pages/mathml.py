"""Formulas: the LaTeX that specs are written in, as MathML, so that a page needs no script.

The subset is what the suite's formulas use. Whatever is outside it raises `FormulaError`, which
ends a strict build: a formula is never shown half.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final

TOKEN: Final = re.compile(r"\\(?:[a-zA-Z]+|.)|\d+(?:\.\d+)?|\s+|.", re.DOTALL)

IDENTIFIERS: Final = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "theta": "θ",
    "lambda": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "phi": "ϕ", "Delta": "Δ",
    "Phi": "Φ", "ell": "ℓ", "infty": "∞",
}  # fmt: skip
FUNCTIONS: Final = ("cos", "exp", "ln", "log", "sin", "tanh")
LIMITS: Final = {"sum": "∑", "prod": "∏", "max": "max", "min": "min"}
"""What takes its subscript below."""
OPERATORS: Final = {
    "approx": "≈", "bmod": "mod", "cdot": "⋅", "dots": "…", "ge": "≥", "in": "∈", "le": "≤",
    "mid": "∣", "ne": "≠", "odot": "⊙", "partial": "∂", "pm": "±", "{": "{", "}": "}",
    "|": "‖", "lVert": "‖", "rVert": "‖", "lfloor": "⌊", "rfloor": "⌋", "top": "⊤",
}  # fmt: skip
SPACES: Final = {",": "0.17em", ";": "0.28em", "quad": "1em", " ": "0.3em", "!": "-0.17em"}
SIZES: Final = ("left", "right", "bigl", "bigr", "Bigl", "Bigr")
IGNORED: Final = ("textstyle",)
TABLES: Final = ("cases", "pmatrix")
"""A style sheet draws their brackets: few systems have a font whose brackets grow."""


class FormulaError(ValueError):
    """A formula that this subset of LaTeX cannot say."""


def mathml(latex: str) -> str:
    """`latex` as a `<math>` element of its own line.

    >>> mathml("y = x^2")
    '<math display="block"><mi>y</mi><mo>=</mo><msup><mi>x</mi><mn>2</mn></msup></math>'

    Raises:
        FormulaError: it holds something that is not in the subset.
    """
    parser = _Parser(latex)
    body = parser.row(())
    if parser.rest:
        raise FormulaError(f"{latex!r}: {parser.rest[0]!r} closes nothing")
    return f'<math display="block">{body}</math>'


class _Parser:
    """One pass over the tokens of one formula."""

    def __init__(self, latex: str) -> None:
        self.latex = latex
        self.rest = TOKEN.findall(latex)

    def row(self, ends: tuple[str, ...]) -> str:
        """Atoms with their scripts, up to a token in `ends` (which stays) or the end."""
        parts = []
        while self.rest:
            if self.rest[0].isspace():
                self.rest.pop(0)
            elif self.rest[0] in ends or self.rest[0] == "}":
                break
            else:
                parts.append(self.scripted())
        return "".join(parts)

    def scripted(self) -> str:
        """One atom, and what hangs below and above it."""
        limits = self.rest[0].removeprefix("\\") in LIMITS and self.rest[0] != "max"
        base = self.atom()
        scripts = {}
        while self.rest and self.rest[0] in ("_", "^", "'"):
            mark = self.rest.pop(0)
            prime = mark == "'"
            scripts["^" if prime else mark] = "<mo>′</mo>" if prime else self.argument()
        if not scripts:
            return base
        below, above = scripts.get("_", ""), scripts.get("^", "")
        under, over = ("under", "over") if limits else ("sub", "sup")
        if below and above:
            return f"<m{under}{over}>{base}{below}{above}</m{under}{over}>"
        kind = under if below else over
        return f"<m{kind}>{base}{below or above}</m{kind}>"

    def argument(self) -> str:
        """What a command or a script applies to: a group, or one atom."""
        while self.rest and self.rest[0].isspace():
            self.rest.pop(0)
        if not self.rest:
            raise FormulaError(f"{self.latex!r}: something is missing at its end")
        return self.atom()

    def group(self) -> str:
        """`{…}` as one element."""
        self.expect("{")
        body = self.row(())
        self.expect("}")
        return f"<mrow>{body}</mrow>"

    def text(self) -> str:
        """`{…}` as it is written."""
        self.expect("{")
        words = []
        while self.rest and self.rest[0] != "}":
            words.append(self.rest.pop(0).removeprefix("\\"))
        self.expect("}")
        return "".join(words)

    def expect(self, token: str) -> None:
        if not self.rest or self.rest[0] != token:
            found = self.rest[0] if self.rest else "its end"
            raise FormulaError(f"{self.latex!r}: {token!r} expected where {found!r} stands")
        self.rest.pop(0)

    def atom(self) -> str:
        """One element: a group, a number, a letter, a sign, or a command."""
        token = self.rest[0]
        if token == "{":
            return self.group()
        self.rest.pop(0)
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in "()[]|":
            return f'<mo stretchy="false">{token}</mo>'
        if token in "_^&}":
            raise FormulaError(f"{self.latex!r}: {token!r} has nothing to stand on")
        return f"<mo>{escape(token.replace('-', '−'))}</mo>"

    def command(self, name: str) -> str:
        """What follows a backslash."""
        if name in IDENTIFIERS:
            return f"<mi>{IDENTIFIERS[name]}</mi>"
        if name in FUNCTIONS:
            return f"<mi>{name}</mi><mspace width='0.17em'/>" if self._applies() else _word(name)
        if name in LIMITS:
            space = "" if name in ("sum", "prod") else ' lspace="0" rspace="0.1em"'
            return f'<mo movablelimits="false"{space}>{LIMITS[name]}</mo>'
        if name in OPERATORS:
            return f'<mo stretchy="false">{OPERATORS[name]}</mo>'
        if name in SPACES:
            return f'<mspace width="{SPACES[name]}"/>'
        if name in ("frac", "tfrac"):
            return f"<mfrac>{self.argument()}{self.argument()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.argument()}</msqrt>"
        if name in ("mathrm", "operatorname"):
            return _word(self.text())
        if name == "text":
            return f"<mtext>{escape(self.text()).replace(' ', '&#160;')}</mtext>"
        if name == "mathrel":
            return f"<mo>{escape(self.text())}{self._joined()}</mo>"
        if name in SIZES:
            return self.fence()
        if name in IGNORED:
            return ""
        if name == "begin":
            return self.environment()
        raise FormulaError(f"{self.latex!r}: `\\{name}` is not known; add it to {__name__}")

    def fence(self) -> str:
        """A bracket that may grow."""
        token = self.rest.pop(0)
        sign = OPERATORS[token[1:]] if token.startswith("\\") else token
        return "" if sign == "." else f'<mo stretchy="true">{escape(sign)}</mo>'

    def environment(self) -> str:
        """`cases` and `pmatrix`."""
        name = self.text()
        if name not in TABLES:
            raise FormulaError(f"{self.latex!r}: no environment {name!r}")
        rows, cells = [], []
        while True:
            cells.append(self.row(("&", "\\\\", "\\end")))
            mark = self.rest.pop(0) if self.rest else ""
            if mark == "&":
                continue
            rows.append("".join(f"<mtd>{cell}</mtd>" for cell in cells))
            cells = []
            if mark == "\\end":
                break
            if not mark:
                raise FormulaError(f"{self.latex!r}: {name} has no end")
        self.text()
        body = "".join(f"<mtr>{row}</mtr>" for row in rows)
        align = ' columnalign="left left"' if name == "cases" else ""
        return f'<mtable{align} class="{name}">{body}</mtable>'

    def _applies(self) -> bool:
        """Whether a function's argument follows without a bracket, so that a space is due."""
        return bool(self.rest) and self.rest[0] not in ("(", "_", "^", "\\bigl")

    def _joined(self) -> str:
        """The `=` that follows at once, as in `+=`."""
        return self.rest.pop(0) if self.rest and self.rest[0] == "=" else ""


def _word(text: str) -> str:
    """An upright name of several letters."""
    return f'<mi mathvariant="normal">{escape(text)}</mi>'

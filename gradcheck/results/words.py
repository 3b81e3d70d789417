"""The wording that all reports share: foreign text, numbers, verdicts, names, cells."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gradcheck.results.case_result import Kind
from gradcheck.results.ci_safe import apart, inert
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Known, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Finding, Miss
    from gradcheck.results.run import Standing

LONGEST: Final = 2000
"""Characters of one foreign text (a reason, a name) that a report shows."""

BARS: Final = 2.0
"""Error bars of the truth that count in favour of the code judged, as `ERROR_BAR_FACTOR`."""

OUTPUT: Final = {
    Kind.OPERATOR: "gradient",
    Kind.MODEL: "gradient",
    Kind.RULE: "new value",
}
"""What the rows of a table are about."""
FLAGS: Final = {Kind.OPERATOR: "--op", Kind.MODEL: "--model", Kind.RULE: "--rule"}
"""How each kind is selected."""
CONTRACT: Final = "contract"
"""The name of the row that stands for all side conditions of a backward."""
SIDE_CONDITION: Final = "side condition"

_ALARMING: Final = (Verdict.INCONCLUSIVE, Verdict.NOTRUN)


def clean(text: str) -> str:
    r"""Foreign text as one printable line.

    A reason may hold whatever the code judged has raised: newlines that would break a table,
    escape sequences that would repaint the terminal, surrogates that no file can hold. White
    space becomes one blank; every other unprintable character becomes its escape.

    >>> clean("a\n\tb\x1b[31m")
    'a b\\x1b[31m'
    """
    cut = ""
    if len(text) > LONGEST:
        cut = f" … ({len(text) - LONGEST:,} more characters)"
        text = text[:LONGEST]
    return escaped(" ".join(text.split())) + cut


def escaped(line: str) -> str:
    """A line in which every unprintable character is its escape, and no CI system's command."""
    line = apart(line)
    if line.isprintable():
        return line
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line
    )


def several(text: str) -> str:
    r"""A text of several lines as a terminal may be given it.

    >>> several("a\x1b[31m\n::error::b")
    'a\\x1b[31m\n| ::error::b'
    """
    return inert("\n".join(escaped(line.expandtabs(8)) for line in text.split("\n")))


def command(text: str) -> str:
    """A command to be copied: as it is, blanks in quotes included, unless it is no clean line."""
    return text if text.isprintable() and len(text) <= LONGEST else clean(text)


def number(value: float, digits: int = 3) -> str:
    """A measured number in `digits` significant digits; "nan", "inf" and "-inf" as they are.

    >>> number(1.23456e-8), number(float("-inf"))
    ('1.23e-08', '-inf')
    """
    return f"{value:.{digits}g}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "check"), plural(1200, "check")
    ('1 check', '1,200 checks')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def share(count: int, of: int, noun: str) -> str:
    """A count out of another one, with its verb.

    >>> share(1, 9, "element"), share(3, 9, "element"), share(1, 1, "element")
    ('1 of 9 elements is', '3 of 9 elements are', '1 of 1 element is')
    """
    return f"{count:,} of {plural(of, noun)} {'is' if count == 1 else 'are'}"


def word(verdict: Standing) -> str:
    """A verdict, or what a baseline makes of it, as reports write it."""
    return verdict.value.upper()


def tone(verdict: Standing) -> str:
    """How a verdict feels: "good", "bad", "warn", or "calm" for what was not checked, or known."""
    if isinstance(verdict, Known):
        return "calm" if verdict.expected else "bad"
    if verdict is Verdict.PASS:
        return "good"
    if not verdict.checked:
        return "calm"
    return "warn" if verdict in _ALARMING else "bad"


def gradient(output: str) -> str:
    """The gradient with respect to a primal, as in code: `d` and the primal's name.

    What is judged beside gradients (forward's value, the call of vjp, a jvp) keeps its name, and
    so does what has a name of several words.

    >>> gradient("x"), gradient("h.0.weight"), gradient("forward"), gradient("dot product")
    ('dx', 'd h.0.weight', 'forward', 'dot product')
    >>> gradient("z.real"), gradient("jvp.imag")
    ('dz.real', 'jvp.imag')
    """
    name = clean(output)
    whole = name.removesuffix(".real").removesuffix(".imag")
    if whole in ("forward", "vjp", "jvp", "double_vjp", "gradients") or " " in name:
        return name
    return f"d{name}" if whole.isidentifier() else f"d {name}"


def subject(output: str, part: Part) -> str:
    """What a row is about: a gradient, or a stage, or else what its name says.

    >>> subject("ln_f", Part.STAGE), subject("wte", Part.GRADIENT), subject("loss", Part.VALUE)
    ('stage ln_f', 'dwte', 'loss')
    >>> subject("linear", Part.CONTRACT), subject("contract", Part.CONTRACT)
    ('side condition linear', 'side conditions')
    """
    if part is Part.GRADIENT:
        return gradient(output)
    if part is Part.CONTRACT:
        name = clean(output)
        return f"{SIDE_CONDITION}s" if name == CONTRACT else f"{SIDE_CONDITION} {name}"
    return f"stage {clean(output)}" if part is Part.STAGE else clean(output)


def filed(output: str, part: Part) -> str:
    """What a row is about, in baselines and JUnit reports: names on file keep their words.

    >>> filed("linear", Part.CONTRACT), filed("x", Part.GRADIENT)
    ('contract: linear', 'dx')
    """
    return f"{CONTRACT}: {clean(output)}" if part is Part.CONTRACT else subject(output, part)


def position(index: tuple[int, ...]) -> str:
    """An index in brackets; empty for a scalar."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def element(output: str, index: tuple[int, ...]) -> str:
    """One element of a gradient.

    >>> element("x", (1, 3)), element("x", ())
    ('dx[1, 3]', 'dx')
    """
    return gradient(output) + position(index)


def case(result: CaseResult) -> str:
    """The name of the case and its dtype: `op/dialect/sample/dtype`."""
    return clean(f"{result.case.op}/{result.case.dialect}/{result.case.sample}/{result.case.dtype}")


def title(result: CaseResult) -> str:
    """What a failure's first line says before its reason."""
    return f"{case(result)} · {subject(result.finding.name, result.finding.part)}"


def allowed(miss: Miss, verdict: Verdict) -> float:
    """What an element may be off: its bound, and for a pass that needs it the doubled error bar."""
    if verdict is Verdict.PASS and miss.error > miss.bound:
        return miss.bound + BARS * miss.error_bar
    return miss.bound


def relative(miss: Miss) -> tuple[float, float] | None:
    """Error and bound as parts of max(|got|, |want|); None where that is 0 or not finite."""
    # Not max(): it drops a NaN that comes second.
    got, want = abs(miss.got), abs(miss.want)
    scale = got if got > want else want
    if not (math.isfinite(got) and math.isfinite(want)) or scale == 0:
        return None
    return miss.error / scale, miss.bound / scale


def comparison(miss: Miss) -> str:
    """An element's relative error against its relative bound: `2.1e-13 ≤ 1.0e-08`.

    Where the bound is as large as the element itself, relative numbers say nothing; there both
    are absolute, and say so in the same width: `2e-16 ≤ 9e-16 abs`.
    """
    if not (math.isfinite(miss.got) and math.isfinite(miss.want)):
        return f"got {number(miss.got)}"
    ratios = relative(miss)
    absolute = ratios is None or ratios[1] >= 1
    pair = (miss.error, miss.bound) if ratios is None or absolute else ratios
    within = miss.error <= miss.bound
    for digits in range(1 if absolute else 2, 18):
        error, bound = (_scientific(value, digits) for value in pair)
        if within or error != bound:
            break
    return f"{error} {'≤' if within else '>'} {bound}{' abs' if absolute else ''}"


def compared(miss: Miss) -> str:
    """An element's error and tolerance in a sentence: `rel. err 0.99 > tol 1.0e-04`.

    Empty where a number is not finite.
    """
    error, *rest = comparison(miss).split(" ")
    if error == "got":
        return ""
    size = float(error)
    plain = len(error) <= len("1.0e-01") and 1e-3 <= size < 1e4
    kind = "abs." if rest[-1] == "abs" else "rel."
    return f"{kind} err {number(size, 2) if plain else error} {rest[0]} tol {rest[1]}"


def _scientific(value: float, digits: int) -> str:
    return f"{value:.{digits - 1}e}" if value else "0"


def cell(finding: Finding, *, measured: bool = True, bound: bool = True) -> str:
    """A finding as a table shows it, after its verdict's word: the worst element's error.

    Args:
        finding: the worst one of the table's cell.
        measured: say the error at all.
        bound: say the bound too.

    Returns:
        An empty string where the verdict says everything.
    """
    if not measured or finding.top is None:
        return ""
    if finding.verdict not in (Verdict.PASS, Verdict.FAIL):
        return ""
    top = finding.top
    text = comparison(replace(top, bound=allowed(top, finding.verdict)))
    if bound or text.startswith("got"):
        return text
    error, _, rest = text.partition(" ")
    return f"{error} abs" if rest.endswith(" abs") else error


def kept(results: Sequence[CaseResult]) -> str:
    """How many properties of a contract hold, of how many that could be asked."""
    asked = [r for r in results if r.finding.verdict.checked]
    return f"{sum(r.finding.verdict is Verdict.PASS for r in asked)}/{len(asked)}" if asked else ""


def multiple(value: float, unit: float) -> str:
    """`value` in multiples of `unit`; empty where that means nothing."""
    if not unit > 0 or not math.isfinite(value):
        return ""
    return number(value / unit)

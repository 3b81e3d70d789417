"""The wording that all reports share: numbers, elements, cells, the facts of a failure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.expectation import Known
from gradcheck.finding import Part
from gradcheck.inert import apart, inert
from gradcheck.record import Kind
from gradcheck.report import places
from gradcheck.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck.finding import Taylor
    from gradcheck.record import Header, Miss, Record, Run, Standing

LONGEST: Final = 2000
"""Characters of one foreign text (a reason, a name) that a report shows."""

OUTPUT: Final = {
    Kind.OPERATOR: "gradient",
    Kind.MODEL: "gradient",
    Kind.RULE: "new value",
}
"""What the rows of a table are about."""
LONGEST_VERSION: Final = 100
"""Characters of what an implementation says that it is."""
ALONG: Final = "along d"
"""What stands for an index where a whole gradient was compared along a direction d."""
FLAGS: Final = {Kind.OPERATOR: "--op", Kind.MODEL: "--model", Kind.RULE: "--rule"}
"""How each kind is selected."""
CONTRACT: Final = "contract"
"""The row that stands for all properties which a backward owes beyond its numbers."""
CLEAR: Final = 100.0
"""A Taylor remainder of so many times the noise shows the slope of its curve."""

_ALARMING: Final = (Verdict.INCONCLUSIVE, Verdict.NOTRUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """How many impostors the checks would have rejected, of how many; to which each is blind."""

    rejected: int
    tried: int
    blind: tuple[tuple[str, int, str], ...]
    """Impostor, number of checks that it would pass, and one of them."""


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
    """
    name = clean(output)
    if name in ("forward", "vjp", "jvp", "double_vjp", "gradients") or " " in name:
        return name
    return f"d{name}" if name.isidentifier() else f"d {name}"


def subject(output: str, part: Part) -> str:
    """What a row is about: a gradient, or a stage, or else what its name says.

    >>> subject("ln_f", Part.STAGE), subject("wte", Part.GRADIENT), subject("loss", Part.VALUE)
    ('stage ln_f', 'dwte', 'loss')
    >>> subject("linear", Part.CONTRACT)
    'contract: linear'
    """
    if part is Part.GRADIENT:
        return gradient(output)
    if part is Part.CONTRACT:
        name = clean(output)
        return name if name == CONTRACT else f"{CONTRACT}: {name}"
    return f"stage {clean(output)}" if part is Part.STAGE else clean(output)


def place(result: Record, miss: Miss) -> str:
    """The element that was compared, of the gradient to which it belongs; of training a step."""
    if result.part is Part.TRAINING:
        return spot(result, miss)
    name = gradient(miss.tensor) if miss.tensor else subject(result.output, result.part)
    return f"{name} {ALONG}" if projected(result) else name + spot(result, miss)


def spot(result: Record, miss: Miss) -> str:
    """Where in a gradient the element is; of training, at which step and what moved."""
    if result.part is Part.TRAINING:
        alone = f", {clean(miss.tensor)} alone" if miss.tensor else ""
        return f"step {', '.join(map(str, miss.index))}{alone}"
    return ALONG if projected(result) else position(miss.index)


def projected(result: Record) -> bool:
    """Whether a gradient was compared along a direction only, and not element by element."""
    return bool(result.evaluations and result.top is not None and not result.top.index)


def position(index: tuple[int, ...]) -> str:
    """An index in brackets; empty for a scalar."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def element(output: str, index: tuple[int, ...]) -> str:
    """One element of a gradient.

    >>> element("x", (1, 3)), element("x", ())
    ('dx[1, 3]', 'dx')
    """
    return gradient(output) + position(index)


def case(result: Record) -> str:
    """The name of the case and its dtype: `op/dialect/sample/dtype`."""
    return clean(f"{result.op}/{result.dialect}/{result.sample}/{result.dtype}")


def title(result: Record) -> str:
    """What a failure's first line says before its reason."""
    return f"{case(result)} · {subject(result.output, result.part)}"


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


def _scientific(value: float, digits: int) -> str:
    return f"{value:.{digits - 1}e}" if value else "0"


def cell(result: Record, *, measured: bool = True, bound: bool = True) -> str:
    """A result as a table shows it, after its verdict's word: the worst element's error.

    Args:
        result: the worst result of the table's cell.
        measured: say the error at all.
        bound: say the bound too.

    Returns:
        An empty string where the verdict says everything.
    """
    if not measured or result.top is None:
        return ""
    if result.verdict not in (Verdict.PASS, Verdict.FAIL):
        return ""
    text = comparison(result.top)
    if bound or text.startswith("got"):
        return text
    error, _, rest = text.partition(" ")
    return f"{error} abs" if rest.endswith(" abs") else error


def kept(results: Sequence[Record]) -> str:
    """How many properties of a contract hold, of how many that could be asked."""
    asked = [r for r in results if r.verdict.checked]
    return f"{sum(r.verdict is Verdict.PASS for r in asked)}/{len(asked)}" if asked else ""


def values(miss: Miss, most: int = 17) -> tuple[str, str]:
    """What was got and what was wanted, in as many digits as it takes to see them differ.

    Args:
        miss: the element.
        most: significant digits at most; there are 6 at least.
    """
    if miss.got == miss.want:
        return number(miss.got, 6), number(miss.want, 6)
    digits = 6
    while digits < most and number(miss.got, digits) == number(miss.want, digits):
        digits += 1
    # One more digit, to see by how much.
    digits = min(digits + 1, most) if digits > 6 else digits
    return number(miss.got, digits), number(miss.want, digits)


def bar(miss: Miss) -> str:
    """The error bar of what was wanted."""
    return f"± {number(miss.error_bar, 2)}"


def multiple(value: float, unit: float) -> str:
    """`value` in multiples of `unit`; empty where that means nothing."""
    if not unit > 0 or not math.isfinite(value):
        return ""
    return number(value / unit)


def errors(miss: Miss) -> str:
    """An error in four units: relative, ulp, multiples of the bound and of the error bar."""
    if not math.isfinite(miss.error):
        return ""
    parts = []
    ratios = relative(miss)
    if ratios is not None:
        parts.append(f"{number(ratios[0])} relative")
    if miss.ulp is not None:
        parts.append(f"{number(miss.ulp)} ulp")
    for unit, name in ((miss.bound, "bound"), (miss.error_bar, "error bar")):
        times = multiple(miss.error, unit)
        if times:
            parts.append(f"{times} × {name}")
    return ", ".join(parts)


def extent(result: Record) -> str:
    """How many of how many elements failed, and under which cotangent the worst one did."""
    if not result.compared:
        return ""
    text = f"{result.failed:,} of {plural(result.compared, 'element')}"
    if result.unresolved:
        text += f", {result.unresolved:,} unresolved"
    if result.top is not None and result.top.cotangent:
        text += f"; the worst {_among(result.part)}{clean(result.top.cotangent)}"
    return text


def _among(part: Part) -> str:
    """What the name of a cotangent follows; steps and sequences of them say it themselves."""
    return "at " if part in (Part.UPDATE, Part.TRAINING) else "with cotangent "


def facts(result: Record) -> list[tuple[str, str]]:
    """What is known about a result, as (label, text) pairs; the last says how to rerun it."""
    pairs = []
    top = result.top
    if top is not None:
        got, want = values(top)
        pairs += [
            ("worst", f"{place(result, top)} got {got}, want {want} {bar(top)}"),
            ("error", errors(top)),
        ]
    pairs += [("failed", extent(result)), ("where", where(result))]
    if result.evaluations or result.verdict is Verdict.INCONCLUSIVE:
        pairs.append(("visible", visible(result)))
    if result.taylor is not None:
        pairs.append(("taylor", taylor(result.taylor)))
    pairs += [("hunts", clean(result.hunts)), ("run", command(result.repro))]
    return [(label, text) for label, text in pairs if text]


def where(result: Record) -> str:
    """Which part of a gradient is wrong under the worst cotangent; empty where that is long.

    A diagnosis says it in its own way.
    """
    named = result.diagnosis is not None and result.diagnosis.label
    if named or result.verdict.expected or result.top is None:
        return ""
    name = gradient(result.top.tensor) if result.top.tensor else subject(result.output, result.part)
    return ", ".join(name + part for part in places.slices(result.heat))


def visible(result: Record) -> str:
    """How small an error the check would have seen, and what it cost to look."""
    least = result.smallest_visible_error
    if least is None:
        return ""
    if not result.evaluations:
        return f"a relative error of {number(least)} or more"
    cost = plural(result.evaluations, "forward evaluation")
    return f"an error of {number(least)} of a typical element or more; {cost}"


def taylor(found: Taylor) -> str:
    """What a curve of Taylor remainders says of the gradient along one direction."""
    product = number(found.product, 6)
    if not math.isfinite(found.error_bar):
        return f"⟨g, d⟩ is {product}; no steps agree on what is missing from it"
    missing = f"{number(found.intercept)} ± {number(found.error_bar, 2)}"
    intercept = f"⟨g, d⟩ is {product}, and {missing} is missing from it"
    if found.linear:
        return f"{intercept}; every remainder is noise"
    slope = _last_slope(found)
    if slope is None:
        return intercept
    return f"{intercept}; slope {slope:.1f} (3 where the gradient is right, 1 where it is wrong)"


def _last_slope(found: Taylor) -> float | None:
    """The slope at the shortest steps whose remainders stand well above the noise."""
    whole = [abs(2 * h * r) for h, r in zip(found.steps, found.remainders, strict=True)]
    clear = [
        slope
        for slope, rest in zip(found.slopes, whole[1:], strict=True)
        if rest > CLEAR * found.noise and math.isfinite(slope)
    ]
    return clear[-1] if clear else None


def missing(found: Taylor) -> float:
    """What is missing from ⟨g, d⟩, as a part of it; infinite where that means nothing."""
    share = abs(found.intercept / found.product) if found.product else math.inf
    return share if math.isfinite(share) and math.isfinite(found.error_bar) else math.inf


def curves(dtype: str, count: int, worst: Record) -> str:
    """What the Taylor curves of one dtype say together."""
    assert worst.taylor is not None
    share, bar = number(missing(worst.taylor)), number(abs(worst.taylor.error_bar), 2)
    return (
        f"{plural(count, 'curve')} in {clean(dtype)}; the largest part missing from ⟨g, d⟩ is "
        f"{share}, in {title(worst)} ({number(worst.taylor.intercept)} ± {bar} missing from "
        f"{number(worst.taylor.product)})"
    )


def headline(run: Run) -> str:
    """The verdict on the whole run in a few words."""
    footer, gate = run.footer, run.gate
    bad = sum(map(run.fails, run.results))
    known = gate.count(Known.XFAIL) if gate is not None else 0
    beside = f", {plural(known, 'known failure')}" if known else ""
    if not footer.checked:
        return "nothing was checked"
    if bad:
        return f"{bad:,} of {plural(footer.checked, 'check')} did not pass{beside}"
    if gate is not None and gate.problems:
        return f"{plural(len(gate.problems), 'line')} of {clean(gate.baseline)} to correct{beside}"
    if run.troubles:
        return f"{plural(len(run.troubles), 'problem')} kept the run from judging everything"
    if not run.complete:
        return "the run is incomplete"
    passed = footer.checked - known
    if known:
        return f"{passed:,} of {plural(footer.checked, 'check')} passed{beside}"
    return f"{'all ' if passed > 1 else ''}{plural(passed, 'check')} passed"


def incomplete(run: Run) -> str:
    """Why a run ended early and what it did not reach, as far as that is known."""
    return clean(run.stopped) or "the run stopped early"


def tally(run: Run) -> list[tuple[str, str]]:
    """The counts behind the headline and what else closes the gate, as (tone, text) pairs."""
    counts = run.footer.counts
    known = {*Verdict} - {r.verdict for r in run.results if not run.accepts(r)}
    pairs = [
        ("calm" if v in known and not v.expected else tone(v), f"{counts[v.value]:,} {v.value}")
        for v in Verdict
        if counts[v.value]
    ]
    if run.gate is not None:
        marks = [(known, run.gate.count(known)) for known in Known]
        pairs += [(tone(known), f"{count:,} {known.value}") for known, count in marks if count]
    if run.troubles:
        pairs.append(("bad", plural(len(run.troubles), "problem")))
    if not run.complete:
        pairs.append(("bad", "incomplete"))
    return pairs


def baseline(run: Run) -> list[str]:
    """What a baseline makes of the run: what it lists, then a line per thing to correct."""
    gate = run.gate
    if gate is None:
        return []
    counts = [f"{plural(gate.count(Known.XFAIL), 'known failure')} (XFAIL)"]
    if passing := gate.count(Known.XPASS):
        counts.append(f"{passing:,} unexpected {'pass' if passing == 1 else 'passes'} (XPASS)")
    lines = [problem.text for problem in gate.problems]
    warnings = [f"warning: {text}" for text in gate.warnings]
    return [clean(text) for text in (f"{gate.baseline}: {', '.join(counts)}", *lines, *warnings)]


def versions(run: Run) -> list[tuple[str, str]]:
    """What was run, on what, as (label, text) pairs."""
    header = run.header
    cases = f", cases {clean(header.cases)}" if header.cases else ""
    numpy = f", NumPy {clean(header.numpy)}" if header.numpy else ""
    several = "s" if len(header.implementations) > 1 else ""
    return [
        ("gradcheck", clean(header.version)),
        ("suite", clean(f"{header.suite} {header.suite_version}") + cases),
        *([("shard", clean(header.shard))] if header.shard else []),
        (f"implementation{several}", ", ".join(_called(header)) or "none"),
        ("dtypes", ", ".join(map(clean, header.dtypes)) or "none"),
        ("seed", str(header.seed)),
        ("on", f"Python {clean(header.python)}{numpy}, {clean(header.platform)}"),
    ]


def _called(header: Header) -> Iterator[str]:
    """Each implementation, and what it says that it is."""
    for name in header.implementations:
        said = header.versions.get(name, "")
        yield clean(f"{name} ({said[:LONGEST_VERSION]})" if said else name)


def rejected(found: Rejected) -> str:
    """What the certificates say, in one line."""
    text = f"{found.rejected:,} of {found.tried:,} impostors would have been rejected"
    if found.blind:
        few = [f"{name} ({count:,}, as in {where})" for name, count, where in found.blind[:3]]
        more = f" and {len(found.blind) - 3} more" if len(found.blind) > 3 else ""
        text += f"; passed by: {', '.join(few)}{more}"
    return clean(text)

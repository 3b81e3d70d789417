"""Words that reports use: verdicts, expectations, classes of defects, properties, impostors, xp."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from gradcheck_cases.mutants.contract import MUTANTS as CONTRACT_MUTANTS

from _pages.operators import mutants, path_of
from _pages.text import code, front, joined, link, table, text
from gradcheck.judge.compare import (
    ALLOWED_ROUNDINGS,
    CANCELLATION_FACTOR,
    LOW_TOLERANCES,
    TOLERANCES,
)
from gradcheck.judge.contract_check import PROPERTIES
from gradcheck.judge.impostors import IMPOSTORS, NARROWINGS, describe
from gradcheck.judge.low_precision import (
    FAIL_EXCESS,
    MAX_MEAN_RATIO,
    MAX_RATIO,
    MAX_RATIO_ROUNDED_ONCE,
)
from gradcheck.numerics.arithmetic import Arithmetic
from gradcheck.results import verdict
from gradcheck.results.verdict import Breach, Known
from gradcheck.spec.defect import LABELS

GATE: Final = {True: "accepts it", False: "closes: exit code 1"}
EXAMPLES: Final = 3
"""The number of example mutants shown for a class."""


def pages() -> Iterator[tuple[str, str]]:
    """Each page's path and Markdown."""
    yield "reference/verdicts.md", _verdicts()
    yield "reference/defects.md", _defects()
    yield "reference/contract.md", _properties()
    yield "reference/impostors.md", _impostors()
    yield "reference/bounds.md", _bounds()
    yield "reference/namespace.md", _namespace()


def said(kind: type) -> dict[str, str]:
    """The docstring below each member of an enumeration in its source."""
    source = inspect.getsource(kind)
    found = re.findall(
        r'^    ([A-Z_]+) = [^\n]+\n    """(.*?)"""', source, flags=re.MULTILINE | re.DOTALL
    )
    return {name: " ".join(words.split()) for name, words in found}


def _verdicts() -> str:
    words = said(verdict.Verdict)
    rows = [
        [
            f'<span class="verdict {one.value}">{one.value.upper()}</span>',
            text(words[one.name]),
            "closes: exit code 5" if one is verdict.Verdict.INVALID else GATE[one.expected],
            "yes" if one.checked else "no, it is counted",
        ]
        for one in verdict.Verdict
    ]
    marks = said(Known)
    known = [[code(one.value), text(marks.get(one.name, ""))] for one in Known]
    lines = said(Breach)
    breaches = [[code(one.value.upper()), text(lines.get(one.name, ""))] for one in Breach]
    return joined(
        front("Verdicts", "The meaning of each verdict, and its effect on the gate"),
        "# Verdicts",
        "There is one verdict per implementation, case, dtype and gradient output. Only PASS is a "
        "pass; unchecked results are counted.",
        table(["verdict", "meaning", "the gate", "counts as checked"], rows),
        "A summary of several verdicts shows the worst, in this order: "
        + ", ".join(one.value.upper() for one in verdict.SEVERITY)
        + ".",
        "See also [what PASS means](../explanation/pass.md) and the "
        "[exit codes](commands/index.md#exit-codes).",
        "## With a baseline",
        "A [baseline](../baseline.md) does not change a verdict; it adds a mark, which is not "
        "stored:",
        table(["mark", "meaning"], known) if known else "",
        "These close the gate:",
        table(["line", "meaning"], breaches) if any(lines.values()) else "",
    )


def _defects() -> str:
    first = Counter(mutant.label for of in mutants().values() for mutant in of)
    parts = [
        front(
            "Classes of defects", "The 24 classes that a diagnosis may name, with known mistakes"
        ),
        "# Classes of defects",
        "The word is in the first line of a failure and in the `class` of a "
        "[baseline](../baseline.md) entry; it does not change between versions. "
        "[Mutants](../explanation/certificates.md) use the code. How a class is found: "
        "[why a gradient is wrong](../diagnosis.md).",
    ]
    rows = [
        [link(label.word, f"#{label.word}"), code(key), text(label.says), str(first[key])]
        for key, label in LABELS.items()
    ]
    parts.append(table(["class", "code", "contents", "mutants"], rows, right=(3,)))
    for key, label in LABELS.items():
        found = [m for of in mutants().values() for m in of if m.label == key]
        real = [mutant for mutant in found if mutant.modelled_on] or found
        parts += [
            f"## {label.word} {{#{label.word}}}",
            text(label.says[0].upper() + label.says[1:]) + ".",
        ]
        shown = real[:EXAMPLES]
        if shown:
            parts.append(
                "\n".join(
                    f"- {link(code(m.op), '../' + path_of(m.op))}: {text(m.says)}"
                    + (f" *After {text(m.modelled_on)}.*" if m.modelled_on else "")
                    for m in shown
                )
            )
    return joined(*parts)


def _properties() -> str:
    rows = []
    for one in PROPERTIES:
        how = (inspect.getdoc(one.examine) or "").split("\n\n")[0]
        needs = {"into": "`vjp_into`", "asked": "`needs`", "strided": "arrays with strides", "": ""}
        rows.append([code(one.name), text(one.says), text(how), needs[one.needs]])
    sources = Counter(mutant.source for mutant in CONTRACT_MUTANTS if mutant.source)
    mutants = [
        [code(mutant.name), text(mutant.says), text(mutant.source)]
        for mutant in CONTRACT_MUTANTS
        if not mutant.right
    ]
    return joined(
        front("Side conditions", "What a backward has to fulfil besides its numbers"),
        "# Side conditions of a backward",
        "A backward has to fulfil these conditions besides returning the right numbers. They are "
        "checked once per operator, variant and dtype, for every implementation but the reference; "
        "one that does not apply is SKIP with its reason. Flags and JSON call them `contract`. "
        "Background: [side conditions](../explanation/contract.md).",
        table(["condition", "requirement", "method", "needs"], rows),
        "## Mutants",
        f"{len(mutants)} copies of one backward with a right formula and wrong behaviour, in "
        f"{len(sources)} groups. Each condition is the only one to reject some of them "
        "(`gradcheck power --contract`).",
        table(["mutant", "what is wrong", "kind"], mutants),
    )


def _impostors() -> str:
    rows = [[code(one.name), text(one.says)] for one in IMPOSTORS]
    return joined(
        front("Deliberately wrong gradients", "The self-check of every comparison"),
        "# Deliberately wrong gradients",
        "After each gradient is judged, the same comparison is applied to these wrong gradients. "
        "The line `self-check: all 58 deliberately wrong gradients were caught` counts them; one "
        "that equals the true gradient at a sample is not counted. A sample that rejects none is "
        "INVALID. JSON calls them impostors. Background: "
        "[self-checks](../explanation/certificates.md).",
        table(["name", "what it is"], rows),
        "## Narrower types",
        "Right formulas that round inputs, intermediate values or results. One with an error below "
        "the tolerance is `tolerated`, with the number of bits at which it would show. A sample "
        "whose primals all fit in a narrower type is INVALID if rounding other primals would show.",
        table(
            ["name", "what it is"],
            [[code(one.name), text(describe(one))] for one in NARROWINGS],
        ),
    )


def _bounds() -> str:
    rows = [
        [
            code(rules.dtype),
            f"{rules.rtol:.3g}",
            f"{rules.u:.3g}",
            f"{rules.rtol / CANCELLATION_FACTOR:.3g} + {ALLOWED_ROUNDINGS:g}·{rules.u:.2g}·√n",
            f"{rules.negligible_scale:g}",
            f"{rules.underflow:.2g}",
        ]
        for rules in TOLERANCES.values()
    ]
    low = [
        [code(rules.dtype), f"{rules.rtol:.3g}", f"{rules.u:.3g}", f"{rules.underflow:.2g}"]
        for rules in LOW_TOLERANCES.values()
    ]
    return joined(
        front("Tolerances", "The permitted error of a gradient, by dtype"),
        "# Tolerances",
        "The permitted error of an element is `rtol·max(|got|, |expected|)`, plus a part of "
        "Σ|ct·J| (n is the number of terms), plus the measured cost of rounding for the formula. "
        "No absolute tolerance is set by hand. Background: [how a gradient is judged]"
        "(../explanation/judgement.md).",
        table(
            ["dtype", "rtol", "u", "of Σ\\|ct·J\\|", "negligible", "underflow"], rows, right=(1, 2)
        ),
        "*negligible*: an unresolved element is tolerated if its uncertainty is below this part of "
        "the tensor's largest Σ|ct·J|. *underflow*: an allowance that is added to the tolerance.",
        "## Low precision",
        "Compared with 50 digits at the rounded inputs, never differenced; sums may be kept in "
        "float32 ([background](../explanation/low-precision.md)).",
        table(["dtype", "rtol", "u", "underflow"], low, right=(1, 2, 3)),
        "In units of the spread from rounding every operation, errors may be "
        f"{MAX_MEAN_RATIO:g} in the mean square and {MAX_RATIO:g} in one element "
        f"({MAX_RATIO_ROUNDED_ONCE:g} if the kernel evidently rounds once). Larger errors are "
        f"INCONCLUSIVE, {FAIL_EXCESS:g} times as large ones FAIL.",
    )


def _namespace() -> str:
    rows = []
    names = {**Arithmetic.__annotations__, **vars(Arithmetic)}
    for name in names:
        if name.startswith("_") or name in ("name", "dtype"):
            continue
        member = vars(Arithmetic).get(name)
        doc = inspect.getdoc(member) if member is not None else f"{name}, element by element."
        shown = name
        if inspect.isfunction(member):
            taken = list(inspect.signature(member).parameters.values())[1:]
            shown = f"{name}({', '.join(p.name for p in taken)})"
        rows.append([code(f"xp.{shown}"), text((doc or "").split("\n\n")[0])])
    return joined(
        front("The namespace xp", "The functions that a spec's forward and VJP may call"),
        "# The namespace `xp`",
        "A spec's `forward(xp, …)` and `vjp(xp, ct, …)` may call only these functions and Python's "
        "operators, so one text runs in float32, in float64, in 50 digits and with tracked "
        "rounding ([background](../adr/0003-closed-namespace.md)). Constants are written "
        '`xp.const("0.044715")`.',
        table(["call", "result"], sorted(rows)),
    )

"""A page per operator and per family, from specs and mutants."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from gradcheck_cases import SUITE

from _pages.mathml import mathml
from _pages.text import attributes, block, code, front, joined, link, table, text
from gradcheck.spec import Dialect, Kink, OpSpec, Sample
from gradcheck.spec.defect import LABELS
from gradcheck.spec.mutant import Mutant, mutants_of
from gradcheck.spec.suite import Case

HOME: Final = "reference/operators"
CORE: Final = re.compile(r"\(([^()]*)\)")


def pages() -> Iterator[tuple[str, str]]:
    """Each page's path and Markdown."""
    yield f"{HOME}/index.md", _index()
    for family, specs in families().items():
        yield f"{HOME}/{family}/index.md", _family(family, specs)
        for spec in specs:
            yield f"{HOME}/{family}/{spec.name}.md", _operator(spec)


def navigation() -> list[object]:
    """The operators' part of the navigation."""
    entries: list[object] = [f"{HOME}/index.md"]
    for family, specs in families().items():
        below = [{spec.name: f"{HOME}/{family}/{spec.name}.md"} for spec in specs]
        entries.append({_title(family): [f"{HOME}/{family}/index.md", *below]})
    return entries


@cache
def families() -> Mapping[str, Sequence[OpSpec]]:
    """The suite's operators by family, in its order."""
    found: dict[str, list[OpSpec]] = {}
    for spec in SUITE:
        found.setdefault(spec.family, []).append(spec)
    return found


@cache
def mutants() -> Mapping[str, Sequence[Mutant]]:
    """The wrong backward passes of each operator."""
    return mutants_of(SUITE)


@cache
def stages() -> Mapping[str, Sequence[tuple[str, int]]]:
    """The models that use each operator, and in how many stages."""
    found: dict[str, list[tuple[str, int]]] = {}
    for model in SUITE.models.values():
        program = model.build()
        used = [stage.op.name for stage in program.stages]
        for name in dict.fromkeys(used):
            found.setdefault(name, []).append((model.name, used.count(name)))
    return found


def path_of(name: str) -> str:
    """The page of an operator."""
    return f"{HOME}/{SUITE.operators[name].family}/{name}.md"


def _title(family: str) -> str:
    return {"moe": "mixture of experts"}.get(family, family).capitalize()


def _modules() -> Mapping[str, str]:
    """The first paragraph of each family module's docstring."""
    said = {}
    for family, specs in families().items():
        module = inspect.getmodule(specs[0].forward)
        said[family] = (inspect.getdoc(module) or "").split("\n\n")[0]
    return said


def _index() -> str:
    cases = SUITE.cases()
    rows = []
    for family, specs in families().items():
        names = ", ".join(link(spec.name, f"{family}/{spec.name}.md") for spec in specs)
        killed = sum(len(mutants().get(spec.name, ())) for spec in specs)
        count = sum(case.spec in specs for case in cases)
        rows.append([link(_title(family), f"{family}/index.md"), names, str(count), str(killed)])
    wrong = sum(map(len, mutants().values()))
    lead = (
        f"The built-in suite ({SUITE.name} {SUITE.version}) has {len(SUITE)} operators with "
        f"{sum(len(spec.dialects) for spec in SUITE)} dialects: {len(cases):,} cases, each of "
        f"which targets a defect, and {wrong:,} wrong backward passes that they must "
        "reject. The pages are generated from the specs; `gradcheck explain OP` prints the same."
    )
    hint = (
        "Judge your own version of one: [bind a Python function](../../guides/suite.md), "
        "[a C library](../../guides/c.md) or [a program](../../guides/program.md). Add one: "
        "[an operator in 20 lines](../../guides/operator.md)."
    )
    return joined(
        front("Operators", "All operators of the built-in suite, by family"),
        "# Operators",
        lead,
        hint,
        table(["family", "operators", "cases", "mutants"], rows, right=(2, 3)),
    )


def _family(family: str, specs: Sequence[OpSpec]) -> str:
    parts = [
        front(_title(family), _modules()[family]),
        f"# {_title(family)}",
        text(_modules()[family]),
    ]
    for spec in specs:
        dialects = ", ".join(code(d.name) for d in spec.dialects) if len(spec.dialects) > 1 else ""
        counts = f"{len(spec.samples)} samples, {len(mutants().get(spec.name, ()))} mutants"
        parts += [
            f"## {link(code(spec.name), f'{spec.name}.md')}",
            _formula(spec),
            f"{text(spec.source)} · {counts}" + (f" · dialects {dialects}" if dialects else ""),
        ]
    return joined(*parts)


def _formula(spec: OpSpec) -> str:
    return f'<div class="formula" data-search-exclude>{mathml(spec.formula)}</div>'


def _operator(spec: OpSpec) -> str:
    return joined(
        front(spec.name, f"The operator {spec.name}: formula, samples, kinks, mutants"),
        f"# {code(spec.name)}",
        _formula(spec),
        f"**Source**: {text(spec.source)}. **Defined in** `{spec.forward.__module__}`.",
        "## Arguments",
        _arguments(spec),
        _attributes(spec),
        "## Variants" if len(spec.dialects) > 1 else "",
        _dialects(spec) if len(spec.dialects) > 1 else "",
        _kinks(spec),
        "## Samples",
        _samples(spec),
        _mutants(spec),
        _slack(spec),
        "## Judge your own",
        _own(spec),
        _used(spec),
        _text_of(spec),
    )


def _arguments(spec: OpSpec) -> str:
    left, _, right = spec.signature.partition("->")
    axes = zip(spec.primals, CORE.findall(left), strict=True)
    rows = [
        [
            code(name),
            code(f"({core})"),
            "optional" if name in spec.optional else "",
            "index: no gradient" if _is_index(spec, name) else code(f"d{name}"),
        ]
        for name, core in axes
    ]
    outputs = ", ".join(code(f"({core})") for core in CORE.findall(right))
    return (
        table(["primal", "core axes", "note", "gradient"], rows)
        + f"\nReturns {outputs}. Axes before the core ones are batch "
        f"([NumPy's gufunc notation](../../../glossary.md#signature))."
    )


def _is_index(spec: OpSpec, name: str) -> bool:
    case = _first_case(spec)
    present = [p for p in spec.primals if p not in case.dialect.without]
    place = present.index(name) if name in present else -1
    return place >= 0 and case.primals[place].dtype.kind in "iu"


@cache
def _cases() -> Mapping[str, Sequence[Case]]:
    found: dict[str, list[Case]] = {}
    for case in SUITE.cases():
        found.setdefault(case.spec.name, []).append(case)
    return found


def _first_case(spec: OpSpec) -> Case:
    """The case with the most primals."""
    return max(_cases()[spec.name], key=lambda case: len(case.primals))


def _attributes(spec: OpSpec) -> str:
    if not spec.defaults:
        return ""
    rows = [[code(name), code(repr(value))] for name, value in spec.defaults.items()]
    return table(["attribute", "default"], rows)


def _dialects(spec: OpSpec) -> str:
    rows = [[code(d.name), text(d.says), attributes(d.attrs), _lacks(d)] for d in spec.dialects]
    return table(["variant", "definition", "attributes", "without"], rows)


def _lacks(dialect: Dialect) -> str:
    return ", ".join(code(name) for name in dialect.without)


def _samples(spec: OpSpec) -> str:
    first: dict[str, Case] = {}
    for case in _cases()[spec.name]:
        first.setdefault(case.sample.name, case)
    rows = []
    for sample in spec.samples:
        shapes = " ".join("×".join(map(str, p.shape)) or "()" for p in first[sample.name].primals)
        rows.append([code(sample.name), text(sample.hunts), shapes, _conditions(sample)])
    return table(["sample", "designed to catch", "shapes", "conditions"], rows)


def _conditions(sample: Sample) -> str:
    parts = [attributes(sample.attrs), "on a kink" if sample.at_kink else ""]
    parts += [f"only {', '.join(map(code, sample.dialects))}"] if sample.dialects else []
    return "; ".join(part for part in parts if part)


def _kinks(spec: OpSpec) -> str:
    if not spec.kinks:
        return ""
    rows = [[text(kink.name), _accepted(spec, kink), text(kink.source)] for kink in spec.kinks]
    said = [
        [text(kink.name), text(convention.name), text(", ".join(convention.systems))]
        for kink in spec.kinks
        for convention in kink.conventions
    ]
    known = (
        "Subgradients that known systems choose; `--convention SYSTEM` accepts no other:\n\n"
        + table(["kink", "gradient there", "systems"], said)
        if said
        else ""
    )
    return joined(
        "## Kinks",
        "Forward has no derivative here, and several values are right "
        "([background](../../../explanation/kinks.md)).",
        table(["where", "accepted", "reason"], rows),
        known,
    )


def _accepted(spec: OpSpec, kink: Kink) -> str:
    if kink.directional:
        return "values between the one-sided derivatives"
    low, high = kink.slopes(spec.defaults)
    shown = f"the slope {low:g}" if low == high else f"any slope in [{low:g}, {high:g}]"
    return text(shown + (", for the default attributes" if callable(kink.accept) else ""))


def _mutants(spec: OpSpec) -> str:
    found = mutants().get(spec.name, ())
    if not found:
        return ""
    rows = [
        [
            code(mutant.name),
            link(LABELS[mutant.label].word, f"../../defects.md#{LABELS[mutant.label].word}"),
            text(mutant.says)
            + (f" *After {text(mutant.modelled_on)}.*" if mutant.modelled_on else ""),
            code(mutant.killer) if mutant.killer else f"equivalent: {text(mutant.equivalent)}",
        ]
        for mutant in found
    ]
    return joined(
        "## Wrong answers that it rejects",
        f"{len(found)} wrong backward passes (mutants), each with one mistake, besides those of "
        "the self-check ([background](../../../explanation/certificates.md)). "
        f"`gradcheck power --op {spec.name}` judges them all.",
        table(["mutant", "class", "mistake", "rejected by"], rows),
    )


def _slack(spec: OpSpec) -> str:
    if spec.slack is None:
        return ""
    return joined(
        "## Tolerance",
        f"Larger than [the ordinary one](../../../explanation/judgement.md#the-bound) by "
        f"{spec.slack.ulp:g} ulp of Σ|ct·J|: {text(spec.slack.because)}",
    )


def _own(spec: OpSpec) -> str:
    required = [p for p in spec.primals if p not in spec.optional]
    primals = ", ".join([*required, *(f"{p}=None" for p in spec.optional)])
    attrs = "".join(f", {name}={value!r}" for name, value in spec.defaults.items())
    star = ", *" if spec.defaults else ""
    name = "".join(part.capitalize() for part in spec.name.split("_"))
    grads = ", ".join(f"d{p}" for p in spec.primals)
    body = f"""\
        class {name}:
            @staticmethod
            def vjp(ct, {primals}{star}{attrs}):
                ...  # return {grads}

        IMPL = {{"{spec.name}": {name}}}
    """
    return joined(
        block("python", textwrap.dedent(body), title="mykernels.py"),
        block("console", f"gradcheck run --impl mykernels:IMPL --op {spec.name}"),
    )


def _used(spec: OpSpec) -> str:
    found = stages().get(spec.name)
    if not found:
        return ""
    shown = [
        f"{link(name, f'../../models/{name}.md')} ({count} stage{'s' if count > 1 else ''})"
        for name, count in found
    ]
    return joined("## In models", ", ".join(shown) + ".")


def _text_of(spec: OpSpec) -> str:
    """The source of forward and VJP."""
    sources = "\n\n".join(textwrap.dedent(inspect.getsource(f)) for f in (spec.forward, spec.vjp))
    indented = textwrap.indent(block("python", sources), "    ")
    return joined(
        "## Source of the reference",
        "One text for float32, float64 and 50 digits: `xp` is the arithmetic "
        "([its functions](../../namespace.md)).",
        f'??? note "forward and VJP"\n\n{indented}',
    )

"""What a suite holds: the list of its operators, models and rules, and one of them explained."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from gradcheck.judge.compare import (
    ALLOWED_ROUNDINGS,
    CANCELLATION_FACTOR,
    ERROR_BAR_FACTOR,
    TOLERANCES,
)
from gradcheck.report.page import WIDTH, attributes, section, wrapped, wrapped_table
from gradcheck.results.words import plural
from gradcheck.spec.case_selection import SelectedCases
from gradcheck.spec.model import ModelCase, ModelSpec, Size
from gradcheck.spec.operator import Array, Dialect, Kink, OpSpec, Sample
from gradcheck.spec.program import Program, Stage
from gradcheck.spec.rule import RuleCase, RuleSpec, Steps
from gradcheck.spec.suite import Case, Suite, index_primals

VARIANTS: Final = "variants (`--dialect`)"
SAMPLES: Final = "samples, and what each is designed to catch"
SIZES: Final = "sizes, and what each is designed to catch"
AnyCase = TypeVar("AnyCase", Case, ModelCase, RuleCase)


def as_table(suite: Suite, chosen: SelectedCases, width: int | None = None) -> str:
    """Operators (family, variants, primals, number of samples), then models, then rules.

    Of at most `width` columns; None: a line each, however long.
    """
    parts = []
    counts = []
    if chosen.operators or not chosen:
        parts.append(_operators(chosen.operators, width))
        counts.append(_counted(chosen.operators, "operator", "sample"))
    if chosen.models:
        parts.append(_models(chosen.models, width))
        counts.append(_counted(chosen.models, "model", "size"))
    if chosen.rules:
        parts.append(_rules(chosen.rules, width))
        counts.append(_counted(chosen.rules, "rule", "sample"))
    lead = f"suite {suite.name} {suite.version}: "
    text = lead + f"\n{' ' * len(lead)}".join(counts)
    if width is not None and max(map(len, text.splitlines())) > width:
        text = "\n".join(
            [lead.strip(), *(line for c in counts for line in wrapped(c, width, "  "))]
        )
    parts.append(text)
    return "\n\n".join(parts)


def _counted(cases: Sequence[AnyCase], kind: str, sample: str) -> str:
    names = {case.spec.name for case in cases}
    counts = f"{plural(len(names), kind)}, {plural(len(cases), 'case')}"
    return f"{counts} ({kind} × variant × {sample})"


def _operators(cases: Sequence[Case], width: int | None) -> str:
    body = []
    for of_one in _grouped(cases):
        op = of_one[0].spec
        used = {case.dialect.name for case in of_one}
        dialects = ", ".join(d.name for d in op.dialects if d.name in used)
        samples = {case.sample.name for case in of_one}
        body.append([op.name, op.family, ", ".join(op.primals), dialects, len(samples)])
    heads = ["operator", "family", "primals", "variants", "samples"]
    align = ("left",) * 4 + ("right",)
    return wrapped_table(heads, body, width, align, spare=("family", "primals"))


def _models(cases: Sequence[ModelCase], width: int | None) -> str:
    """Parameters and stages are counted at the first of a model's sizes."""
    body = []
    for of_one in _grouped(cases):
        program = of_one[0].program
        sizes = dict.fromkeys(case.size.name for case in of_one)
        counts = [len(program.params), len(program.stages)]
        body.append([of_one[0].spec.name, _dialects(of_one), ", ".join(sizes), *counts])
    heads = ["model", "variants", "sizes", "parameters", "stages"]
    align = ("left",) * 3 + ("right",) * 2
    return wrapped_table(heads, body, width, align, spare=("stages",))


def _rules(cases: Sequence[RuleCase], width: int | None) -> str:
    body = []
    for of_one in _grouped(cases):
        spec, samples = of_one[0].spec, {case.sample.name for case in of_one}
        body.append([spec.name, ", ".join(spec.defaults), _dialects(of_one), len(samples)])
    heads = ["rule", "hyper-parameters", "variants", "samples"]
    return wrapped_table(heads, body, width, ("left",) * 3 + ("right",))


def _dialects(cases: Sequence[ModelCase] | Sequence[RuleCase]) -> str:
    return ", ".join(dict.fromkeys(case.dialect.name for case in cases))


def as_json(suite: Suite, chosen: SelectedCases) -> str:
    """The same as JSON, with every sample and what it is designed to catch."""
    document = {
        "suite": suite.name,
        "version": suite.version,
        "operators": [_operator_data(found) for found in _grouped(chosen.operators)],
        "models": [_model_data(found) for found in _grouped(chosen.models)],
        "rules": [_rule_data(found) for found in _grouped(chosen.rules)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _operator_data(cases: Sequence[Case]) -> dict[str, Any]:
    op = cases[0].spec
    return {
        "name": op.name,
        "family": op.family,
        "signature": op.signature,
        "formula": op.formula,
        "source": op.source,
        "primals": list(op.primals),
        "dialects": {d.name: d.says for d in op.dialects},
        "kinks": {
            kink.name: {c.name: list(c.systems) for c in kink.conventions} for kink in op.kinks
        },
        "cases": [_case_data(case, "sample", case.sample) for case in cases],
    }


def _model_data(cases: Sequence[ModelCase]) -> dict[str, Any]:
    spec, program = cases[0].spec, cases[0].program
    return {
        "name": spec.name,
        "says": spec.says,
        "source": spec.source,
        "dimensions": dict(spec.defaults),
        "dialects": {dialect.name: dialect.says for dialect in spec.dialects},
        "parameters": list(program.params),
        "inputs": list(program.inputs),
        "stages": [
            {
                "name": stage.name,
                "op": stage.op.name,
                "attrs": dict(stage.attrs),
                "reads": list(stage.reads),
                "writes": list(stage.outputs),
            }
            for stage in program.stages
        ],
        "cases": [_case_data(case, "size", case.size) for case in cases],
    }


def _rule_data(cases: Sequence[RuleCase]) -> dict[str, Any]:
    spec = cases[0].spec
    return {
        "name": spec.name,
        "formula": spec.formula,
        "source": spec.source,
        "hyper_parameters": dict(spec.defaults),
        "dialects": {dialect.name: dialect.says for dialect in spec.dialects},
        "cases": [_case_data(case, "sample", case.sample) for case in cases],
    }


def _case_data(
    case: Case | ModelCase | RuleCase, noun: str, sample: Sample | Size | Steps
) -> dict[str, str]:
    return {
        "name": case.name,
        "dialect": case.dialect.name,
        noun: sample.name,
        "hunts": sample.hunts,
    }


def explain(suite: Suite, name: str, width: int = WIDTH) -> str:
    """Everything that a check of one operator, model or rule consists of, as text."""
    if name in suite.rules:
        parts = _explained_rule(suite.rules[name], width)
    elif name in suite.models:
        parts = _explained_model(suite, suite.models[name], width)
    else:
        parts = _explained_operator(suite, suite.operators[name], width)
    return "\n\n".join(parts)


def _explained_operator(suite: Suite, op: OpSpec, width: int) -> list[str]:
    parts = [
        _title(f"{op.name}: {op.signature}", op.formula, op.source, op.forward, width),
        _definitions(op, index_primals(op, suite), width),
        section("primals", [(p, "optional" if p in op.optional else "") for p in op.primals]),
        section(VARIANTS, [(d.name, _dialect(op, d)) for d in op.dialects], width),
    ]
    if op.kinks:
        parts.append(section("kinks", [(k.name, _kink(op, k)) for k in op.kinks], width))
    if any(kink.conventions for kink in op.kinks):
        parts.append(_conventions(op, width))
    samples = [(s.name, _sample(s, s.dialects)) for s in op.samples]
    parts.append(section(SAMPLES, samples, width))
    return [*parts, section("tolerances", _bounds(op), width)]


def _title(lead: str, formula: str, source: str, defined: Callable[..., Any], width: int) -> str:
    """A spec's name, formula, source and module."""
    texts = [lead, formula, f"source: {source}", f"defined in {defined.__module__}"]
    return "\n".join(line for text in texts for line in wrapped(text, width, "", "  "))


def _definitions(op: OpSpec, indices: Collection[str], width: int) -> str:
    """The functions of an implementation, as lines to paste."""
    lines = ["signatures to paste (forward is optional)"]
    gives = {
        "forward": "the output" if op.outputs == 1 else f"a tuple of {op.outputs} outputs",
        "vjp": gradients_of(op, indices),
    }
    for role, what in gives.items():
        lines += wrapped(op.definition(role), width, "  ", " " * 6)
        lines += wrapped(f"# returns {what}", width, " " * 6, " " * 6 + "# ")
    return "\n".join(lines)


def gradients_of(op: OpSpec, indices: Collection[str]) -> str:
    """What a vjp returns: "dx, None for rows"; the primals `indices` have no gradient."""
    texts = []
    for without in dict.fromkeys([(), *(dialect.without for dialect in op.dialects)]):
        kept = [p for p in op.primals if p not in without]
        names = ", ".join(f"None for {p}" if p in indices else f"d{p}" for p in kept)
        texts.append(f"{names} without {' and '.join(without)}" if without else names)
    return "; ".join(texts)


def _explained_model(suite: Suite, model: ModelSpec, width: int) -> list[str]:
    """A model is built at its first size."""
    home = suite.home[model.name]
    case = ModelCase(model, model.dialects[0], model.sizes[0], 0, home)
    program, at = case.program, f"at size {case.size.name}"
    parts = [_title(f"{model.name}: {model.says}", "", model.source, model.build, width)]
    if model.defaults:
        parts.append(_defaults("dimensions, and their defaults", model.defaults, width))
    parts += [
        _merged_dialects(model.dialects, width),
        section(SIZES, [(s.name, _sample(s)) for s in model.sizes], width),
        section(
            f"{plural(len(program.params), 'parameter')}, with shapes {at}",
            [(n, _parameter(n, array, program)) for n, array in case.params.items()],
            width,
        ),
    ]
    if program.inputs:
        inputs = [(n, _input(array)) for n, array in case.inputs.items()]
        parts.append(section(f"inputs {at}: data, without gradients", inputs, width))
    stages = [(stage.name, stage_line(stage)) for stage in program.stages]
    title = f"{plural(len(stages), 'stage')} {at}; the loss is {program.loss}"
    return [*parts, section(title, stages, width)]


def _explained_rule(rule: RuleSpec, width: int) -> list[str]:
    gives = "parameters" if rule.gives == "params" else "gradients"
    lead = f"{rule.name}: gives new {gives}"
    parts = [_title(lead, rule.formula, rule.source, rule.update, width)]
    if rule.defaults:
        parts.append(_defaults("hyper-parameters, and their defaults", rule.defaults, width))
    samples = [(s.name, _sample(s, s.dialects, [_steps(s)])) for s in rule.samples]
    return [
        *parts,
        _merged_dialects(rule.dialects, width),
        section(SAMPLES, samples, width),
    ]


def _defaults(title: str, values: Mapping[str, Any], width: int) -> str:
    return section(title, [(name, repr(value)) for name, value in values.items()], width)


def _merged_dialects(dialects: Iterable[Dialect], width: int) -> str:
    entries = [
        (d.name, f"{d.says} ({attributes(d.attrs)})" if d.attrs else d.says) for d in dialects
    ]
    return section(VARIANTS, entries, width)


def stage_line(stage: Stage) -> str:
    """One stage as the line of a program: `y = op(x, w, axis=-1)`."""
    arguments = ", ".join([*stage.reads, *filter(None, [attributes(stage.attrs)])])
    return f"{', '.join(stage.outputs)} = {stage.op.name}({arguments})"


def _grouped(cases: Sequence[AnyCase]) -> list[list[AnyCase]]:
    groups: dict[str, list[AnyCase]] = {}
    for case in cases:
        groups.setdefault(case.spec.name, []).append(case)
    return list(groups.values())


def _dialect(op: OpSpec, dialect: Dialect) -> str:
    merged = attributes({**op.defaults, **dialect.attrs})
    lacks = f"; without {', '.join(dialect.without)}" if dialect.without else ""
    return f"{dialect.says}{f' ({merged})' if merged else ''}{lacks}"


def _sample(
    sample: Sample | Size | Steps, dialects: Sequence[str] = (), lead: Sequence[str] = ()
) -> str:
    extra = [*lead, *filter(None, [attributes(sample.attrs)])]
    extra += ["at a kink"] if getattr(sample, "at_kink", False) else []
    extra += [f"only {', '.join(dialects)}"] if dialects else []
    return sample.hunts + (f" [{'; '.join(extra)}]" if extra else "")


def _steps(sample: Steps) -> str:
    last = sample.first + sample.count - 1
    return f"steps {sample.first} to {last}" if sample.count > 1 else f"step {sample.first}"


def _kink(op: OpSpec, kink: Kink) -> str:
    if kink.directional:
        return f"any value between the one-sided derivatives is accepted there: {kink.source}"
    low, high = kink.slopes(op.defaults)
    shown = f"the slope {low:g}" if low == high else f"any slope in [{low:g}, {high:g}]"
    varies = ", for the default attributes" if callable(kink.accept) else ""
    return f"{shown} is accepted there{varies}: {kink.source}"


def _conventions(op: OpSpec, width: int) -> str:
    rows = [
        [kink.name if i == 0 else "", convention.name, ", ".join(convention.systems)]
        for kink in op.kinks
        for i, convention in enumerate(kink.conventions)
    ]
    table = wrapped_table(["kink", "gradient there", "systems"], rows, width - 2)
    return "subgradients chosen at kinks (`--convention`)\n" + textwrap.indent(table, "  ")


def _parameter(name: str, array: Array, program: Program) -> str:
    readers = [stage.name for stage in program.readers[name]]
    tied = f", tied: read by {' and '.join(readers)}" if name in program.tied else ""
    return f"{_shape(array)}{tied}"


def _input(array: Array) -> str:
    return f"{_shape(array)} of {'indices' if array.dtype.kind in 'iu' else 'numbers'}"


def _shape(array: Array) -> str:
    return f"[{', '.join(map(str, array.shape))}]"


def _bounds(op: OpSpec) -> list[tuple[str, str]]:
    entries = [
        (
            rules.dtype,
            f"|a − d| ≤ {rules.rtol:g}·max(|a|, |d|) + "
            f"({rules.rtol / CANCELLATION_FACTOR:g} + {ALLOWED_ROUNDINGS:g}·u·√terms)·Σ|ct·J| + "
            f"what rounding costs the formula; u = {rules.u:.3g}; "
            f"plus {ERROR_BAR_FACTOR:g} times the uncertainty of d",
        )
        for rules in TOLERANCES.values()
    ]
    if op.slack is not None:
        entries.append(("wider", f"by {op.slack.ulp:g} ulp: {op.slack.because}"))
    return entries

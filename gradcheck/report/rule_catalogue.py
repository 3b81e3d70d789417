"""What a suite knows of its update rules: their list, and one rule explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradcheck.report.page import wrapped_table
from gradcheck.report.sections import WIDTH, attributes, section, wrapped
from gradcheck.spec.rule import RuleCase, RuleSpec, Steps
from gradcheck.spec.suite import Suite


def table(cases: Sequence[RuleCase], width: int | None = None) -> str:
    """The rules among `cases`: dialects, hyper-parameters, number of samples."""
    body = []
    for spec, found in _grouped(cases):
        dialects = dict.fromkeys(case.dialect.name for case in found)
        samples = {case.sample.name for case in found}
        body.append([spec.name, ", ".join(spec.defaults), ", ".join(dialects), len(samples)])
    heads = ["rule", "hyper-parameters", "dialects", "samples"]
    return wrapped_table(heads, body, width, ("left",) * 3 + ("right",))


def as_data(cases: Sequence[RuleCase]) -> list[dict[str, Any]]:
    """The same as plain data, with every sample and what it hunts."""
    return [
        {
            "name": spec.name,
            "formula": spec.formula,
            "source": spec.source,
            "hyper_parameters": dict(spec.defaults),
            "dialects": {dialect.name: dialect.says for dialect in spec.dialects},
            "cases": [
                {
                    "name": case.name,
                    "dialect": case.dialect.name,
                    "sample": case.sample.name,
                    "hunts": case.sample.hunts,
                }
                for case in found
            ],
        }
        for spec, found in _grouped(cases)
    ]


def explain(suite: Suite, name: str, width: int = WIDTH) -> str:
    """Everything that a check of one update rule consists of, as text."""
    rule = suite.rules[name]
    parts = [
        "\n".join(
            [
                f"{name}: gives new {'parameters' if rule.gives == 'params' else 'gradients'}",
                rule.formula,
                *wrapped(f"source: {rule.source}", width, "", "  "),
                f"defined in {rule.update.__module__}",
            ]
        ),
        section(
            "dialects", [(d.name, _with(d.says, attributes(d.attrs))) for d in rule.dialects], width
        ),
        section(
            "samples, and what each hunts", [(s.name, _sample(s)) for s in rule.samples], width
        ),
    ]
    if rule.defaults:
        values = [(n, repr(value)) for n, value in rule.defaults.items()]
        parts.insert(1, section("hyper-parameters, and their defaults", values, width))
    return "\n\n".join(parts)


def _grouped(cases: Sequence[RuleCase]) -> list[tuple[RuleSpec, list[RuleCase]]]:
    groups: dict[str, list[RuleCase]] = {}
    for case in cases:
        groups.setdefault(case.spec.name, []).append(case)
    return [(found[0].spec, found) for found in groups.values()]


def _with(text: str, extra: str) -> str:
    return f"{text} ({extra})" if extra else text


def _sample(sample: Steps) -> str:
    last = sample.first + sample.count - 1
    steps = f"steps {sample.first} to {last}" if sample.count > 1 else f"step {sample.first}"
    extra = [steps, *filter(None, [attributes(sample.attrs)])]
    extra += [f"only {', '.join(sample.dialects)}"] if sample.dialects else []
    return f"{sample.hunts} [{'; '.join(extra)}]"

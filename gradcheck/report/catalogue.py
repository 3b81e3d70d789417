"""What a suite holds: the list of its operators, models and rules, and one of them explained."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence

from gradcheck.judge.compare import CANCELLED, KAPPA, ROUNDINGS, RULES
from gradcheck.report import model_catalogue, rule_catalogue
from gradcheck.report.page import wrapped_table
from gradcheck.report.sections import WIDTH, attributes, section, wrapped
from gradcheck.spec.choice import Chosen
from gradcheck.spec.operator import Kink, OpSpec, Sample
from gradcheck.spec.suite import Case, Suite


def as_table(suite: Suite, chosen: Chosen, width: int | None = None) -> str:
    """Operators (family, dialects, primals, number of samples), then models, then rules.

    Of at most `width` columns; None: a line each, however long.
    """
    parts = []
    counts = []
    if chosen.operators or not chosen:
        grouped = _grouped(chosen.operators)
        parts.append(_operators(suite, grouped, width))
        cases = f"{len(chosen.operators)} cases (operator × dialect × sample)"
        counts.append(f"{len(grouped)} operators, {cases}")
    if chosen.models:
        parts.append(model_catalogue.table(chosen.models, width))
        names = {case.spec.name for case in chosen.models}
        counts.append(f"{len(names)} models, {len(chosen.models)} cases (model × dialect × size)")
    if chosen.rules:
        parts.append(rule_catalogue.table(chosen.rules, width))
        names = {case.spec.name for case in chosen.rules}
        counts.append(f"{len(names)} rules, {len(chosen.rules)} cases (rule × dialect × sample)")
    lead = f"suite {suite.name} {suite.version}: "
    text = lead + f"\n{' ' * len(lead)}".join(counts)
    if width is not None and max(map(len, text.splitlines())) > width:
        text = "\n".join(
            [lead.strip(), *(line for c in counts for line in wrapped(c, width, "  "))]
        )
    parts.append(text)
    return "\n\n".join(parts)


def _operators(
    suite: Suite, grouped: Mapping[str, Sequence[tuple[str, str]]], width: int | None
) -> str:
    body = []
    for spec, samples in grouped.items():
        op = suite.operators[spec]
        dialects = sorted({d for d, _ in samples}, key=[d.name for d in op.dialects].index)
        names = {s for _, s in samples}
        body.append([op.name, op.family, ", ".join(op.primals), ", ".join(dialects), len(names)])
    heads = ["operator", "family", "primals", "dialects", "samples"]
    align = ("left",) * 4 + ("right",)
    return wrapped_table(heads, body, width, align, spare=("family", "primals"))


def as_json(suite: Suite, chosen: Chosen) -> str:
    """The same as JSON, with every sample and what it hunts."""
    operators = []
    for name, samples in _grouped(chosen.operators).items():
        op = suite.operators[name]
        hunts = {s.name: s.hunts for s in op.samples}
        operators.append(
            {
                "name": op.name,
                "family": op.family,
                "signature": op.signature,
                "formula": op.formula,
                "source": op.source,
                "primals": list(op.primals),
                "dialects": {d.name: d.says for d in op.dialects},
                "kinks": {
                    kink.name: {c.name: list(c.systems) for c in kink.conventions}
                    for kink in op.kinks
                },
                "cases": [
                    {"name": f"{name}/{d}/{s}", "dialect": d, "sample": s, "hunts": hunts[s]}
                    for d, s in samples
                ],
            }
        )
    document = {
        "suite": suite.name,
        "version": suite.version,
        "operators": operators,
        "models": model_catalogue.as_data(chosen.models),
        "rules": rule_catalogue.as_data(chosen.rules),
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def explain(suite: Suite, name: str, width: int = WIDTH) -> str:
    """Everything that a check of one operator, model or rule consists of, as text."""
    if name in suite.rules:
        return rule_catalogue.explain(suite, name, width)
    if name in suite.models:
        return model_catalogue.explain(suite, name, width)
    op = suite.operators[name]
    parts = [
        "\n".join(
            [
                f"{op.name}: {op.signature}",
                op.formula,
                *wrapped(f"source: {op.source}", width, "", "  "),
                f"defined in {op.forward.__module__}",
            ]
        ),
        section("primals", [(p, "optional" if p in op.optional else "") for p in op.primals]),
        section("dialects", [(d.name, _dialect(op, d.name)) for d in op.dialects], width),
        section("samples, and what each hunts", [(s.name, _sample(s)) for s in op.samples], width),
    ]
    if op.kinks:
        parts.insert(3, section("kinks", [(k.name, _kink(op, k)) for k in op.kinks], width))
        if any(kink.conventions for kink in op.kinks):
            parts.insert(4, _conventions(op, width))
    parts.append(section("bounds", _bounds(op), width))
    return "\n\n".join(parts)


def _grouped(cases: Sequence[Case]) -> dict[str, list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for case in cases:
        groups.setdefault(case.spec.name, []).append((case.dialect.name, case.sample.name))
    return groups


def _dialect(op: OpSpec, name: str) -> str:
    dialect = op.dialect(name)
    merged = attributes({**op.defaults, **dialect.attrs})
    lacks = f"; without {', '.join(dialect.without)}" if dialect.without else ""
    return f"{dialect.says}{f' ({merged})' if merged else ''}{lacks}"


def _sample(sample: Sample) -> str:
    extra = [attributes(sample.attrs)] if sample.attrs else []
    extra += ["at a kink"] if sample.at_kink else []
    extra += [f"only {', '.join(sample.dialects)}"] if sample.dialects else []
    return sample.hunts + (f" [{'; '.join(extra)}]" if extra else "")


def _kink(op: OpSpec, kink: Kink) -> str:
    if kink.directional:
        return f"what lies between the one-sided derivatives is accepted on it: {kink.source}"
    low, high = kink.slopes(op.defaults)
    shown = f"the slope {low:g}" if low == high else f"any slope in [{low:g}, {high:g}]"
    varies = ", for the default attributes" if callable(kink.accept) else ""
    return f"{shown} is accepted on it{varies}: {kink.source}"


def _conventions(op: OpSpec, width: int) -> str:
    """The table of what known systems return on the operator's kinks."""
    rows = [
        [kink.name if i == 0 else "", convention.name, ", ".join(convention.systems)]
        for kink in op.kinks
        for i, convention in enumerate(kink.conventions)
    ]
    table = wrapped_table(["kink", "gradient there", "systems"], rows, width - 2)
    return "conventions on kinks\n" + textwrap.indent(table, "  ")


def _bounds(op: OpSpec) -> list[tuple[str, str]]:
    entries = [
        (
            rules.dtype,
            f"|a − d| ≤ {rules.rtol:g}·max(|a|, |d|) + "
            f"({rules.rtol / CANCELLED:g} + {ROUNDINGS:g}·u·√terms)·Σ|ct·J| + what rounding costs "
            f"the formula; u = {rules.u:.3g}; the error bar of d counts {KAPPA:g} times",
        )
        for rules in RULES.values()
    ]
    if op.slack is not None:
        entries.append(("slack", f"{op.slack.ulp:g} ulp more: {op.slack.because}"))
    return entries

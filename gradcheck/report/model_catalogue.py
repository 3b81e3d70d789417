"""What a suite knows of its models: their list, and one model explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradcheck.report.page import wrapped_table
from gradcheck.report.sections import WIDTH, attributes, section, wrapped
from gradcheck.spec.model import ModelCase, Size
from gradcheck.spec.operator import Array
from gradcheck.spec.program import Program, Stage
from gradcheck.spec.suite import Suite


def table(cases: Sequence[ModelCase], width: int | None = None) -> str:
    """The models among `cases`; parameters and stages are counted at the first of their sizes."""
    body = []
    for name, found in _grouped(cases).items():
        program = found[0].program
        dialects = dict.fromkeys(case.dialect.name for case in found)
        sizes = dict.fromkeys(case.size.name for case in found)
        counts = [len(program.params), len(program.stages)]
        body.append([name, ", ".join(dialects), ", ".join(sizes), *counts])
    heads = ["model", "dialects", "sizes", "parameters", "stages"]
    align = ("left",) * 3 + ("right",) * 2
    return wrapped_table(heads, body, width, align, spare=("stages",))


def as_data(cases: Sequence[ModelCase]) -> list[dict[str, Any]]:
    """The same as plain data, with every parameter, every stage and every size's purpose."""
    models = []
    for name, found in _grouped(cases).items():
        spec, program = found[0].spec, found[0].program
        models.append(
            {
                "name": name,
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
                "cases": [
                    {
                        "name": case.name,
                        "dialect": case.dialect.name,
                        "size": case.size.name,
                        "hunts": case.size.hunts,
                    }
                    for case in found
                ],
            }
        )
    return models


def explain(suite: Suite, name: str, width: int = WIDTH) -> str:
    """Everything that a check of one model consists of, as text; it is built at its first size."""
    model = suite.models[name]
    case = ModelCase(model, model.dialects[0], model.sizes[0], 0, suite.home[name])
    program, at = case.program, f"at size {case.size.name}"
    parts = [
        "\n".join(
            [
                *wrapped(f"{name}: {model.says}", width),
                *wrapped(f"source: {model.source}", width),
                f"defined in {model.build.__module__}",
            ]
        ),
        section(
            "dialects",
            [(d.name, _with(d.says, attributes(d.attrs))) for d in model.dialects],
            width,
        ),
        section("sizes, and what each hunts", [(s.name, _size(s)) for s in model.sizes], width),
        section(
            f"{len(program.params)} parameters, their shapes {at}",
            [(n, _parameter(n, array, program)) for n, array in case.params.items()],
            width,
        ),
    ]
    if model.defaults:
        dimensions = [(n, repr(value)) for n, value in model.defaults.items()]
        parts.insert(1, section("dimensions, and their defaults", dimensions, width))
    if program.inputs:
        inputs = [(n, _input(array)) for n, array in case.inputs.items()]
        parts.append(section(f"inputs {at}: data, never perturbed", inputs, width))
    stages = [(stage.name, line(stage)) for stage in program.stages]
    parts.append(section(f"{len(stages)} stages {at}; the loss is {program.loss}", stages, width))
    return "\n\n".join(parts)


def line(stage: Stage) -> str:
    """One stage as the line of a program: `y = op(x, w, axis=-1)`."""
    arguments = ", ".join([*stage.reads, *filter(None, [attributes(stage.attrs)])])
    return f"{', '.join(stage.outputs)} = {stage.op.name}({arguments})"


def _grouped(cases: Sequence[ModelCase]) -> dict[str, list[ModelCase]]:
    groups: dict[str, list[ModelCase]] = {}
    for case in cases:
        groups.setdefault(case.spec.name, []).append(case)
    return groups


def _with(text: str, extra: str) -> str:
    return f"{text} ({extra})" if extra else text


def _size(size: Size) -> str:
    extra = [*filter(None, [attributes(size.attrs)]), *(["at a kink"] if size.at_kink else [])]
    return size.hunts + (f" [{'; '.join(extra)}]" if extra else "")


def _parameter(name: str, array: Array, program: Program) -> str:
    readers = [stage.name for stage in program.readers[name]]
    tied = f", tied: read by {' and '.join(readers)}" if name in program.tied else ""
    return f"{_shape(array)}{tied}"


def _input(array: Array) -> str:
    return f"{_shape(array)} of {'indices' if array.dtype.kind in 'iu' else 'numbers'}"


def _shape(array: Array) -> str:
    return f"[{', '.join(map(str, array.shape))}]"

"""A page per model, and one per update rule, from their specs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gradcheck_cases import SUITE
from gradcheck_cases.faults import FAULTS
from gradcheck_cases.mutants.optimizer import RULE_MUTANTS

from _pages.operators import path_of
from _pages.text import attributes, block, code, front, joined, link, table, text
from gradcheck.report.catalogue import stage_line
from gradcheck.spec.model import ModelCase, ModelSpec
from gradcheck.spec.program import Stage
from gradcheck.spec.rule import RuleSpec

MODELS: Final = "reference/models"
RULES: Final = "reference/rules"


def pages() -> Iterator[tuple[str, str]]:
    """Each page's path and Markdown."""
    yield f"{MODELS}/index.md", _models()
    for model in SUITE.models.values():
        yield f"{MODELS}/{model.name}.md", _model(model)
    yield f"{RULES}/index.md", _rules()
    for rule in SUITE.rules.values():
        yield f"{RULES}/{rule.name}.md", _rule(rule)


def navigation(home: str) -> list[object]:
    """The models' part of the navigation, or the update rules'."""
    names = SUITE.models if home == MODELS else SUITE.rules
    return [f"{home}/index.md", *({name: f"{home}/{name}.md"} for name in names)]


def _models() -> str:
    rows = []
    for model in SUITE.models.values():
        program = model.build()
        planted = sum(fault.model == model.name for fault in FAULTS)
        counts = [len(program.params), len(program.stages), planted]
        rows.append(
            [link(code(model.name), f"{model.name}.md"), text(model.says), *map(str, counts)]
        )
    lead = (
        f"Whole models, as programs of the suite's [operators](../operators/index.md). Each is "
        f"judged gradient by gradient and stage by stage, in 50 digits, float64 and float32; "
        f"{len(FAULTS)} planted faults test that the faulty stage is found. Bind your own: "
        "[a whole model](../../guides/model.md)."
    )
    heads = ["model", "definition", "parameters", "stages", "planted faults"]
    return joined(
        front("Models", "The whole models of the built-in suite"),
        "# Models",
        lead,
        block("console", "gradcheck run --model '*'"),
        table(heads, rows, right=(2, 3, 4)),
    )


def _model(model: ModelSpec) -> str:
    size = model.sizes[0]
    case = ModelCase(model, model.dialects[0], size, 0, SUITE.home[model.name])
    program = case.program
    shapes = {**case.params, **case.inputs}
    params = [[code(name), _shape(shapes[name]), _tied(program, name)] for name in program.params]
    inputs = [
        [
            code(name),
            _shape(shapes[name]),
            "indices" if shapes[name].dtype.kind in "iu" else "numbers",
        ]
        for name in program.inputs
    ]
    stages = [[code(stage.name), _op(stage), code(stage_line(stage))] for stage in program.stages]
    dialects = [[code(d.name), text(d.says), attributes(d.attrs)] for d in model.dialects]
    sizes = [
        [code(s.name), text(s.hunts), attributes(s.attrs) + (" on a kink" if s.at_kink else "")]
        for s in model.sizes
    ]
    return joined(
        front(model.name, f"The model {model.name}: {model.says}"),
        f"# {code(model.name)}",
        text(model.says) + ".",
        f"**Source**: {text(model.source)}. **Defined in** `{model.build.__module__}`.",
        block("console", f"gradcheck run --model {model.name}"),
        "## Dimensions" if model.defaults else "",
        table(
            ["dimension", "default"], [[code(n), code(repr(v))] for n, v in model.defaults.items()]
        )
        if model.defaults
        else "",
        "## Variants" if len(dialects) > 1 else "",
        table(["variant", "definition", "attributes"], dialects) if len(dialects) > 1 else "",
        "## Sizes",
        table(["size", "designed to catch", "dimensions"], sizes),
        f"## {len(params)} parameters",
        f"Shapes at size {code(size.name)}. `gradients` returns a dict with these names.",
        table(["parameter", "shape", "note"], params),
        "## Inputs" if inputs else "",
        table(["input", "shape", "of"], inputs) if inputs else "",
        f"## {len(stages)} stages",
        f"At size {code(size.name)}, in the order of forward; the loss is {code(program.loss)}. "
        "Backward is the fold of the operators' VJPs, from the last to the first.",
        table(["stage", "operator", "line"], stages),
        _faults(model.name),
    )


def _shape(array: Any) -> str:
    return "×".join(map(str, array.shape)) or "()"


def _tied(program: Any, name: str) -> str:
    if name not in program.tied:
        return ""
    return "tied: read by " + " and ".join(code(stage.name) for stage in program.readers[name])


def _op(stage: Stage) -> str:
    return link(code(stage.op.name), f"../../{path_of(stage.op.name)}")


def _faults(name: str) -> str:
    rows = [
        [
            code(fault.name),
            text(fault.kind),
            text(fault.says)
            + (f" *After {text(fault.modelled_on)}.*" if fault.modelled_on else ""),
            ", ".join(code(stage) for stage in fault.stages),
        ]
        for fault in FAULTS
        if fault.model == name
    ]
    if not rows:
        return ""
    return joined(
        "## Planted faults",
        f"{len(rows)} wrong backward passes of this model. `gradcheck power --model {name}` "
        "tests that each is found, with its stage.",
        table(["fault", "kind", "mistake", "stages"], rows),
    )


def _rules() -> str:
    rows = [
        [
            link(code(rule.name), f"{rule.name}.md"),
            code(rule.formula),
            str(len(rule.samples)),
            str(sum(mutant.rule == rule.name for mutant in RULE_MUTANTS)),
        ]
        for rule in SUITE.rules.values()
    ]
    return joined(
        front("Update rules", "The update rules of the built-in suite"),
        "# Update rules",
        f"Update rules map gradients to new parameters. They are judged step by step against 50 "
        f"digits; {len(RULE_MUTANTS)} wrong updates must be rejected. Bind your own: "
        "[an update rule](../../guides/rules.md).",
        block("console", "gradcheck run --rule '*'"),
        table(["rule", "formula", "samples", "mutants"], rows, right=(2, 3)),
    )


def _rule(rule: RuleSpec) -> str:
    gives = "parameters" if rule.gives == "params" else "gradients"
    samples = [
        [
            code(s.name),
            text(s.hunts),
            f"{s.first}–{s.first + s.count - 1}",
            attributes(s.attrs) + (f" only {', '.join(s.dialects)}" if s.dialects else ""),
        ]
        for s in rule.samples
    ]
    dialects = [[code(d.name), text(d.says), attributes(d.attrs)] for d in rule.dialects]
    wrong = [
        [
            code(m.name),
            text(m.says) + (f" *After {text(m.modelled_on)}.*" if m.modelled_on else ""),
            code(m.killer),
        ]
        for m in RULE_MUTANTS
        if m.rule == rule.name
    ]
    return joined(
        front(rule.name, f"The update rule {rule.name}: formula, samples, mutants"),
        f"# {code(rule.name)}",
        f'<div class="formula plain" data-search-exclude>{text(rule.formula)}</div>',
        f"Returns new {gives}. **Source**: {text(rule.source)}. **Defined in** "
        f"`{rule.update.__module__}`.",
        block("console", f"gradcheck run --rule {rule.name}"),
        "## Hyper-parameters",
        table(["name", "default"], [[code(n), code(repr(v))] for n, v in rule.defaults.items()]),
        "## Variants",
        table(["variant", "definition", "attributes"], dialects),
        "## Samples",
        table(["sample", "designed to catch", "steps", "attributes"], samples),
        "## Wrong updates that it rejects",
        table(["mutant", "mistake", "rejected by"], wrong),
        "## Source of the reference",
        _source(rule),
    )


def _source(rule: RuleSpec) -> str:
    body = textwrap.dedent(inspect.getsource(rule.update))
    return '??? note "update"\n\n' + textwrap.indent(block("python", body), "    ")


def homes() -> Mapping[str, str]:
    """Where each model and each rule has its page."""
    models = {name: f"{MODELS}/{name}.md" for name in SUITE.models}
    return {**models, **{name: f"{RULES}/{name}.md" for name in SUITE.rules}}

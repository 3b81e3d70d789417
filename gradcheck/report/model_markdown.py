"""Models as markdown: a line each, their gradients and stages to unfold, and who is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck.report import model_words, models
from gradcheck.report.marked import cell, code, escape, folded
from gradcheck.results import words
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.report.models import Model
    from gradcheck.results.run import Run


def blocks(run: Run, *, unfold: bool = True) -> Iterator[tuple[str, str]]:
    """Pieces of a page and what each is called where it is left out for size.

    Args:
        run: what happened.
        unfold: also every gradient and stage of each model, to unfold.
    """
    found = models.models(run)
    named = len(run.header.implementations) > 1
    for implementation in dict.fromkeys(model.implementation for model in found):
        theirs = [model for model in found if model.implementation == implementation]
        title = f"\n### {escape(words.clean(implementation))}: models\n" if named else ""
        yield title + _summary(theirs), "model"
        for model in theirs if unfold else ():
            yield _rows(model), "model"
    for sight in models.sights(run):
        whose = f"{escape(words.clean(sight.implementation))} · " if named else ""
        yield (
            f"\nVisible: {whose}{code(sight.case)}: {escape(model_words.sight(sight))}.\n",
            "line",
        )


def _summary(found: list[Model]) -> str:
    dtypes = list(dict.fromkeys(dtype for model in found for dtype in model.dtypes))
    parts = models.counted(found)
    names = ["model", "dialect", *(model_words.COUNTED[part] for part in parts)]
    heads = [*names, *map(code, dtypes), "sizes"]
    lines = ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for model in found:
        line = [
            code(model.name),
            code(model.dialect),
            *(model_words.passed(model.block(part)) for part in parts),
            *(cell(models.whole(model, dtype)) for dtype in dtypes),
            ", ".join(map(code, model.sizes)),
        ]
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join([*lines, ""])


def _rows(model: Model) -> str:
    """Every gradient and stage of one model."""
    name = words.clean(f"{model.name}/{model.dialect}")
    counts = [model_words.block(p, len(model.block(p).rows)) for p in models.counted([model])]
    heads = ["", *map(code, model.dtypes), "elements"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * (len(heads) - 1)}---:|"]
    for row in model.rows:
        line = [
            code(words.subject(row.output, row.part)),
            *(cell(row.cells.get(dtype)) for dtype in model.dtypes),
            f"{row.compared:,}",
        ]
        lines.append(f"| {' | '.join(line)} |")
    trained = [r for row in model.block(Part.TRAINING).rows for r in models.results(row)]
    told = [r for r in trained if r.finding.verdict is Verdict.PASS and r.finding.reason]
    lines += [""] * bool(told)
    lines += [f"- {code(words.case(r))}: {escape(words.clean(r.finding.reason))}" for r in told]
    return folded(words.word(model.verdict), f"{name}: {', '.join(counts)}", lines)


def blame(run: Run) -> Iterator[str]:
    """Who is to blame for what, round by round."""
    named = len({result.case.implementation for result in run.results}) > 1
    for blamed in models.blamed(run):
        whose = f"{escape(words.clean(blamed.implementation))} · " if named else ""
        name = code(f"{blamed.name}/{blamed.dialect}")
        lines = [f"\nBlame: {whose}{name} ({escape(words.clean(blamed.where))})\n"]
        for found in blamed.blames:
            lines.append(f"- round {found.round}: {escape(model_words.accusation(found))}")
            lines += [f"  - {escape(text)}" for text in model_words.said(found)]
        lines += [f"- assumption: {escape(t)}" for t in model_words.assumptions(blamed.blames)]
        yield "\n".join([*lines, ""])

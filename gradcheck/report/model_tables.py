"""Models on a terminal: a line or a table each, what their checks can see, and who is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text, models
from gradcheck.report.page import Page, clip, grid, span
from gradcheck.results import words
from gradcheck.results.finding import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck.report.models import Blamed, Block, Model, Sight
    from gradcheck.report.outline import Cell, Row
    from gradcheck.results.run import Run

MAX_FAILING: Final = 8
"""Failing rows of a long table that are shown of each part."""
LONGEST: Final = 250
"""Rows of failing models that are shown where several models were judged."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a table shows; each step down gives up the least important thing left."""

    want: bool = False
    where: bool = True
    bounds: bool = True
    certified: bool = True
    errors: bool = True
    name: int = 10_000


LAYOUTS: Final = (
    _Layout(want=True),
    _Layout(),
    _Layout(certified=False),
    _Layout(certified=False, name=20),
    _Layout(certified=False, bounds=False),
    _Layout(certified=False, bounds=False, name=20),
    _Layout(certified=False, bounds=False, where=False),
    _Layout(certified=False, bounds=False, where=False, name=16),
    _Layout(errors=False, where=False),
    _Layout(errors=False, where=False, name=10),
)


def sections(page: Page, run: Run, *, everything: bool) -> Iterator[list[str]]:
    """Per implementation a table of a single model, or a line per model and tables of failures.

    Unless `everything` is shown, long tables of failing models have the first rows that fail.
    """
    found = models.models(run)
    named = len(run.header.implementations) > 1
    for implementation in dict.fromkeys(model.implementation for model in found):
        title = page.wrap(words.clean(implementation)) if named else []
        theirs = [model for model in found if model.implementation == implementation]
        if len({model.name for model in theirs}) == 1:
            for model in theirs:
                yield title + table(page, model, everything=everything)
            continue
        yield title + summary(page, theirs)
        yield from _failing(page, theirs, everything)
    if found:
        yield _sights(page, run, named, alone=len({model.name for model in found}) == 1)


def _failing(page: Page, found: list[Model], everything: bool) -> Iterator[list[str]]:
    room = LONGEST
    left = []
    for model in (m for m in found if not m.verdict.expected):
        room -= len(model.rows)
        if room < 0:
            left.append(words.clean(model.name))
            continue
        yield table(page, model, everything=everything)
    if left:
        yield page.wrap(f"{', '.join(left)}: --model NAME or -o report.html shows every row.")


def summary(page: Page, found: Sequence[Model]) -> list[str]:
    """A line per model: how many gradients and stages pass, and the worst in each dtype."""
    dtypes = tuple(dict.fromkeys(dtype for model in found for dtype in model.dtypes))
    parts = models.counted(found)
    several = any(model.dialect != "default" for model in found)
    heads = [
        "model",
        *(["dialect"] if several else []),
        *(models.COUNTED[part] for part in parts),
        *dtypes,
    ]
    lines: list[str] = []
    for layout in LAYOUTS[1:]:
        body = []
        last = ""
        for model in found:
            name = "" if model.name == last else model.name
            last = model.name
            names = [name, model.dialect] if several else [name]
            body.append(
                [
                    *(clip(words.clean(text), layout.name) for text in names),
                    *(models.passed(model.block(part)) for part in parts),
                    *(
                        _measured(page, models.whole(model, dtype), dtype, layout)
                        for dtype in dtypes
                    ),
                ]
            )
        lines = grid(heads, body, 0)
        if len(lines[1]) <= page.width:
            break
    note = "A line per model; --model NAME or -o report.html shows its gradients and stages."
    return [*(line[: page.width] if not page.color else line for line in lines), *page.wrap(note)]


def table(page: Page, model: Model, *, everything: bool = True) -> list[str]:
    """The most telling table of one model that fits the width; a row per gradient and stage.

    Unless `everything` is shown, a long table has the first rows that fail.
    """
    lines: list[str] = []
    shortened = not everything and len(model.rows) > 2 * MAX_FAILING
    model = _failing_rows(model) if shortened and not model.verdict.expected else model
    for layout in LAYOUTS:
        lines = _drawn(page, model, layout)
        if span(lines[:2]) <= page.width:
            break
    note = f"sizes {', '.join(map(words.clean, model.sizes))}; a cell shows the worst of them"
    shown = lines if page.color else [line[: page.width] for line in lines]
    return [*shown, *(page.wrap(note) if len(model.sizes) > 1 else [])]


def _failing_rows(model: Model) -> Model:
    """A model with the first failing rows of each part; their titles count all."""

    def shown(block: Block) -> Block:
        wrong = [row for row in block.rows if not row.stands.expected]
        verb = "fails" if len(wrong) == 1 else "fail"
        of = f"{words.plural(len(wrong), block.part.value)} of {len(block.rows)} {verb}"
        more = f"; the first {MAX_FAILING}, -v shows all" if len(wrong) > MAX_FAILING else ""
        return replace(block, rows=tuple(wrong[:MAX_FAILING]), title=of + more)

    return replace(model, blocks=tuple(map(shown, model.blocks)))


def _drawn(page: Page, model: Model, layout: _Layout) -> list[str]:
    title = model.name if model.dialect == "default" else f"{model.name} {model.dialect}"
    heads = [clip(words.clean(title), layout.name), *model.dtypes]
    if layout.where:
        heads += ["worst element", "want", "in"] if layout.want else ["worst ± error bar"]
    body = [_line(page, model, block, row, layout) for block in model.blocks for row in block.rows]
    head, rule, *lines = grid(heads, body, 0)
    out = [head]
    for block in model.blocks:
        out.append(_rule(block, len(rule)))
        out += lines[: len(block.rows)]
        lines = lines[len(block.rows) :]
    return out


def _rule(block: Block, width: int) -> str:
    """A rule across the table that says what stands below it."""
    title = f"── {block.title or models.block(block.part, len(block.rows))} "
    return title.ljust(width, "─") if block.part is not Part.VALUE else "─" * width


def _line(page: Page, model: Model, block: Block, row: Row, layout: _Layout) -> list[str]:
    name = words.gradient(row.output) if block.part is Part.GRADIENT else words.clean(row.output)
    line = [clip(name, layout.name)]
    line += [_measured(page, row.cells.get(d), d, layout) for d in model.dtypes]
    if not layout.where:
        return line
    result = models.telling(row)
    top = (
        result.finding.top
        if result is not None and result.case.dtype != models.CERTIFICATE
        else None
    )
    if result is None or top is None:
        return [*line, *([""] * (3 if layout.want else 1))]
    spot = failure_text.spot(result.finding, top)
    if not layout.want:
        return [*line, f"{spot} {failure_text.bar(top)}".strip()]
    place = words.clean(top.tensor) * (block.part is Part.STAGE) + spot
    want = f"{failure_text.values(top)[1]} {failure_text.bar(top)}"
    return [*line, place, want, words.clean(f"{result.case.sample}/{result.case.dtype}")]


def _measured(page: Page, cell: Cell | None, dtype: str, layout: _Layout) -> str:
    """A cell; the certificate's error and bound say little, and are shown where there is room."""
    ours = dtype == models.CERTIFICATE
    return page.cell(
        cell,
        measured=layout.errors and (layout.certified or not ours),
        bound=layout.bounds and (layout.want or not ours),
    )


def _sights(page: Page, run: Run, named: bool, *, alone: bool) -> list[str]:
    """What the checks could have seen, of one model case by case, and how training went."""
    sights = models.sights(run)
    if alone:
        lines = [line for sight in sights for line in _sight(page, sight, named)]
    else:
        texts = models.together(sights)
        lines = [line for text in texts for line in page.wrap(text, "visible: ", "  ")]
    trained = models.trained(run)
    for told in trained if alone else ():
        whose = f"{words.clean(told.case.implementation)} · " if named else ""
        text = f"{whose}{words.case(told)}: {words.clean(told.finding.reason)}"
        lines += page.wrap(text, "training: ", "  ")
    if trained and not alone:
        text = f"{words.plural(len(trained), 'time')} the loss fell as the gradients predict"
        lines += page.wrap(f"{text}; --model NAME says how far", "training: ", "  ")
    return lines


def _sight(page: Page, sight: Sight, named: bool) -> list[str]:
    whose = f"{words.clean(sight.implementation)} · " if named else ""
    text = f"{whose}{words.clean(sight.case)}: {models.sight(sight)}"
    return page.wrap(text, "visible: ", "  ")


def blame(page: Page, run: Run) -> list[str]:
    """Who is to blame for what, round by round."""
    found = models.blamed(run)
    named = len({r.case.implementation for r in run.results}) > 1
    return [line for blamed in found for line in _blamed(page, blamed, named)]


def _blamed(page: Page, blamed: Blamed, named: bool) -> list[str]:
    whose = f"{words.clean(blamed.implementation)} · " if named else ""
    name = words.clean(f"{blamed.name}/{blamed.dialect}")
    lines = page.wrap(f"{whose}{name} ({words.clean(blamed.where)})", "stages at fault in ", "  ")
    for found in blamed.blames:
        lead = f"  round {found.round}: " if len(blamed.blames) > 1 else "  "
        lines += page.wrap(models.accusation(found), lead, "    ")
        for text in models.said(found):
            lines += page.wrap(text, "    ", "      ")
    for text in models.assumptions(blamed.blames):
        lines += page.wrap(text, "  assumption: ", "    ")
    return lines

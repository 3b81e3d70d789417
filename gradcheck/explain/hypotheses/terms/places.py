"""Places in arrays that the text reads: a neighbour's, or the same for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradcheck.explain.trace.run import Edit, Likeness, Run, Target, Text, at, targets
from gradcheck.explain.trace.source import text_of
from gradcheck.explain.trace.tape import Change, Node


def places(text: Text, run: Run, like: Likeness) -> Iterator[Edit]:
    """Every subscript with a position, read one place before or after, first or last."""
    seen: set[Target] = set()
    for node in reversed(run.needed):
        if node.kind != "getitem" or not any(isinstance(i, int) for i in _key(node.operands[1])):
            continue
        for target in targets(node, run):
            if target in seen or text.spent:
                continue
            seen.add(target)
            for says, change in _CHANGES:
                if like(text.tried(run, at(target, change)(run))):
                    yield Edit(
                        label="I",
                        says=f"{text.scene.gradient}: `{text_of(node)}` is read {says}",
                        changes=at(target, change),
                    )


def _key(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _moved(by: int) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        return node.call([ops[0], tuple(_beside(i, by) for i in _key(ops[1]))])

    return change


def _beside(i: Any, by: int) -> Any:
    return i if not isinstance(i, int) else i + by if (i < 0) == (i + by < 0) else i


def _fixed(at: int) -> Change:
    def change(node: Node, ops: list[Any]) -> Any:
        return node.call([ops[0], tuple(at if isinstance(i, int) else i for i in _key(ops[1]))])

    return change


_CHANGES = (
    ("one place later", _moved(1)),
    ("one place earlier", _moved(-1)),
    ("at the first place, whatever the place", _fixed(0)),
    ("at the last place, whatever the place", _fixed(-1)),
)

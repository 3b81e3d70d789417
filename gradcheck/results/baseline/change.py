"""What `baseline write`, `update` and `prune` make of a file and a run: its new text, in words."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.errors import UsageError
from gradcheck.results.baseline.apply import BEYOND, MANY, stale
from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.baseline.file import lines_of, parsed, split
from gradcheck.results.baseline.match import Found, Scope, allowance, is_empty, largest, matched
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import clean, filed, number, plural

LONGEST: Final = 200
"""Characters of a reason that is written for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file's new text, a line per change to it, and a line per change that is refused."""

    text: str
    done: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def new(run: Run, name: str, scope: Scope) -> Change:
    """A file that lists every failure of a run."""
    entries = tuple(listed(run, [r for r in run.results if _excusable(r)], scope))
    header = run.header
    baseline = Baseline(
        name=name, entries=entries, suite=header.suite_version, dtypes=tuple(header.dtypes)
    )
    return Change(text=fresh(baseline), done=tuple(f"+ {_told(e)}" for e in entries))


def updated(run: Run, text: str, baseline: Baseline, scope: Scope) -> Change:
    """The file with what was measured now, and with the failures that are not listed yet.

    Entries of which a part was not run stay as they are.
    """
    done: list[str] = []
    refused: list[str] = []
    found = matched(run, baseline)
    for place, one in enumerate(found):
        failing = [r for r in one.results if _excusable(r)]
        changes = list(_changes(one.entry, failing))
        where = baseline.where(one.entry)
        missed = scope.missed(one.entry.match) if changes else []
        if missed:
            refused.append(f"{where}: {_not_run(missed)}: the entry stays as it is")
            continue
        for key, old, value in changes:
            text = changed(text, baseline.name, place, key, value)
            done.append(f"{where}: {key}: {'none' if old is None else old} → {value}")
    about = {result.key for one in found for result in one.results}
    unlisted = [r for r in run.results if _excusable(r) and r.key not in about]
    entries = tuple(listed(run, unlisted, scope))
    if entries:
        text = added(text, entries)
        done += [f"+ {_told(entry)}" for entry in entries]
    parsed(text, baseline.name)  # nothing is written that could not be read again
    return Change(text=text, done=tuple(done), refused=tuple(refused))


def pruned(run: Run, text: str, baseline: Baseline, scope: Scope) -> Change:
    """The file without the entries that excuse nothing any more.

    Those are about no case, or about results that all pass. Entries of which a part was not run
    stay as they are.
    """
    done: list[str] = []
    refused: list[str] = []
    found = matched(run, baseline)
    for place in reversed(range(len(found))):  # what stands behind keeps its place
        one = found[place]
        why = stale(one, scope) or _mended(one)
        if not why:
            continue
        where = baseline.where(one.entry)
        missed = scope.missed(one.entry.match) if one.outputs else []
        if missed:
            refused.append(f"{where}: {_not_run(missed)}: the entry stays as it is")
            continue
        text = removed(text, baseline.name, place)
        done.append(f"- {where}: {clean(one.entry.about)}: {why.partition(': ')[0]}")
    return Change(text=text, done=tuple(reversed(done)), refused=tuple(reversed(refused)))


def listed(run: Run, results: Sequence[CaseResult], scope: Scope) -> Iterator[Entry]:
    """Entries for failures: one for all samples of a gradient, if all of them fail alike."""
    several = len({r.case.implementation for r in run.results}) > 1
    empty = {(r.case.implementation, r.case.name, filed(r.finding.name, r.finding.part))
             for r in run.results if is_empty(r)}  # fmt: skip
    groups: dict[tuple[str, ...], list[CaseResult]] = {}
    for r in results:
        output = filed(r.finding.name, r.finding.part)
        kind = (r.finding.verdict.value, r.finding.defect)
        groups.setdefault(
            (r.case.implementation, r.case.op, r.case.dialect, r.case.dtype, output, *kind), []
        ).append(r)
    for (who, op, dialect, dtype, output, *_), of_one in groups.items():
        when = f"implementation == {who!r}" if several else ""
        glob = "/".join([*map(_literal, (op, dialect)), "*", _literal(dtype)])
        names = {r.case.name for r in of_one}
        others = {*scope.reached(glob)} - names
        alike = all((who, name, output) in empty for name in others)
        everywhere = alike and not scope.missed(glob)
        if everywhere and 1 < len(names) <= MANY:
            yield _entry(glob, of_one, when)
        else:
            yield from (_entry("/".join(map(_literal, r.case.name.split("/"))), [r], when)
                        for r in of_one)  # fmt: skip


def _entry(glob: str, results: Sequence[CaseResult], when: str) -> Entry:
    first, error = results[0], largest(results)
    measurable = error is not None and 0 < error < math.inf
    told = (
        first.finding.diagnosis.says
        if first.finding.diagnosis is not None
        else first.finding.reason
    )
    reason = clean(told or first.finding.reason)[:LONGEST] or "not looked into yet"
    return Entry(
        line=0,
        match=glob,
        output=filed(first.finding.name, first.finding.part),
        verdict=first.finding.verdict.value,
        label=first.finding.defect,
        max_error=allowance(error) if measurable and error is not None else None,
        when=when,
        reason=reason,
    )


def _changes(
    entry: Entry, failing: Sequence[CaseResult]
) -> Iterator[tuple[str, str | float | None, str | float]]:
    """What an entry says otherwise than the failures that it is about: key, old and new value.

    What differs among them stays: the gate says of it what is wrong, and the user which is meant.
    """
    verdicts = {r.finding.verdict.value for r in failing}
    if len(verdicts) != 1:
        return
    (verdict,) = verdicts
    if verdict != entry.verdict and not entry.flaky and entry.max_error is None:
        yield "verdict", entry.verdict, verdict
    labels = {r.finding.defect for r in failing}
    if entry.label and len(labels) == 1 and not labels & {entry.label, ""}:
        yield "class", entry.label, labels.pop()
    error = largest(failing)
    if error is not None and 0 < error < math.inf and allowance(error) != entry.max_error:
        yield "max_error", entry.max_error, allowance(error)


def _mended(found: Found) -> str:
    """That everything which an entry is about passes now; empty where it does not."""
    ok = bool(found.results) and not found.asleep and not found.entry.flaky
    if not ok or not all(r.finding.verdict is Verdict.PASS for r in found.results):
        return ""
    return f"passes now ({plural(len(found.results), 'result')})"


def _excusable(result: CaseResult) -> bool:
    return not result.finding.verdict.expected and result.finding.verdict not in BEYOND


def _literal(part: str) -> str:
    """A name as a glob that matches it alone."""
    return re.sub(r"([*?[])", r"[\1]", part)


def _not_run(missed: Sequence[str]) -> str:
    return f"{plural(len(missed), 'case')} of it not run (as {clean(min(missed))})"


def _told(entry: Entry) -> str:
    most = f", max_error {number(entry.max_error)}" if entry.max_error is not None else ""
    label = f", {entry.label}" if entry.label else ""
    when = f", when {entry.when}" if entry.when else ""
    return clean(f"{entry.about}: {entry.verdict}{label}{most}{when}")


COMMENT: Final = re.compile(r"\s*#")
VALUE: Final = re.compile(r"""("[^"]*"|'[^']*'|[^\s#"']+)""")
TOP: Final = """\
# Failures that are known, and why: gradcheck run --baseline {name}
# The gate fails on anything else, and on an entry that is not true any more.
"""


def value(of: str | float) -> str:
    """A text or a number in TOML."""
    return json.dumps(of, ensure_ascii=False) if isinstance(of, str) else repr(of)


def fresh(baseline: Baseline) -> str:
    """The text of a new file."""
    lines = [TOP.format(name=clean(baseline.name))]
    if baseline.suite:
        lines.append(f"suite = {value(baseline.suite)}\n")
    if baseline.dtypes:
        lines.append(f"dtypes = [{', '.join(map(value, baseline.dtypes))}]\n")
    return added("".join(lines), baseline.entries)


def added(text: str, entries: tuple[Entry, ...]) -> str:
    """The text with entries behind all that it has."""
    end = "\r\n" if "\r\n" in text else "\n"
    blocks = [f"\n{written(entry)}".replace("\n", end) for entry in entries]
    return "".join([text.rstrip("\r\n"), end, *blocks])


def written(entry: Entry) -> str:
    """An entry's text."""
    pairs: list[tuple[str, str | float | None]] = [
        ("match", entry.match),
        ("output", entry.output),
        ("verdict", entry.verdict),
        ("class", entry.label or None),
        ("max_error", entry.max_error),
        ("when", entry.when or None),
        ("reason", entry.reason),
        ("link", entry.link or None),
    ]
    lines = [f"{key} = {value(of)}" for key, of in pairs if of is not None]
    return "\n".join(["[[known]]", *lines, ""])


def changed(text: str, name: str, number: int, key: str, of: str | float) -> str:
    """The text with another value of one key in entry `number`, counted from 0.

    Raises:
        UsageError: the entry is written so that this cannot be done.
    """
    tables = _tables(text)
    wanted = [*tables]
    wanted[number] = {**tables[number], key: of}
    start, stop = _spans(text, len(tables), name)[number]
    for candidate in _with_value(split(text), start, stop, key, value(of)):
        if _says(candidate, text, wanted):
            return candidate
    raise UsageError(f"{name}:{start + 1}: write `{key} = {value(of)}` there yourself")


def removed(text: str, name: str, number: int) -> str:
    """The text without entry `number`, and without the comment right above it.

    Raises:
        UsageError: the entry is written so that this cannot be done.
    """
    tables = _tables(text)
    wanted = tables[:number] + tables[number + 1 :]
    start, stop = _spans(text, len(tables), name)[number]
    lines = split(text)
    first = start
    while first and COMMENT.match(lines[first - 1]):
        first -= 1
    last = stop
    while last < len(lines) and not lines[last].strip():
        last += 1
    candidate = "\n".join([*lines[:first], *lines[last:]])
    if _says(candidate, text, wanted):
        return candidate
    raise UsageError(f"{name}:{start + 1}: remove the entry yourself")


def _with_value(lines: list[str], start: int, stop: int, key: str, new: str) -> Iterator[str]:
    """The text with a value changed, in each place where it may stand; then with a line more."""
    at = re.compile(rf"""(\s*(?:{key}|"{key}"|'{key}')\s*=\s*)""")
    for n in range(start + 1, stop):
        found = at.match(lines[n])
        if found:
            rest = VALUE.sub(lambda _: new, lines[n][found.end() :], count=1)
            yield "\n".join([*lines[:n], found.group() + rest, *lines[n + 1 :]])
    after = [n for n in range(start + 1, stop) if re.match(r"\s*verdict\s*=", lines[n])]
    end = "\r" if lines[start].endswith("\r") else ""
    for n in (*after, start):
        yield "\n".join([*lines[: n + 1], f"{key} = {new}{end}", *lines[n + 1 :]])


def _spans(text: str, count: int, name: str) -> list[tuple[int, int]]:
    """Where each entry stands: from its header's line to behind its last key, from 0."""
    lines = split(text)
    starts = [line - 1 for line in lines_of(text, count, name)]
    spans = []
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        last = stop
        while last > start + 1 and _idle(lines[last - 1]):
            last -= 1
        spans.append((start, last))
    return spans


def _idle(line: str) -> bool:
    return not line.strip() or COMMENT.match(line) is not None


def _tables(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(text).get("known", [])
    return found


def _says(candidate: str, before: str, wanted: list[dict[str, Any]]) -> bool:
    """Whether a text says what another did, but for its entries, which are `wanted`."""
    try:
        top = tomllib.loads(candidate)
    except tomllib.TOMLDecodeError:
        return False
    rest = {**tomllib.loads(before)}
    rest.pop("known", None)
    return top.pop("known", []) == wanted and top == rest

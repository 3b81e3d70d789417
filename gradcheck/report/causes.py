"""Failures by cause, across cases, dtypes, gradients and operators, and each cause in a few words.

Failures share a cause where their diagnoses share a phrase or a sentence, or where the code raised
or died with one message. Failures without either share one with others of the same gradient.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gradcheck.report import failure_text, models, run_words
from gradcheck.results import printed, words
from gradcheck.results.case_result import CaseResult, Kind
from gradcheck.results.finding import COMPARING_PROPERTIES, COMPUTED_IN, Blame, Finding, Part
from gradcheck.results.verdict import SEVERITY, Verdict
from gradcheck.spec.defect import Defect

if TYPE_CHECKING:
    from gradcheck.results.run import Run

DUMPED: Final = ("Extension modules: ", 'File "', "Current thread ", "Thread 0x", "Fatal Python ")
"""What lines of Python's report of a crash begin with: the reason has what they say."""
TYPICAL: Final = "typical"
"""The sample of ordinary values, which shows a failure best."""
LAYER: Final = re.compile(r"(\d+)")
"""What tells stages of one kind apart."""
COMPARED: Final = (Verdict.FAIL, Verdict.MISSING, Verdict.INCONCLUSIVE)
"""Verdicts on a gradient that was computed; all others say why there is none."""
MAX_NAMED: Final = 3
"""Operators that the words for a cause name."""

Owner = tuple[str, Kind, str]
"""Implementation, kind, and operator."""
Gradient = tuple[str, Kind, str, Part, str]
"""Implementation, kind, operator, part, and the gradient's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Failures that have one cause, the most telling first.

    `consequences` are failures that follow from them: comparisons between gradients that are wrong,
    parameters behind a faulty stage. `asked` counts all results of the same gradients. `blame`
    says, of a model, which stage is at fault.
    """

    results: tuple[CaseResult, ...]
    consequences: tuple[CaseResult, ...]
    asked: int
    blame: Blame | None = None

    @property
    def telling(self) -> CaseResult:
        """The failure that is shown."""
        return self.results[0]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return min((r.finding.verdict for r in self.results), key=SEVERITY.index)

    @property
    def gradients(self) -> tuple[Gradient, ...]:
        """The gradients that fail."""
        return tuple(dict.fromkeys(map(_gradient, self.results)))

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators, models or rules that fail."""
        return tuple(dict.fromkeys(r.case.op for r in self.results))


def causes(run: Run) -> list[Cause]:
    """The causes of all failures that the gate does not accept: first what concerns most."""
    telling = _in_order(run)
    failing, blames = [*filter(run.fails, telling)], _blames(telling)
    primary, followers = _without_consequences(failing, blames)
    asked = Counter(_gradient(r) for r in run.results if r.finding.verdict.checked)
    found = [
        Cause(
            results=tuple(_ordered(results)),
            consequences=(),
            asked=sum(asked[gradient] for gradient in {*map(_gradient, results)}),
            blame=_blame_of(results, blames),
        )
        for results in _by_cause(primary, blames)
    ]
    return _with_consequences(sorted(found, key=_urgency), followers)


def _in_order(run: Run) -> list[CaseResult]:
    """Failures, and what names faulty stages, in one order however the results were merged.

    Small models come before large ones, and `h.2` before `h.10`.
    """
    place = {name: k for k, name in enumerate((*run.header.implementations, *run.header.dtypes))}
    size = Counter[tuple[str, ...]]()
    for r in run.results:
        if r.case.kind is Kind.MODEL:
            size[r.case.op, r.case.dialect, r.case.sample] += r.finding.compared

    def key(result: CaseResult) -> tuple[object, ...]:
        case, finding = result.case, result.finding
        first = place.get(case.implementation, len(place)), case.implementation, case.kind
        last = place.get(case.dtype, len(place)), case.dtype
        names = (case.op, case.dialect, case.sample, finding.part, finding.name)
        op, *others = map(_natural, names)
        return *first, op, size[case.op, case.dialect, case.sample], *others, *last

    return sorted((r for r in run.results if r.finding.blames or run.fails(r)), key=key)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(len(part) * (k % 2), part) for k, part in enumerate(LAYER.split(name))]


def _blames(results: Iterable[CaseResult]) -> dict[Owner, tuple[Blame, ...]]:
    """What is known of faulty stages, by model; of its cases the first one that is exact.

    It stands with the loss, which is right where gradients alone are wrong.
    """
    found: dict[Owner, tuple[Blame, ...]] = {}
    for result in results:
        blames, before = result.finding.blames, found.get(_owner(result), ())
        if blames and (not before or (_exact(blames) and not _exact(before))):
            found[_owner(result)] = blames
    return found


def _exact(blames: Sequence[Blame]) -> bool:
    return all(blame.exact for blame in blames)


def _blame_of(
    results: Sequence[CaseResult], blames: Mapping[Owner, Sequence[Blame]]
) -> Blame | None:
    """The blame that names a stage of these failures; of wrong gradients their model's first."""
    of_model = blames.get(_owner(results[0]), ())
    names = {r.finding.name for r in results if r.finding.part is Part.STAGE}
    if any(r.finding.verdict is not Verdict.FAIL for r in results):
        return None  # such a verdict has its own reason
    if names:
        return next((blame for blame in of_model if names & {*blame.stages}), None)
    alone = len({*map(_owner, results)}) == 1 and all(map(_may_follow, results))
    return of_model[0] if of_model and alone else None


def _may_follow(result: CaseResult) -> bool:
    """Whether a faulty stage may be the cause: of a wrong gradient, not of one that is missing."""
    return result.finding.part is Part.GRADIENT and result.finding.verdict is Verdict.FAIL


def _gradient(result: CaseResult) -> Gradient:
    case, finding = result.case, result.finding
    return case.implementation, case.kind, case.op, finding.part, finding.name


def _urgency(cause: Cause) -> tuple[int, bool, int, int]:
    """What ends the code, then what is wrong; among it what concerns most gradients."""
    missing = cause.verdict is Verdict.MISSING  # as bad as a wrong number
    severity = SEVERITY.index(Verdict.FAIL if missing else cause.verdict)
    case, part = cause.telling.case, cause.telling.finding.part
    follows = case.kind is Kind.MODEL and part not in (Part.VALUE, Part.STAGE)
    return severity, follows, -len(cause.gradients), -len(cause.results)


# ── consequences ─────────────────────────────────────────────────────────────────────────────


def _without_consequences(
    failing: Sequence[CaseResult], blames: Mapping[Owner, Sequence[Blame]]
) -> tuple[list[CaseResult], list[CaseResult]]:
    """Failures with a cause of their own, and those that follow from another.

    A wrong gradient breaks comparisons between gradients; a faulty stage, known exactly, spoils the
    parameters before it.
    """
    wrong = {_owner(r) for r in failing if r.finding.part is not Part.CONTRACT}
    staged = {_owner(r) for r in failing if r.finding.part is Part.STAGE}
    staged &= {owner for owner, found in blames.items() if _exact(found)}
    first: list[CaseResult] = []
    later: list[CaseResult] = []
    for r in failing:
        part, owner = r.finding.part, _owner(r)
        compares = part is Part.CONTRACT and r.finding.name in COMPARING_PROPERTIES
        spoilt = _may_follow(r) and owner in staged
        (later if spoilt or (compares and owner in wrong) else first).append(r)
    return first, later


def _owner(result: CaseResult) -> Owner:
    return result.case.implementation, result.case.kind, result.case.op


def _with_consequences(found: Sequence[Cause], followers: Sequence[CaseResult]) -> list[Cause]:
    """The causes; each consequence stands with the first cause in its operator or model."""
    first = {_owner(r): place for place, cause in reversed([*enumerate(found)])
             for r in cause.results}  # fmt: skip
    later: dict[int, list[CaseResult]] = defaultdict(list)
    for result in followers:
        later[first[_owner(result)]].append(result)
    return [replace(cause, consequences=tuple(later[k])) for k, cause in enumerate(found)]


# ── one cause ────────────────────────────────────────────────────────────────────────────────


def _by_cause(
    failing: Iterable[CaseResult], blames: Mapping[Owner, Sequence[Blame]]
) -> list[list[CaseResult]]:
    """Failures that share a cause; what is known of no failure joins its gradient's main cause."""
    by_gradient: dict[tuple[Gradient, bool], list[tuple[CaseResult, str]]] = defaultdict(list)
    spread: dict[tuple[str, str], set[Gradient]] = defaultdict(set)
    for result in failing:
        gradient, key = _gradient(result), _key(result) or _place(result, blames)
        by_gradient[gradient, result.finding.verdict in COMPARED].append((result, key))
        spread[gradient[0], key].add(gradient)
    narrow = _narrow_types(spread)
    found: dict[object, list[CaseResult]] = defaultdict(list)
    for of_one, results in by_gradient.items():
        implementation = of_one[0][0]
        keys = [narrow.get(implementation, key) if _rounds(r) else key for r, key in results]
        shared = {key for key in keys if key and len(spread[implementation, key]) > 1}
        known = Counter(key for key in keys if key).most_common(1)
        main = known[0][0] if known else ""
        for (result, _), key in zip(results, keys, strict=True):
            own = key if key in shared else main
            found[(implementation, own) if own in shared else of_one].append(result)
    return [*found.values()]


def _narrow_types(spread: Mapping[tuple[str, str], set[Gradient]]) -> dict[str, str]:
    """Of each implementation the narrow type in which several gradients are computed, if any."""
    named = [
        (len(gradients), *key)
        for key, gradients in spread.items()
        if key[1].startswith(COMPUTED_IN) and len(gradients) > 1
    ]
    return {implementation: key for _, implementation, key in sorted(named)}


def _rounds(result: CaseResult) -> bool:
    """Whether an error is known to be rounding, without the type that causes it."""
    found = result.finding.diagnosis
    return found is not None and found.label == Defect.PRECISION and not found.cause


def _key(result: CaseResult) -> str:
    """What failures with one cause have in common; empty where nothing is known."""
    finding = result.finding
    diagnosis = finding.diagnosis
    if diagnosis is not None and diagnosis.label:
        if finding.part is Part.CONTRACT:
            return f"{finding.name}: {diagnosis.says}"
        return diagnosis.cause or _nameless(diagnosis.says, finding)
    if finding.verdict in COMPARED:
        return ""
    # Exceptions may name the operator; a function that died in each is not one cause.
    raised = finding.verdict is Verdict.ERROR
    reason = finding.reason.replace(result.case.op, "{}") if raised else finding.reason
    return f"{finding.verdict}: {reason}"


def _place(result: CaseResult, blames: Mapping[Owner, Sequence[Blame]]) -> str:
    """Where in a model a failure comes from: a stage, whichever its layer, or a suspect."""
    owner, name = _owner(result), result.finding.name
    if result.finding.part is Part.STAGE:
        return f"{owner} stage {LAYER.sub('{}', name)}"
    return f"{owner} one of its stages" if blames.get(owner) and _may_follow(result) else ""


def _nameless(sentence: str, finding: Finding) -> str:
    """A sentence that begins with the gradient's name, without it."""
    name = re.escape(words.gradient(finding.name))
    return re.sub(rf"(?<!\w){name}(?!\w)", "{}", sentence)


def _ordered(results: Sequence[CaseResult]) -> list[CaseResult]:
    """Failures, the most telling first: the worst verdict, a diagnosis, the typical case."""
    usual = Counter(_key(result) for result in results).most_common(1)[0][0]

    def rank(result: CaseResult) -> tuple[int, bool, bool, int]:
        finding = result.finding
        return (
            SEVERITY.index(finding.verdict),
            _key(result) != usual,
            result.case.sample != TYPICAL,
            finding.compared if result.case.kind is Kind.OPERATOR else 0,
        )

    return sorted(results, key=rank)


# ── in words ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A cause in words, in the order of a reader's questions; empty where there is nothing.

    `who` is what fails and `source` where its code is; `what` is wrong with it, `sure` how far that
    is known; `element` is a value at the telling place, `extent` how many cases fail, `printed` the
    last line that the code printed, `run` the command that repeats the telling case.
    """

    who: str
    source: str
    what: str
    sure: str
    element: str
    extent: str
    printed: str
    run: str

    @property
    def sentence(self) -> str:
        """What is wrong, and how sure that is."""
        return f"{self.what} ({self.sure})" if self.sure else self.what

    @property
    def line(self) -> str:
        """Who fails and why, for a list of causes."""
        name = self.who.rpartition(" · ")[2]
        what = self.what.removeprefix(f"{name}: ")  # which stands there already
        return f"{self.who}: {what}" if what else self.who


def told(cause: Cause, *, named: bool = False) -> Told:
    """A cause in words.

    Args:
        cause: the failures.
        named: whether to name the implementation.
    """
    result = cause.telling
    finding = result.finding
    whose = f"{words.clean(result.case.implementation)} · " if named else ""
    what, sure = _what(cause)
    return Told(
        who=whose + _who(cause),
        source=words.clean(finding.source) if len(cause.gradients) == 1 else "",
        what=what,
        sure=sure,
        element=_element(finding),
        extent=_extent(cause),
        printed=_printed(cause),
        run=words.command(result.repro),
    )


def brief(result: CaseResult) -> list[str]:
    """One failure in a few lines: where, what is wrong, a value, and how many elements fail."""
    finding = result.finding
    said = told(Cause(results=(result,), consequences=(), asked=1))
    who = words.title(result) if result.case.sample else f"{said.who}, {result.case.dtype}"
    where = f" ({said.source})" if said.source else ""
    lines = [f"{words.word(finding.verdict)} {who}{where}"]
    lines += [f"  {said.sentence}"] if said.what else []
    if said.element:
        some = f"{finding.failed:,} of {words.plural(finding.compared, 'element')}"
        new = finding.failed and not said.what.startswith(some)
        lines.append(f"  {said.element}; {some} fail" if new else f"  {said.element}")
    return [*lines, *([f"  run: {said.run}"] if said.run else [])]


def _who(cause: Cause) -> str:
    gradients, operators = cause.gradients, cause.operators
    if len(gradients) == 1:
        _, _, op, part, name = gradients[0]
        variants = {r.case.dialect for r in cause.results} - {"default", ""}
        variant = f"/{variants.pop()}" if len(variants) == 1 else ""
        return f"{words.clean(op + variant)} · {words.subject(name, part)}"
    contract = cause.telling.finding.part is Part.CONTRACT
    noun = words.SIDE_CONDITION if contract else words.OUTPUT[cause.telling.case.kind]
    if len(operators) == 1:
        names = [words.subject(name, part) for *_, part, name in gradients]
        few = ", ".join(dict.fromkeys(names[:MAX_NAMED]))
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return f"{words.clean(operators[0])} · {few}{more}"
    few = ", ".join(map(words.clean, operators[:MAX_NAMED]))
    more = ", …" if len(operators) > MAX_NAMED else ""
    owners = words.plural(len(operators), run_words.NOUNS[cause.telling.case.kind])
    return f"{words.plural(len(gradients), noun)} of {owners} ({few}{more})"


def _what(cause: Cause) -> tuple[str, str]:
    """What is wrong, and how far that is known."""
    finding, blame = cause.telling.finding, cause.blame
    if blame is not None:
        names = [words.clean(name) for name in blame.names]
        of_stage = blame.exact and cause.telling.finding.part is Part.STAGE
        text = names[0] if of_stage and names else models.accusation(blame)
        return text.rstrip("."), "" if blame.exact else words.clean(blame.assumption)
    found, reason = finding.diagnosis, words.clean(finding.reason)
    if found is None or not found.word:
        pattern = "" if found is None else "no known pattern"
        return reason.rstrip("."), pattern
    shared = found.cause and len(cause.gradients) > 1
    says = words.clean(found.cause if shared else found.says)
    asked = (words.clean(text) for text in found.evidence if text.startswith("wrong "))
    sure = next((text.partition(" (")[0] for text in asked), "")
    return says, "; ".join(filter(None, (found.word, sure)))


def _element(finding: Finding) -> str:
    top = finding.top
    if top is None:
        return ""
    unsure = finding.verdict is Verdict.INCONCLUSIVE
    text = f"{failure_text.place(finding, top)} {failure_text.wanted(top, bars=unsure)}"
    if unsure or not failure_text.is_known(top):
        return text
    compared = words.compared(replace(top, bound=words.allowed(top, finding.verdict)))
    return f"{text}: {compared}" if compared else text


def _extent(cause: Cause) -> str:
    """How many cases fail, without which pattern, and what follows from them."""
    noun = "case" if len(cause.gradients) == 1 else "check"
    count = f"{len(cause.results):,} of {words.plural(cause.asked, noun)}"
    verb = "fails" if len(cause.results) == 1 else "fail"
    parts = [f"{count} {verb}" if cause.asked > 1 else f"the only {noun} fails", *_otherwise(cause)]
    if cause.consequences:
        names = dict.fromkeys(
            words.subject(r.finding.name, r.finding.part) for r in cause.consequences
        )
        few = ", ".join([*names][:MAX_NAMED])
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        parts.append(f"affected downstream: {few}{more}")
    return "; ".join(parts)


def _printed(cause: Cause) -> str:
    talker = next((r for r in cause.results if r.finding.printed.strip()), None)
    lines = [] if talker is None else printed.lines(talker.finding.printed)
    told = (
        line for line in reversed(lines) if line.strip() and not line.lstrip().startswith(DUMPED)
    )
    return words.clean(next(told, ""))


def _otherwise(cause: Cause) -> Iterator[str]:
    """Failures of the same gradients with another verdict, diagnosis or message."""
    kinds = Counter(map(_kind, cause.results))
    usual = _kind(cause.telling)
    others = Counter[str]()
    for (word, message), count in kinds.items():
        if (word, message) != usual:
            others[f"another {word}" if word == usual[0] else word] += count
    for word, count in others.most_common(MAX_NAMED):
        yield f"{count:,} of them {word}"
    if more := sum(count for _, count in others.most_common()[MAX_NAMED:]):
        yield f"{more:,} of them of other kinds"


def _kind(result: CaseResult) -> tuple[str, str]:
    """The class of a wrong gradient; else the verdict, and the message of code that raised."""
    finding = result.finding
    if finding.verdict is Verdict.FAIL:
        return finding.defect or "without a pattern", ""
    return words.word(finding.verdict), "" if finding.diagnosis else _key(result)

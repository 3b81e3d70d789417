"""The JUnit report: a testsuite per implementation and operator, a testcase per result.

FAIL and MISSING are failures; what kept a check from being made (CRASH, INCONCLUSIVE, …) is an
error; UNSUPPORTED, UNBOUND and SKIP are skipped, and so is what a baseline knows (XFAIL); a
listed failure that passes (XPASS) is a failure. Whatever else closes the gate, such as an
implementation that does not load, is an error in a testsuite of its own, so that the file is
green exactly if the run passed. Times are written if the run has them (`--durations`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from gradcheck.report import failure_text, models, run_words
from gradcheck.results import printed, words
from gradcheck.results.case_result import CaseResult
from gradcheck.results.finding import Blame, Part
from gradcheck.results.run import Run, Standing
from gradcheck.results.verdict import Breach, Known, Verdict

BARE: Final = (Breach.STALE, Breach.EXPIRED, Breach.UNSUPPORTED)
"""What is wrong with a baseline although no testcase of a result fails for it."""
FAILURES: Final = (Verdict.FAIL, Verdict.MISSING)


def render(run: Run) -> str:
    """The run as XML; the seconds of a case are shared by its results."""
    root = ET.Element("testsuites", name="gradcheck", time="0")
    blames = {
        _case(result): result.finding.blames for result in run.results if result.finding.blames
    }
    for (implementation, op), results in _by_suite(run).items():
        suite = _suite(root, run, f"{implementation}/{op}")
        for result in results:
            _testcase(suite, run, result, blames.get(_case(result), ()))
    troubles = _troubles(run)
    if troubles:
        suite = _suite(root, run, "gradcheck")
        for name, message in troubles:
            case = ET.SubElement(suite, "testcase", name=name, classname="gradcheck", time="0")
            ET.SubElement(case, "error", type="run", message=message).text = message
    _count(root)
    if run.timing is not None:
        _time(root, run, run.timing.cases)
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _by_suite(run: Run) -> dict[tuple[str, str], list[CaseResult]]:
    found: dict[tuple[str, str], list[CaseResult]] = {}
    for result in run.results:
        found.setdefault((result.case.implementation, result.case.op), []).append(result)
    return found


def kind(verdict: Standing) -> str:
    """The element that a verdict becomes, or what a baseline makes of it; empty for a pass."""
    if isinstance(verdict, Known):
        return "skipped" if verdict.expected else "failure"
    if verdict is Verdict.PASS:
        return ""
    if verdict in FAILURES:
        return "failure"
    return "error" if verdict.checked else "skipped"


def _suite(root: ET.Element, run: Run, name: str) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=words.clean(name), time="0")
    properties = ET.SubElement(suite, "properties")
    for label, text in run_words.versions(run):
        ET.SubElement(properties, "property", name=label, value=text)
    return suite


def _output(result: CaseResult) -> str:
    """The output's name; a stage's, or a property's, says what it is: a parameter may share it.

    CI systems keep histories by these names: they stay.
    """
    if result.finding.part in (Part.CONTRACT, Part.STAGE):
        return words.filed(result.finding.name, result.finding.part)
    return words.clean(result.finding.name)


def _case(result: CaseResult) -> tuple[str, str]:
    """What the blame of one result holds for: all that fails in the same case."""
    return result.case.implementation, words.case(result)


def _testcase(suite: ET.Element, run: Run, result: CaseResult, blames: Sequence[Blame]) -> None:
    testcase = ET.SubElement(
        suite,
        "testcase",
        name=f"{words.case(result)}/{_output(result)}",
        classname=words.clean(f"{result.case.implementation}.{result.case.op}"),
        time="0",
    )
    noise = printed.of(result)
    if noise:
        ET.SubElement(testcase, "system-out").text = "\n".join(noise)
    stands = run.stands(result)
    tag = kind(stands)
    if not tag:
        return
    said = failure_text.alone(result)
    message = said.lead or words.word(result.finding.verdict)
    known = run.expected(result)
    if known is not None and known.known is not None:
        message = words.clean(f"{known.entry}: {known.reason}")
    outcome = ET.SubElement(testcase, tag, type=stands.value, message=message)
    # Illegal XML characters are gone: `clean` leaves none that is not printable.
    lines = [f"{words.word(result.finding.verdict)} {words.title(result)}: {message}"]
    lines += [f"{label}: {text}" for label, text in said.facts]
    lines += models.charges(blames)
    outcome.text = "\n".join(lines)


def _troubles(run: Run) -> list[tuple[str, str]]:
    found = [(f"problem {i}", words.clean(text)) for i, text in enumerate(run.troubles, 1)]
    lines = [p.text for p in run.gate.problems if p.breach in BARE] if run.gate else []
    found += [(f"baseline {i}", words.clean(text)) for i, text in enumerate(lines, 1)]
    found += [(f"required {i}", text) for i, text in enumerate(run_words.unmet(run), 1)]
    if not run.complete:
        found.append(("complete", run_words.incomplete(run)))
    if not run.footer.checked:
        found.append(("checked", "nothing was checked"))
    return found


def _time(root: ET.Element, run: Run, taken: Mapping[str, float]) -> None:
    shares = Counter(r.case.name.rpartition("/")[0] for r in run.results)
    seconds = [
        taken.get(name, 0.0) / shares[name]
        for suite in _by_suite(run).values()
        for name in (r.case.name.rpartition("/")[0] for r in suite)
    ]
    for testcase, each in zip(root.iter("testcase"), seconds, strict=False):
        testcase.set("time", f"{each:.3f}")
    for parent in (*root, root):
        total = sum(float(testcase.get("time", "0")) for testcase in parent.iter("testcase"))
        parent.set("time", f"{total:.3f}")


def _count(root: ET.Element) -> None:
    counted = {"tests": "testcase", "failures": "failure", "errors": "error"}
    for parent in (root, *root):
        for name, tag in counted.items():
            parent.set(name, str(sum(1 for _ in parent.iter(tag))))
        if parent is not root:  # the schema knows no `skipped` on testsuites
            parent.set("skipped", str(sum(1 for _ in parent.iter("skipped"))))

"""The HTML report of 100,000 results: built, opened, filtered, each beside the least there is.

`python -m benchmarks.reports` makes synthetic results of the built-in suite's proportions (every
twentieth gradient fails), renders them, and opens them in Chromium by turns with an empty page. It
prints medians and the median of the pairwise ratios as Markdown. `GRADCHECK_CHROMIUM` names the
browser.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import PAIRED, head, line, paired
from gradcheck.report import render
from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.finding import Certificate, Diagnosis, Finding, Heat, Miss
from gradcheck.results.run import Header, Run
from gradcheck.results.stored import plain
from gradcheck.results.verdict import Verdict

DTYPES = ("float64", "float32")
SAMPLES = 10
OUTPUTS = ("forward", "x", "weight", "bias", "gate")
EMPTY = "<!doctype html><html lang=en><title>empty</title><p>nothing</p></html>"
PROOF = Certificate(rejected=("zeros", "nan", "double", "half", "negated", "mean"), blind=())

PAINTED = """() => new Promise((done) => {
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
})"""
TYPED = """(text) => new Promise((done) => {
  const filter = document.getElementById("filter");
  const start = performance.now();
  filter.value = text;
  filter.dispatchEvent(new Event("input"));
  document.body.offsetHeight;
  const blocked = performance.now() - start;
  const painted = () => done([blocked, performance.now() - start]);
  requestAnimationFrame(() => requestAnimationFrame(painted));
})"""
FRAME = """() => new Promise((done) => {
  const start = performance.now();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""


def results(count: int) -> tuple[CaseResult, ...]:
    """So many results; numbers that differ, so that they are as hard to compress as real ones."""
    return tuple(one_by_one(count))


def one_by_one(count: int) -> Iterator[CaseResult]:
    """The same, none of them kept; case by case, as a run has them."""
    each = len(OUTPUTS) * SAMPLES * len(DTYPES)
    names = itertools.product(range(-(-count // each)), range(SAMPLES), DTYPES, enumerate(OUTPUTS))
    for i, (op, sample, dtype, (k, output)) in enumerate(itertools.islice(names, count)):
        fails = (op * len(OUTPUTS) + k) % 20 == 7
        yield _result(i, op, output, sample, dtype, fails)


def header() -> Header:
    """What was run."""
    return Header(version="0", suite="synthetic", suite_version="0", seed=0, dtypes=DTYPES,
                  implementations=("synthetic",))  # fmt: skip


def _result(i: int, op: int, output: str, sample: int, dtype: str, fails: bool) -> CaseResult:
    name = f"operator_{op}/default/sample-{sample}/{dtype}"
    want = 1.0 + (i * 0.6180339887498949) % 1.0
    error = (0.1 if fails else 1e-12) * ((i * 0.7548776662466927) % 1.0 + 0.1)
    heat = Heat(shape=(8, 16), rows=8, columns=16, cells="..3...!9" * 16, cotangent="normal")
    why = Diagnosis(
        label="F", says="dx is half of the right value", evidence=("1/2 is everywhere",)
    )
    case = CaseId(
        name=name,
        hash=f"{i % 65536:04x}",
        implementation="synthetic",
        op=f"operator_{op}",
        dialect="default",
        sample=f"sample-{sample}",
        dtype=dtype,
        seed=0,
        hunts=f"the {sample}th way to be wrong in operator {op}",
    )
    finding = Finding(
        name=output,
        verdict=Verdict.FAIL if fails else Verdict.PASS,
        reason="3 of 24 elements are outside their bound" if fails else "",
        compared=24,
        failed=3 if fails else 0,
        certificate=PROOF,
        worst=(
            Miss(index=(i % 7, i % 11), got=want + error, want=want, error=error, bound=1e-8 * want,
                 error_bar=1e-20 * want, ulp=error / 2.0**-52, cotangent="normal"),
        ),
        diagnosis=why if fails else None,
        heat=heat if fails else None,
    )  # fmt: skip
    return CaseResult(case=case, finding=finding, repro=f"gradcheck repro {name}:{output}")


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """The processor's time for a call, whatever else the machine does, and what the call gives."""
    gc.collect()
    start = time.process_time()
    value = call()
    return time.process_time() - start, value


def written(run: Run) -> int:
    """Characters of all results as JSON; one at a time, as all of them would take a gigabyte."""
    return sum(len(plain.dumped(plain.result_dict(run, result))) for result in run.results)


def told(name: str, other: str, pairs: list[tuple[float, float]], target: str) -> None:
    """One line of the table: two times by turns, in milliseconds."""
    print(line(paired("", (name, other), pairs).cells(target)), flush=True)


def main() -> None:
    """Build, open, filter; print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="repetitions; default 5")
    parser.add_argument("--results", type=int, default=100_000)
    given = parser.parse_args()
    run = Run(header=header(), results=results(given.results))
    with tempfile.TemporaryDirectory() as folder:
        page, empty = Path(folder, "report.html"), Path(folder, "empty.html")
        built = []
        for _ in range(max(2, given.n // 2)):
            took, text = seconds(lambda: render(run, "html"))
            built.append((took, seconds(lambda: written(run))[0]))
        page.write_text(text, "utf-8")
        empty.write_text(EMPTY, "utf-8")
        print(f"{given.results:,} results: {len(text.encode()) / 1e6:.2f} MB\n")
        print(head(PAIRED))
        told("build the page (processor time)", "the same results as JSON lines", built, "A < 10 s")
        browse(page, empty, given.n)


def browse(page: Path, empty: Path, count: int) -> None:
    """Open both pages by turns, then filter; a frame of the empty page stands beside the filter."""
    from playwright.sync_api import sync_playwright

    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    path = os.environ.get("GRADCHECK_CHROMIUM") or next(filter(None, found), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])

        def opened(file: Path) -> tuple[float, Any]:
            tab = browser.new_page()
            tab.goto(f"file://{file}")
            return tab.evaluate(PAINTED) / 1000, tab

        opened(empty)[1].close()
        times, filters, frames = [], [], []
        for _ in range(count):
            took, tab = opened(page)
            other, idle = opened(empty)
            times.append((took, other))
            for text in ("operator_7", "operator_7 float32", "sample-3 bias", "nobody", ""):
                tab.wait_for_timeout(300)  # as somebody types
                blocked, painted = tab.evaluate(TYPED, text)
                frame = idle.evaluate(FRAME) / 1000
                filters.append((blocked / 1000, frame))
                frames.append((painted / 1000, frame))
            tab.close()
            idle.close()
        browser.close()
    told("open it, until it is painted", "an empty page", times, "A < 2 s")
    told(
        "filter: until the rows are laid out", "two frames of an empty page", filters, "A < 100 ms"
    )
    told("filter: until it is painted", "two frames of an empty page", frames, "A < 100 ms")


if __name__ == "__main__":
    main()

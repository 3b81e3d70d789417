"""An example HTML report: a run over examples.kernels, made while the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gradcheck_cases import SUITE

from gradcheck import report
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan

PAGE: Final = "example/report.html"
KERNELS: Final = "examples.kernels:IMPL"
OPERATORS: Final = ("softmax", "silu", "rms_norm")
DIALECTS: Final = ("default", "weight")


def pages() -> Iterator[tuple[str, str]]:
    """The report's path and text; a separate page outside the site's frame."""
    plan = Plan(
        suite=SUITE,
        cases=SUITE.cases(OPERATORS, DIALECTS),
        implementations=[KERNELS],
        dtypes=["float64", "float32"],
        seed=0,
    )
    yield PAGE, report.render(execute(plan), "html")

"""Functions to be minimised: ggml's first example a·x² + b, and its test of the optimiser.

Axes: n elements; test_opt: m rows of a, p rows of b, k columns of both.
"""

from __future__ import annotations

from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Program, Stage
from gradcheck_cases import elementwise, linear, reduction
from gradcheck_cases.models.tensors import weight


def build(*, n=1):
    """f(x) = a·x² + b; the sum of f over n elements, where there are several."""
    return Program(
        params={
            "x": lambda draw: draw.signed(n),
            "a": lambda draw: draw.signed(n),
            "b": lambda draw: draw.signed(n),
        },
        inputs={},
        stages=(
            Stage(name="square", op=elementwise.mul, reads=("x", "x"), writes="x2"),
            Stage(name="times_a", op=elementwise.mul, reads=("a", "x2"), writes="ax2"),
            Stage(name="plus_b", op=elementwise.add, reads=("ax2", "b"), writes="f"),
            Stage(name="sum", op=reduction.sum_all, reads=("f",), writes="loss"),
        ),
        loss="loss",
    )


QUADRATIC = ModelSpec(
    name="quadratic",
    build=build,
    says="f(x) = a x^2 + b with respect to x, a and b",
    source="ggml.h, its example of automatic differentiation",
    sizes=(
        Size(
            name="tiny",
            hunts="x read twice by one product: one of its two gradients lost",
        ),
        Size(name="uneven", attrs={"n": 7}, hunts="the first element's gradient for all"),
    ),
)


def build_test_opt(*, m=5, p=4, k=3):
    """Σ (c − b aᵀ)² over a [m, k] and b [p, k]; c [p, m] is data."""
    return Program(
        params={"a": weight(m, k), "b": weight(p, k)},
        inputs={"c": lambda draw: draw.normal(p, m)},
        stages=(
            Stage(name="mul_mat", op=linear.matmul, reads=("b", "a"), writes="ab"),
            Stage(name="sub", op=elementwise.sub, reads=("c", "ab"), writes="d"),
            Stage(name="sqr", op=elementwise.sqr, reads=("d",), writes="d2"),
            Stage(name="sum", op=reduction.sum_all, reads=("d2",), writes="loss"),
        ),
        loss="loss",
    )


TEST_OPT = ModelSpec(
    name="test_opt",
    build=build_test_opt,
    says="e = sum(sqr(c - a*b)) with respect to a and b: a low-rank fit",
    source="ggml's test-opt.c, from its commit log",
    sizes=(
        Size(
            name="tiny",
            hunts="a gradient without the factor 2, or with the sign of c's",
        ),
        Size(
            name="uneven",
            attrs={"m": 2, "p": 7, "k": 5},
            hunts="the gradients of the two factors exchanged or left transposed",
        ),
        Size(
            name="large",
            attrs={"m": 160, "p": 128, "k": 96},
            hunts="what only many terms show: sums cut short, blocks and their remainders",
        ),
    ),
)

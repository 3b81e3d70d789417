"""Linear regression: ŷ = x wᵀ + b and the mean of the squared errors.

Axes: n examples, d features, o outputs.
"""

from __future__ import annotations

from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Program, Stage
from gradcheck_cases import elementwise, linear, reduction
from gradcheck_cases.models.tensors import spread, weight


def build(*, n=7, d=3, o=1):
    return Program(
        params={"w": weight(o, d), "b": spread(o)},
        inputs={"x": lambda draw: draw.normal(n, d), "y": lambda draw: draw.normal(n, o)},
        stages=(
            Stage(name="predict", op=linear.matmul, reads=("x", "w", "b"), writes="predicted"),
            Stage(name="residual", op=elementwise.sub, reads=("predicted", "y"), writes="errors"),
            Stage(name="square", op=elementwise.sqr, reads=("errors",), writes="squares"),
            Stage(
                name="mean",
                op=reduction.mean,
                reads=("squares",),
                writes="loss",
                attrs={"axis": (-2, -1)},
            ),
        ),
        loss="loss",
    )


LINEAR_REGRESSION = ModelSpec(
    name="linear_regression",
    build=build,
    says="least squares: the mean of (x w + b - y)^2",
    source="Gauss 1809, Theoria motus; the first task that ggml.h names",
    sizes=(
        Size(
            name="tiny",
            hunts="a bias gradient of the last example only, a sum for a mean",
        ),
        Size(
            name="uneven",
            attrs={"n": 5, "d": 11, "o": 2},
            hunts="the mean over examples alone, or over outputs alone",
        ),
        Size(
            name="large",
            attrs={"n": 64, "d": 499, "o": 41},
            hunts="what only many terms show: sums cut short, blocks and their remainders",
        ),
    ),
)

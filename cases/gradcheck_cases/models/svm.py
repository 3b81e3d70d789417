"""A linear support vector machine: the mean hinge loss and a penalty λ‖w‖².

Axes: n examples, d features; one score an example.
"""

from __future__ import annotations

import numpy as np

from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Program, Stage
from gradcheck_cases import elementwise, linear, loss, reduction
from gradcheck_cases.models.tensors import spread, weight


def build(*, n=7, d=3):
    return Program(
        params={"w": weight(1, d), "b": spread(1)},
        inputs={
            "x": lambda draw: draw.normal(n, d),
            "labels": lambda draw: draw.signs(n, 1).astype(np.int64),
            "lambda": lambda draw: np.array(2.0**-5),
        },
        stages=(
            Stage(name="score", op=linear.matmul, reads=("x", "w", "b"), writes="scores"),
            Stage(name="hinge", op=loss.hinge, reads=("scores", "labels"), writes="short"),
            Stage(
                name="mean",
                op=reduction.mean,
                reads=("short",),
                writes="mean_short",
                attrs={"axis": (-2, -1)},
            ),
            Stage(name="square", op=elementwise.sqr, reads=("w",), writes="squares"),
            Stage(name="norm", op=reduction.sum_all, reads=("squares",), writes="norm2"),
            Stage(
                name="penalty", op=elementwise.scale, reads=("norm2", "lambda"), writes="penalty"
            ),
            Stage(name="total", op=elementwise.add, reads=("mean_short", "penalty"), writes="loss"),
        ),
        loss="loss",
    )


SVM = ModelSpec(
    name="svm",
    build=build,
    says="a support vector machine: mean of max(0, 1 - y (x w + b)) + lambda |w|^2; w is read "
    "by the scores and by the penalty",
    source="Cortes & Vapnik 1995, Machine Learning 20; the second task that ggml.h names",
    sizes=(
        Size(
            name="tiny",
            hunts="the penalty's share of dw lost, examples beyond the margin that still pull",
        ),
        Size(
            name="uneven",
            attrs={"n": 13, "d": 5},
            hunts="labels of another example, the mean over features",
        ),
    ),
)

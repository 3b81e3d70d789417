"""Small programs with residuals, a tied table and a key's bias, at one point."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import activation, attention, elementwise, indexing, linear, loss, reduction

from gradcheck.explain.reproduce import Derivatives
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.spec.program import Program, Stage


def net():
    """A tied table, one hidden layer beside a residual, a mean loss over five tokens."""
    return Program(
        params={
            "emb": lambda draw: draw.normal(6, 4, scale=0.5),
            "w1": lambda draw: draw.normal(7, 4, scale=0.5),
            "b1": lambda draw: draw.normal(7),
            "w2": lambda draw: draw.normal(4, 7, scale=0.5),
        },
        inputs={
            "tokens": lambda draw: np.array([0, 3, 0, 4, 1]),
            "targets": lambda draw: np.array([3, 0, 4, 1, 2]),
        },
        stages=(
            Stage(name="embed", op=indexing.get_rows, reads=("emb", "tokens"), writes="x0"),
            Stage(name="fc", op=linear.matmul, reads=("x0", "w1", "b1"), writes="h"),
            Stage(name="act", op=activation.tanh, reads=("h",), writes="a"),
            Stage(name="proj", op=linear.matmul, reads=("a", "w2"), writes="p"),
            Stage(name="residual", op=elementwise.add, reads=("x0", "p"), writes="x1"),
            Stage(name="unembed", op=linear.matmul, reads=("x1", "emb"), writes="logits"),
            Stage(
                name="ce",
                op=loss.softmax_cross_entropy,
                reads=("logits", "targets"),
                writes="losses",
            ),
            Stage(name="mean", op=reduction.mean, reads=("losses",), writes="loss"),
        ),
        loss="loss",
    )


def keyed():
    """Attention whose keys have a bias: its gradient is 0 by structure."""
    return Program(
        params={
            "wk": lambda draw: draw.normal(4, 4, scale=0.5),
            "bk": lambda draw: draw.normal(4),
            "wv": lambda draw: draw.normal(4, 4, scale=0.5),
            "wo": lambda draw: draw.normal(3, 4, scale=0.5),
        },
        inputs={"q": lambda draw: draw.normal(5, 4), "x": lambda draw: draw.normal(5, 4)},
        stages=(
            Stage(name="k", op=linear.matmul, reads=("x", "wk", "bk"), writes="k"),
            Stage(name="v", op=linear.matmul, reads=("x", "wv"), writes="v"),
            Stage(name="attend", op=attention.attention, reads=("q", "k", "v"), writes="y"),
            Stage(name="out", op=linear.matmul, reads=("y", "wo"), writes="z"),
            Stage(name="square", op=elementwise.sqr, reads=("z",), writes="z2"),
            Stage(name="sum", op=reduction.sum_all, reads=("z2",), writes="loss"),
        ),
        loss="loss",
    )


class Point:
    """A program at drawn values, and what a wrong VJP makes of its gradients."""

    def __init__(self, program):
        self.program = program
        tensors = {**program.params, **program.inputs}
        given = {name: drawn(Draw("explain", name)) for name, drawn in tensors.items()}
        self.values = program.forward(F64, given)
        self.cts = program.backward(F64, self.values, np.array(1.0))

    @cached_property
    def derivatives(self):
        return Derivatives(self.program, self.values, list(self.program.params))

    def fold(self, **wrong):
        """All gradients; `wrong` maps stages to `change(gradients, values)`, a list."""

        def vjp(stage, cts, values):
            found = list(stage.vjp(F64, cts, values))
            change = wrong.get(stage.name)
            return found if change is None else change(found, values)

        return self.program.backward(F64, self.values, np.array(1.0), vjp)

    def judged(self, got, names=()):
        """What `suspects` takes: wrong names, right names, errors."""
        names = [*self.program.params, *names]
        errors = {n: got[n] - self.cts[n] for n in names if n in got and got[n] is not None}
        wrong = [
            n
            for n in names
            if n not in errors or not np.all(np.abs(errors[n]) <= 1e-9 * self.size(n))
        ]
        return wrong, [n for n in names if n not in wrong], errors

    def size(self, name):
        return max(np.max(np.abs(self.cts[name])), 1e-3)


def scaled(index, factor=2.0):
    def change(found, values):
        found[index] = found[index] * factor
        return found

    return change


def element(index, place, factor=1.1):
    def change(found, values):
        found[index] = np.array(found[index])
        found[index].reshape(-1)[place] *= factor
        return found

    return change


def missing(index):
    def change(found, values):
        found[index] = None
        return found

    return change


@pytest.fixture(scope="session")
def points():
    """`points.net`, `points.keyed`."""
    return SimpleNamespace(net=Point(net()), keyed=Point(keyed()))


@pytest.fixture(scope="session")
def spoil():
    """Ways to spoil a stage's gradients."""
    return SimpleNamespace(scaled=scaled, element=element, missing=missing)

"""A small net, as a program of stages, for tests of programs and of models."""

from gradcheck_cases import activation, linear, loss, reduction

from gradcheck.spec.program import Program, Stage


def stage(name, op, reads, writes, **attrs):
    return Stage(name=name, op=op, reads=tuple(reads.split()), writes=writes, attrs=attrs)


def build(*, n=5, d=3, h=4):
    """A net with one hidden layer, whose second matrix is read twice."""
    return Program(
        params={
            "w1": lambda draw: draw.normal(h, d),
            "b1": lambda draw: draw.normal(h),
            "w2": lambda draw: draw.normal(h, h),
        },
        inputs={"x": lambda draw: draw.normal(n, d), "y": lambda draw: draw.normal(n, h)},
        stages=(
            stage("hidden", linear.matmul, "x w1 b1", "a"),
            stage("act", activation.relu, "a", "r"),
            stage("mix", linear.matmul, "r w2", "m"),
            stage("out", linear.matmul, "m w2", "p"),
            stage("errors", loss.square_error, "p y", "e"),
            stage("loss", reduction.sum_all, "e", "loss"),
        ),
        loss="loss",
    )

"""Another function's derivative: its slope, or the gradient of another operator or known mutant."""

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.hypotheses.other_function import known_mutant, other_operator
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.spec.mutant import Mutant
from tests.explain.scenes import changed, named, only, right, scene, spoiled, table


def sloping(slope):
    """A VJP of the cotangent times a slope of the primals."""
    return lambda ct, *primals, **attrs: ct * slope(*primals).astype(ct.dtype)


def diagonal(ct, x, **attrs):
    e = np.exp(x - x.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    return ct * y * (1 - y)


OTHER = "dx has another slope than forward"
AT_ELEMENT = {"evidence": "the values at that element alone"}
test_a_slope_is_named_or_described = table(
    [
        ("local", "tanh", "x", sloping(np.ones_like), "D", "passes the cotangent on as it came"),
        ("local", "tanh", "x", sloping(lambda x: 1 - np.tanh(x)), "D", "the slope 1 − y"),
        ("local", "sigmoid", "x", sloping(np.cos), "D", "the slope cos x"),
        ("local", "exp", "x", sloping(lambda x: x * np.exp(x)), "D", "the slope x · y"),
        ("local", "sqr", "x", sloping(np.sign), "D", "the slope sign x"),
        ("local", "relu", "x", sloping(lambda x: 1 / (1 + np.exp(-x))), "D", "the slope sigmoid x"),
        ("local", "mul", "y", lambda ct, x, y: (right("mul", ct, x, y)[0], ct * np.exp(x) / y), "D",
         "the slope exp x / y"),
        ("local", "tanh", "x", sloping(lambda x: np.exp(-np.abs(x)) * 1.5), "D", OTHER, AT_ELEMENT),
        ("local", "silu", "x", sloping(lambda x: x**2 / (3 + x**2)), "D", OTHER, AT_ELEMENT),
        ("local", "sqr", "x", sloping(lambda x: 2 * np.clip(x, -0.75, 0.75)), "D", OTHER,
         AT_ELEMENT),
        ("local", "gelu", "x", spoiled(
            "gelu", "x", lambda g, ct, p, a: np.where(p["x"] < -0.5, 0.25 * ct, g)), "D",
         f"{OTHER} where x < -0.5",
         {"evidence": "where it is wrong, it is 0.25 times the cotangent"}),
        ("local", "silu", "x",
         spoiled("silu", "x", lambda g, ct, p, a: np.where(p["x"] > 1, -g, g)), "S",
         "dx has the other sign where x > 1"),
        # a slope of what is summed up is one too
        ("local", "sum", "x",
         spoiled("sum", "x", lambda g, ct, p, a: g * (1.25 + np.sin(3 * p["x"]))), "D", ""),
        ("local", "tanh", "x", lambda ct, x: ct, "D", "the slope is missing"),
        ("local", "softmax", "x", lambda ct, x: ct, "D", "forward might as well not be"),
        ("local", "flip", "x", lambda ct, x, **attrs: ct, "L", "it is not put back in order"),
        ("local", "softmax", "x", diagonal, "T", "only the diagonal of the Jacobian"),
    ],
    keep=10,
)  # fmt: skip


def test_errors_on_a_kink_alone_are_no_slope():
    def vjp(ct, x):
        return np.where(x == 0, 2 * ct, right("relu", ct, x)[0])

    where = scene("relu", vjp, "x", sample="kink")
    assert not named("relu", vjp, "x", only("local"), sample="kink").label
    assert all((p.wrong("x") <= p.kinked["x"]).all() for p in where.failing)


def skipping_zeros(op):
    return spoiled(op, "x", lambda g, ct, p, a: np.where(p["x"] == 0, 0.0, g))


test_zeros_that_get_nothing_are_named = table(
    [
        ("zeros", "prod", "x", skipping_zeros("prod"), "D",
         "dx is 0 where x is: zeros are skipped", {"sample": "zeros"}),
        ("zeros", "cumprod", "x", skipping_zeros("cumprod"), "D",
         "dx is 0 where x is: zeros are skipped", {"sample": "zeros"}),
        ("zeros", "low_rank_linear", "a",
         spoiled("low_rank_linear", "a", lambda g, ct, p, a: g * p["a"].any()), "G", "all of a",
         {"sample": "zero-factor"}),
    ]
)  # fmt: skip


# ── other operators and known mutants ────────────────────────────────────────────────────────────

OPERATORS = gradcheck_cases.SUITE.operators


def of(other):
    """The gradient of another operator."""
    return lambda ct, *primals, **_: as_tuple(OPERATORS[other].vjp(F64, ct, *primals))[0]


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize(
    ("op", "vjp", "says", "operators"),
    [
        ("silu", of("sigmoid"), "dx is the gradient of sigmoid", OPERATORS),
        ("tanh", of("softcap"), "dx is the gradient of softcap", OPERATORS),
        ("relu", of("elu"), "dx is the gradient of elu", OPERATORS),
        ("silu", changed("silu", x=lambda g: 2 * g), "", OPERATORS),
        ("softmax", changed("softmax", x=lambda g: np.roll(g, 1, -1)), "", OPERATORS),
        ("tanh", changed("tanh", x=lambda g: g + 0.25), "", OPERATORS),
        ("rms_norm", changed("rms_norm", x=np.zeros_like), "", OPERATORS),
        ("tanh", lambda ct, x: ct, "", OPERATORS),  # all that copy would: `add`, `reshape`, …
        ("silu", of("sigmoid"), "", {"silu": OPERATORS["silu"]}),  # it never names itself
        ("tril", of("triu"), "", OPERATORS),  # those that move elements agree by accident
    ],
)
def test_the_other_operator_is_named(op, vjp, says, operators):
    found = named(op, vjp, "x", [other_operator(op, operators)])
    assert (found.label, found.rule) == (("D", "kin") if says else ("", "")), found
    assert not says or found.says == says


def cubed(xp, ct, x):
    return OPERATORS["tanh"].vjp(xp, ct, x) ** 3


def raising(xp, ct, x):
    raise ValueError("no")


def known(**options):
    return Mutant(
        **{"op": "tanh", "name": "cubed", "says": "The gradient is cubed.", "label": "NL",
           "killer": "typical", "vjp": cubed, **options}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("power", "mutants", "label"),
    [
        (3, [known()], "NL"),
        (2, [known()], ""),
        (3, [known(vjp=None, make=lambda: cubed)], ""),  # no function of its arguments
        (3, [known(vjp=raising), known(vjp=lambda xp, ct, x: None)], ""),
    ],
)
def test_a_known_mutant_is_named_with_its_sentence(power, mutants, label):
    found = named("tanh", changed("tanh", x=lambda g: g**power), "x", [known_mutant(mutants)])
    assert (found.label, found.rule) == (label, "nearest" if label else ""), found
    says = "dx is that of a known defect, tanh/cubed: The gradient is cubed"
    assert not label or found.says == says

"""What is wrong with a stage, in words: named only where a hypothesis reproduces it."""

import numpy as np
import pytest
from gradcheck_cases import SUITE, attention, elementwise, linear, norm

from gradcheck.explain.stage_defects import name_defect, pattern, wrong_vjps
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.spec.mutant import KnownMutants
from gradcheck.spec.program import Stage


def mutants(op):
    return KnownMutants(SUITE)[op]


class Place:
    """One stage at drawn values, with others of the same shapes beside them."""

    def __init__(self, op, shapes, **attrs):
        draw = Draw("naming", op.name)
        names = [f"v{i}" for i in range(len(shapes))]
        self.stage = Stage(name="s", op=op, reads=tuple(names), writes="y", attrs=attrs)
        self.values = {n: draw.normal(*shape) for n, shape in zip(names, shapes, strict=True)}
        for n, shape in zip(names, shapes, strict=True):
            self.values[f"other.{n}"] = draw.normal(*shape)
        self.values.update(zip(["y"], self.stage.forward(F64, self.values), strict=True))
        self.cts = (draw.normal(*self.values["y"].shape),)
        self.right = list(self.stage.vjp(F64, self.cts, self.values))
        self.mutants = mutants(op.name)

    def named(self, got, dtype="float64"):
        return name_defect(self.stage, self.cts, got, self.values, self.mutants, dtype)

    def reading(self, **swap):
        values = {**self.values, **{own: self.values[other] for own, other in swap.items()}}
        return list(self.stage.vjp(F64, self.cts, values))

    def mutant(self, which):
        vjp = next(m for m in self.mutants if m.name == which).fresh()
        primals = [self.values[n] for n in self.stage.reads]
        return list(vjp(F64, self.cts[0], *primals, **self.stage.all_attrs))


@pytest.fixture(scope="module")
def rms():
    return Place(norm.rms_norm, [(5, 6), (6,)])


@pytest.fixture(scope="module")
def dense():
    return Place(linear.matmul, [(5, 4), (3, 4), (3,)])


def test_the_right_one_has_no_name(rms, dense):
    assert rms.named(rms.right) == ()
    assert dense.named([g.astype(np.float32) for g in dense.right], "float32") == ()


def test_noise_has_no_name_and_no_pattern(dense):
    noise = Draw("noise").normal(*dense.right[1].shape)
    assert dense.named([dense.right[0], dense.right[1] + noise, dense.right[2]]) == ()


def test_a_mutant_is_named_with_its_sentence(rms):
    (said,) = rms.named(rms.mutant("second-term-short"))
    assert said.startswith("dx: rms_norm/second-term-short: The second term of dx lacks")


def test_a_wrong_saved_value_is_named(rms):
    (said,) = rms.named(rms.reading(v0="other.v0"))
    assert said == "dx, dw: reads `other.v0` where it needs `v0`."


def test_a_mutant_that_reads_a_wrong_value_too(rms):
    values = dict(rms.values)
    rms.values = {**values, "v0": values["other.v0"]}
    got = rms.mutant("second-term-short")
    rms.values = values
    assert any("second-term-short" in s and "other.v0" in s for s in rms.named([got[0], None]))


def test_one_gradient_alone_reads_the_wrong_value(dense):
    got = [*dense.right[:1], dense.reading(v0="other.v0")[1], dense.right[2]]
    (said,) = dense.named(got)
    assert "dw: reads `other.v0` where it needs `v0`" in said


def test_a_missing_gradient_and_another_defect_are_two_sentences(rms):
    first, second = rms.named([rms.mutant("second-term-short")[0], None])
    assert first == "dw: no gradient of `v1` is produced."
    assert "second-term-short" in second


def test_a_wrong_shape_is_said(dense):
    (said,) = dense.named([dense.right[0].T, *dense.right[1:]])
    assert said == "dx: its shape is (4, 5), `v0` has (5, 4)."


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda g: -g, "has the wrong sign"),
        (lambda g: 0 * g, "is lost"),
        (lambda g: np.roll(g, 1, 0), "stands one place after its own along axis 0"),
        (lambda g: g[::-1], "is reversed along axis 0"),
        (lambda g: g.T.reshape(g.shape), "has its last two axes in the other order"),
        (lambda g: 3 * g, "3 times what it should be"),
        (lambda g: g / np.sqrt(3), "(1/√3) times what it should be"),
        (lambda g: np.where(np.arange(g.size).reshape(g.shape) == 5, 2 * g, g), "element, [1, 1]"),
        (lambda g: np.where(np.arange(g.shape[1]) == 2, 0, g), "at place 2 of 4 along axis 1"),
    ],
)
def test_patterns(dense, change, says):
    (said,) = dense.named([change(dense.right[0]), *dense.right[1:]])
    assert says in said
    assert said.startswith("dx: ")


def test_one_head_is_said():
    place = Place(attention.attention, [(5, 6)] * 3, heads=3)
    keep = np.arange(6) // 2 != 1
    got = [place.right[0], place.right[1] * keep, place.right[2]]
    place.mutants = []
    (said,) = place.named(got)
    assert "zero only" in said
    assert "head 1 of 3" in said


def test_what_is_not_finite_is_said(dense):
    got = dense.right[1].copy()
    got[0, 1] = np.nan
    (said,) = dense.named([dense.right[0], got, dense.right[2]])
    assert "not finite" in said


def test_another_attribute_is_named():
    place = Place(norm.rms_norm, [(5, 6), (6,)], eps=0.5)
    place.mutants = []
    with_default = list(
        norm.rms_norm.vjp(F64, place.cts[0], *(place.values[n] for n in ("v0", "v1")))
    )
    (said,) = place.named(with_default)
    assert "takes eps = 1e-05 where it is 0.5" in said


def test_a_hypothesis_must_leave_right_what_is_right(rms):
    """dx of a VJP that reads the wrong x, with the right dw, is not "reads the wrong x" of both."""
    got = [rms.reading(v0="other.v0")[0], rms.right[1]]
    (said,) = rms.named(got)
    assert "for the gradient of `v0` alone" in said


def test_exchanged_gradients():
    place = Place(elementwise.mul, [(4, 3), (4, 3)])
    place.mutants = []
    first, second = place.right
    (one,) = place.named([second, first])[:1]
    assert "it is that of `v1`" in one


def test_dialects_of_mutants_are_kept_apart():
    plain = Place(norm.rms_norm, [(5, 6)], eps=1e-6)
    told = [h.says for h in wrong_vjps(plain.stage, plain.cts, plain.values, plain.mutants)]
    assert any("second-term-short" in says for says in told)
    assert not any("offset-ignored" in says for says in told)


def test_a_pattern_of_nothing_in_particular(dense):
    noise = Draw("more noise").normal(*dense.right[0].shape)
    assert pattern(dense.stage, 0, dense.right[0] + noise, dense.right[0], "float64") == ""

"""`check(op, x)`: a forward and a backward in one object."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck import assert_vjp, check
from gradcheck.api.one_object import functions_of
from gradcheck.errors import LoadError, UsageError

X, W = np.array([0.75, -1.5, 2.25]), np.array([-0.5, 1.25, 3.0])


def product(x, w, *, k=1.0):
    return k * x * w


def vjp(ct, x, w, *, k=1.0):
    return k * ct * w, k * ct * x


def wrong(ct, x, w, *, k=1.0):
    return 2 * k * ct * w, k * ct * x


class Saving:
    """A layer whose forward saves what its backward reads."""

    factor = 1.0

    def forward(self, x, w, *, k=1.0):
        self.saved = k * w, k * x
        return k * x * w

    def backward(self, ct):
        dx, dw = self.saved
        return self.factor * ct * dx, ct * dw


class Doubling(Saving):
    factor = 2.0


def kinds(backward):
    """Objects with this backward, by what they are."""
    return {
        "a class": type("Op", (), {"forward": product, "vjp": backward}),
        "a namespace": SimpleNamespace(forward=product, vjp=backward),
        "a mapping": {"forward": product, "vjp": backward},
        "a backward of all arguments": SimpleNamespace(forward=product, backward=backward),
        "a backward of the cotangent": Saving() if backward is vjp else Doubling(),
        "both": SimpleNamespace(forward=product, vjp=backward, backward=None),
    }


@pytest.mark.parametrize("kind", kinds(vjp))
def test_an_object_is_judged_by_its_own_two_functions(kind):
    for attrs in ({}, {"k": 3.0}):
        assert check(kinds(vjp)[kind], X, W, attrs=attrs).ok
        found = check(kinds(wrong)[kind], X, W, attrs=attrs)
        assert {f.name: f.verdict.value for f in found.findings} == {"x": "fail", "w": "pass"}
    assert_vjp(kinds(vjp)[kind], X, W)
    with pytest.raises(AssertionError):
        assert_vjp(kinds(wrong)[kind], X, W)


def test_the_object_is_named():
    class Product:
        forward, vjp = staticmethod(product), staticmethod(wrong)

    for op in (Product, Product()):
        assert str(check(op, X, W, explain=False)).startswith("FAIL Product")


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (product, "product, a function, does not have both `forward` and `vjp`"),
        (3.0, "float does not have both"),
        ({"forward": product}, "dict does not have both"),
        (SimpleNamespace(vjp=vjp, forward=3), "SimpleNamespace does not have both"),
    ],
)
def test_what_lacks_one_of_them_is_a_mistake_that_says_what_to_pass(op, said):
    with pytest.raises(UsageError) as error:
        check(op, X, W)
    assert said in str(error.value)
    assert "pass check(forward, vjp, *primals)" in str(error.value)


def test_a_backward_without_a_signature_gets_the_primals():
    assert functions_of({"forward": product, "backward": np.add}, 2)[1] is np.add


@pytest.mark.frameworks
def test_what_pytorch_differentiates_is_one_object():
    torch = pytest.importorskip("torch")

    class Product(torch.autograd.Function):
        factor = 1.0

        @staticmethod
        def forward(ctx, left, right):
            ctx.save_for_backward(left, right)
            return left * right

        @classmethod
        def backward(cls, ctx, ct):
            left, right = ctx.saved_tensors
            return cls.factor * ct * right, ct * left

    class Wrong(Product):
        factor = 2.0

    assert check(Product, X, W).ok
    found = check(Wrong, X, W)
    assert {f.name: f.verdict.value for f in found.findings} == {"left": "fail", "right": "pass"}
    assert str(found).startswith("FAIL Wrong")
    assert check(torch.nn.Tanh(), X).ok
    assert check(torch.sigmoid, X).ok
    with pytest.raises(LoadError, match="give it an instance"):
        check(torch.nn.Tanh, X)


@pytest.mark.frameworks
def test_what_jax_differentiates_is_one_object():
    jax = pytest.importorskip("jax")

    def made(factor):
        @jax.custom_vjp
        def op(left, right):
            return left * right

        backward = lambda saved, ct: (factor * ct * saved[1], ct * saved[0])  # noqa: E731
        op.defvjp(lambda *primals: (op(*primals), primals), backward)
        return op

    assert check(made(1.0), X, W).ok
    found = check(made(2.0), X, W)
    assert {f.name: f.verdict.value for f in found.findings} == {"left": "fail", "right": "pass"}
    assert check(jax.jit(lambda a: a * a), X).findings[0].name == "a"

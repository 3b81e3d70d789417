"""Gradients without a right form; code that answers the same question differently."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.shape_or_state import malformed, state_defect
from gradcheck.explain.probe import Probe
from gradcheck.implementations.returned import broken
from gradcheck.numerics.draw import Draw
from tests.explain.scenes import changed, named, only, probes, right

X, Y = Draw("recall", "x").normal(3, 4), Draw("recall", "y").normal(3, 4)
CT = (Draw("recall", "ct").away(0.0, 3, 4),)


class Product:
    """The truth of x·y."""

    defaults, choices = {}, {}

    def forward(self, primals, attrs):
        return (primals[0] * primals[1],)

    def vjp(self, ct, primals, attrs):
        return ct[0] * primals[1], ct[0] * primals[0]

    def cost(self, ct, primals, attrs):
        return None, None


def product_gradients(ct):
    return {"x": ct[0] * Y, "y": ct[0] * X}


def told(ask, otherwise="C"):
    probe = Probe(where="here", seed=0, names=("x", "y"), primals=(X, Y), attrs={}, ct=CT,
                  got=product_gradients(CT), truth=Product(), ask=ask)  # fmt: skip
    return state_defect(probe, otherwise)


class Kept:
    """Answers that depend on what was asked before: `answer(kept, ct)` gives both anew."""

    def __init__(self, answer, start):
        self.answer, self.kept = answer, start

    def __call__(self, ct):
        found, self.kept = self.answer(self.kept, ct)
        return found


def adding(kept, ct):
    found = {**product_gradients(ct), "x": kept + ct[0] * Y}
    return found, found["x"]


def lagging(kept, ct):
    return kept, product_gradients(ct)


def leaking(kept, ct):
    """What is summed starts from half of what the call before left."""
    summed = 0.5 * kept + ct[0]
    return {**product_gradients(ct), "y": summed * X}, summed


def overwriting(kept, ct):
    """A saved slope is scaled by the size of the last cotangent."""
    return {"x": ct[0] * Y * kept, "y": ct[0] * X}, 1 + np.max(np.abs(ct[0]))


@pytest.mark.parametrize(
    ("answer", "start", "label", "says"),
    [
        (adding, np.zeros((3, 4)), "A", "dx is added to what earlier calls gave: a buffer is "),
        (adding, Draw("before").normal(3, 4), "A", "dx is added to what earlier calls gave"),
        (lagging, product_gradients((0 * X,)), "V", "dx and dy are the answer to the call before"),
        (leaking, np.zeros((3, 4)), "A", "dy holds what earlier calls left"),
        (overwriting, 1.0, "X", "dx is computed from something saved that an earlier call wrote"),
    ],
)
def test_each_memory_has_its_name(answer, start, label, says):
    found = told(Kept(answer, start))
    assert (found.label, found.rule) == (label, "recall")
    assert found.says.startswith(says)
    assert found.evidence[0].startswith("at here, ")


def test_more_than_one_gradient_per_call_is_no_sum():
    def twice(kept, ct):
        found = {**product_gradients(ct), "x": kept + 2 * ct[0] * Y}
        return found, found["x"]

    found = told(Kept(twice, np.zeros((3, 4))))
    assert "never cleared" not in found.says


def noisy(scale):
    draws = np.random.Generator(np.random.Philox(key=7))
    return lambda ct: {
        **product_gradients(ct),
        "x": ct[0] * Y * (1 + scale * draws.standard_normal((3, 4))),
    }


def test_chance_is_chance():
    found = told(noisy(0.1))
    assert found.label == "C"
    assert found.says.startswith("dx changes from call to call: a race, a random number")
    assert "8 calls with the same arguments gave 8 different answers" in found.evidence[0]


def test_chance_of_the_size_of_rounding_is_the_order_of_a_sum():
    found = told(noisy(2.0**-52))
    assert found.label == "C"
    assert "a sum runs in another order" in found.says


def test_noise_that_is_added_is_no_remainder():
    draws = np.random.Generator(np.random.Philox(key=8))

    def ask(ct):
        return {**product_gradients(ct), "x": ct[0] * Y + draws.standard_normal((3, 4))}

    assert told(ask).label == "C"


def test_code_that_repeats_itself_by_now_is_said_to():
    found = told(product_gradients)
    assert found.label == "C"
    assert found.says.startswith("the answer changes from call to call")
    assert "gave the same bits" in found.evidence[0]


def test_what_takes_other_calls_is_left_as_it_was_said():
    assert told(product_gradients, "V") is None


def test_code_that_fails_tells_nothing():
    def ask(ct):
        raise broken("vjp", "vjp raised ValueError: no")

    assert told(ask) is None


EARLIER = only("earlier")


def kept(op, key):
    """A VJP that computes its gradient once for each `key(primal)`."""
    memory = {}

    def vjp(ct, *primals, **attrs):
        return memory.setdefault(key(primals[0]), right(op, ct, *primals, **attrs)[0])

    return vjp


@pytest.mark.parametrize("op", ["tanh", "softmax", "silu"])
def test_the_answer_of_a_shape_is_kept(op):
    found = named(op, kept(op, np.shape), "x", EARLIER)
    assert (found.label, found.rule) == ("V", "earlier")
    assert found.says.startswith("dx is the answer to an earlier call of the same shape")


def test_what_is_kept_sometimes_is_not_said():
    keeping = kept("tanh", np.shape)

    def vjp(ct, x):
        return keeping(ct, x) if x.shape[-1] != 5 else 3 * right("tanh", ct, x)[0]

    assert not named("tanh", vjp, "x", EARLIER).label


# ── form ─────────────────────────────────────────────────────────────────────────────────────────

ROW = {"dialect": "broadcast", "sample": "row"}
"""Where y is repeated along the rows of x."""


def shaped(op, output, change):
    """A VJP whose one gradient is `change(ct, gradient, primals)`."""
    at = {"x": 0, "y": 1, "a": 1}[output]

    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        found[at] = change(ct, found[at], primals)
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


def exchanged(factor):
    def vjp(ct, x, a, b, **attrs):
        dx, da, db = right("low_rank_linear", ct, x, a, b, **attrs)
        return dx, db * factor, da

    return vjp


def reshaped_in_one_sample(ct, g, p):
    return g.reshape(-1) if g.size == 15 else np.stack([g, 3 * g])


@pytest.mark.slow(keep=7)
@pytest.mark.parametrize(
    ("op", "output", "vjp", "label", "says"),
    [
        ("mul", "y", shaped("mul", "y", lambda ct, g, p: ct * p[0]), "B",
         "not summed over the axes along which y"),
        ("tanh", "x", shaped("tanh", "x", lambda ct, g, p: np.moveaxis(g, 0, -1)), "L",
         "its axes in another order"),
        ("tanh", "x", shaped("tanh", "x", lambda ct, g, p: g.reshape(-1)), "L",
         "right gradient in another shape"),
        ("tanh", "x", shaped("tanh", "x", lambda ct, g, p: g.sum(axis=0)), "B",
         "summed over axes that x has"),
        ("sum_rows", "x", shaped("sum_rows", "x", lambda ct, g, p: ct), "L",
         "the cotangent itself"),
        ("sum_rows", "x",
         shaped("sum_rows", "x", lambda ct, g, p: np.concatenate([g, g], axis=-1)[1:]), "I",
         "cut along"),
        ("tanh", "x", shaped("tanh", "x", lambda ct, g, p: np.stack([g**3, g], axis=0)), "",
         "no known pattern"),
        # wrong numbers in a wrong shape are no broadcast; what holds in one probe is not said
        ("mul", "y", shaped("mul", "y", lambda ct, g, p: 2 * ct * p[0]), "", "no known pattern"),
        ("tanh", "x", shaped("tanh", "x", reshaped_in_one_sample), "", "no known pattern"),
        # where shapes differ, the numbers of another gradient tell
        ("low_rank_linear", "a", exchanged(1), "G",
         "da is the gradient of b: it stands in the wrong place"),
        ("low_rank_linear", "a", exchanged(0.5), "I", "cut along another axis"),
    ],
)  # fmt: skip
def test_another_shape_says_what_it_is(op, output, vjp, label, says):
    found = malformed(output, probes(op, vjp, **(ROW if op == "mul" else {})))
    assert found.label == label, found
    assert says in found.says
    assert f"d{output} has shape" in found.evidence[0]


def test_a_right_form_has_no_diagnosis():
    assert malformed("x", probes("tanh", changed("tanh", x=lambda g: 2 * g))) is None


def test_a_gradient_that_is_not_there_is_a_slot():
    found = malformed("y", probes("mul", shaped("mul", "y", lambda ct, g, p: None)))
    assert (found.label, found.rule) == ("G", "form")
    assert found.says == "dy is not returned: y gets no gradient"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_another_dtype_is_a_precision(dtype):
    other = {"float64": "float32", "float32": "float64"}[dtype]
    vjp = shaped("tanh", "x", lambda ct, g, p: g.astype(other))
    found = malformed("x", probes("tanh", vjp, dtype=dtype))
    assert found.label == "O"
    assert found.says.startswith(f"dx comes in {other}, x in {dtype}")

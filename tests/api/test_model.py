"""`gradcheck.check_model`: what it is given, and one wrong element among a million."""

import numpy as np
import pytest

from gradcheck import Verdict, check_model
from gradcheck.errors import UsageError


def quadratic(**arrays):
    def loss():
        floating = [a for a in arrays.values() if a.dtype.kind == "f"]
        return float(sum(np.sum(a.astype(float) ** 2) for a in floating)) / 3

    return loss, {n: (2 * a / 3).astype(a.dtype) for n, a in arrays.items() if a.dtype.kind == "f"}


def points(*names, dtype=np.float64):
    draw = np.random.default_rng(0)
    return {name: draw.normal(size=(4, 3)).astype(dtype) for name in names}


def readonly():
    x = np.ones(3)
    x.flags.writeable = False
    return x


SHARED = np.ones(6)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"w": [1.0, 2.0]}, "parameter 'w' is a list: pass the array that loss reads"),
        ({"w": np.ones(3, complex)}, "parameter 'w' is complex128: pass float64 or float32"),
        ({"w": np.ones(3, np.float16)}, "parameter 'w' is float16: pass float64 or float32"),
        ({"w": np.ones(3, object)}, "parameter 'w' is object: pass float64 or float32"),
        ({"w": np.ones((3, 4)).T}, "parameter 'w' is not C-contiguous"),
        ({"w": np.ones(9)[::2]}, "parameter 'w' is not C-contiguous"),
        ({"w": readonly()}, "parameter 'w' is read-only: it is moved in place"),
        ({"a": SHARED, "b": SHARED[3:]}, "parameters 'a' and 'b' share memory: name it once"),
        ({}, "no floating parameter"),
        ({"step": np.array(3)}, "no floating parameter"),
    ],
)
def test_parameters_that_cannot_be_moved_in_place_are_refused(params, says):
    with pytest.raises(UsageError, match=says):
        check_model(lambda: 1.0, params, {})


def test_a_loss_that_is_no_function_is_refused():
    with pytest.raises(UsageError, match="loss is a float: pass a function"):
        check_model(1.0, points("w"), {})


def test_every_fault_of_form_is_one_line_and_the_rest_is_judged():
    params = points("a", "b", "c", "d", "e", "f")
    loss, gradients = quadratic(**params)
    gradients["a"] = gradients["a"].T
    gradients["b"] = gradients["b"].astype(np.float32)
    gradients["c"] = "none"
    del gradients["d"]
    gradients["e"] = []
    gradients["ff"] = gradients["f"]
    result = check_model(loss, params, gradients)
    found = {f.name: f for f in result.findings}
    assert {n: f.verdict for n, f in found.items()} == {
        "a": Verdict.FAIL,
        "b": Verdict.FAIL,
        "c": Verdict.FAIL,
        "d": Verdict.MISSING,
        "e": Verdict.MISSING,
        "f": Verdict.PASS,
        "ff": Verdict.ERROR,
    }
    assert found["a"].reason.startswith("the gradient of a has shape (3, 4), a has (4, 3)")
    assert found["b"].reason.startswith("the gradient of b is float32, b is float64")
    assert found["ff"].reason == (
        "a gradient of nothing: unknown parameter 'ff': did you mean 'f'?"
    )
    assert not result
    assert all("\n" not in f.reason for f in found.values())


def test_a_loss_that_is_nan_is_one_line():
    params = points("w")
    result = check_model(lambda: np.nan, params, {"w": params["w"]})
    assert len(result.findings) == 1
    assert str(result).startswith("INCONCLUSIVE gradients · loss, float64\n  loss is nan here")
    assert result.details().startswith("INCONCLUSIVE gradients, float64: loss is nan here")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_loss_may_take_the_parameters_or_nothing(dtype):
    params = points("w", "v", dtype=dtype)
    loss, gradients = quadratic(**params)

    def of_params(params):
        return sum(np.sum(p.astype(float) ** 2) for p in params.values()) / 3

    results = [
        check_model(f, params, gradients) for f in (loss, of_params, lambda p=params: of_params(p))
    ]
    assert all(results)
    assert [f.got for f in results[0].findings] == [f.got for f in results[1].findings]


def test_a_loss_without_a_signature_is_called_with_nothing():
    params = points("w")
    loss, gradients = quadratic(**params)

    class Foreign:
        __signature__ = "none"

        def __call__(self):
            return loss()

    assert check_model(Foreign(), params, gradients)


def test_integers_are_left_alone_and_buffers_are_summed():
    params = points("w") | {"tokens": np.arange(5), "mask": np.ones(3, bool)}
    loss, gradients = quadratic(**params)
    part = np.full((4, 3), 0.25)
    gradients["w"] = [gradients["w"] - part, part]
    gradients["tokens"] = None
    before = {n: p.tobytes() for n, p in params.items()}
    result = check_model(loss, params, gradients)
    assert result
    assert [f.name for f in result.findings] == ["w"]
    assert {n: p.tobytes() for n, p in params.items()} == before
    gradients["w"].pop()
    assert check_model(loss, params, gradients).verdict is Verdict.FAIL


def test_other_byte_orders_and_scalars_are_parameters_too():
    params = {"swapped": np.arange(1.0, 6.0).astype(">f8"), "scalar": np.array(2.0)}

    def loss():
        return np.sum(params["swapped"].astype(float) ** 3) + np.exp(params["scalar"])

    gradients = {
        "swapped": (3 * params["swapped"] ** 2).astype(">f8"),
        "scalar": np.exp(params["scalar"]),
    }
    assert check_model(loss, params, gradients)
    gradients["scalar"] = np.array(7.0)
    result = check_model(loss, params, gradients)
    assert [f.verdict for f in result.findings] == [Verdict.PASS, Verdict.FAIL]
    assert result.findings[1].want == pytest.approx(np.exp(2.0))


def test_the_text_says_what_would_have_been_seen_and_what_it_cost(network):
    net = network(20, 30, 4)
    gradients = net.gradients()
    text = str(check_model(net.loss, net.params, gradients))
    assert text.startswith("PASS gradients of loss, float64\n")
    head, *rows = text.splitlines()[2:]
    assert head.split("  ")[-1].strip() == "forwards"
    assert "one wrong element shows from" in head
    assert [row.split()[-1] for row in rows[1:]] == ["6"] * 4
    gradients["w1"][2, 7] *= 1.1
    found = check_model(net.loss, net.params, gradients)
    text = "FAIL gradients of loss · dw1, float64\n  1 of 120 elements is wrong\n  dw1[2, 7] got "
    assert str(found).startswith(text)
    assert "\n  worst: dw1[2, 7] got " in found.details()


# --- a million parameters -----------------------------------------------------------------------


@pytest.fixture
def million(network):
    """784 → 1,000 → 250: 1,035,250 parameters."""
    return lambda dtype: network(784, 1000, 250, batch=4, dtype=dtype)


@pytest.mark.slow
def test_one_wrong_element_of_a_million_is_detected_and_named(million, record_property):
    net = million("float64")
    assert sum(p.size for p in net.params.values()) > 1_000_000
    gradients = net.gradients()
    right = gradients["w0"][123, 456]
    gradients["w0"][123, 456] *= 1.1
    net.forwards = 0
    result = check_model(net.loss, net.params, gradients)
    found = {f.name: f for f in result.findings}
    assert {n: f.verdict.name for n, f in found.items()} == {
        "w0": "FAIL",
        "b0": "PASS",
        "w1": "PASS",
        "b1": "PASS",
    }
    assert found["w0"].worst_index == (123, 456)
    assert found["w0"].reason == "1 of 784,000 elements is wrong"
    assert abs(found["w0"].want - right) <= 2 * found["w0"].error_bar <= 1e-6 * abs(right)
    assert net.forwards == 2 + sum(f.evaluations for f in found.values())
    record_property("forwards", net.forwards)
    assert net.forwards < 500


@pytest.mark.slow
def test_in_float32_the_same_element_is_below_what_shows_and_that_is_said(million):
    net = million("float32")
    gradients = net.gradients()
    gradients["w0"][123, 456] *= 1.1
    result = check_model(net.loss, net.params, gradients)
    found = result.findings[0]
    assert found.verdict is Verdict.PASS
    assert found.smallest_visible_error > 0.1
    row = next(line for line in str(result).splitlines() if line.startswith("dw0"))
    assert "×" in row  # times its own size, not a part of it
    gradients["w0"][123, 456] += (
        20 * found.smallest_visible_error * np.sqrt(np.mean(gradients["w0"] ** 2))
    )
    found = check_model(net.loss, net.params, gradients).findings[0]
    assert (found.verdict, found.worst_index) == (Verdict.FAIL, (123, 456))


@pytest.mark.slow
def test_a_whole_tensor_of_a_million_wrong_by_a_millionth_fails(million):
    net = million("float64")
    gradients = net.gradients()
    gradients["w0"] *= 1 + 1e-6
    result = check_model(net.loss, net.params, gradients, locate=False)
    assert [f.verdict.name for f in result.findings] == ["FAIL", "PASS", "PASS", "PASS"]
    assert "1.000001 times the slope of the loss" in result.findings[0].reason

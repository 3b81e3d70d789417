"""What `gradcheck.check` says of a wrong VJP when nothing but forward is known."""

import sys

import numpy as np
import pytest

from gradcheck import check
from gradcheck.explain import black_box
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.narrow import BFLOAT16, TF32, cut

X, W = Draw("black box", "x").normal(4, 5), Draw("black box", "w").signed(5)


def rms(x, w, eps=0.1):
    return w * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def rms_vjp(ct, x, w, eps=0.1):
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    n, g = x * r, ct * w
    return r * (g - n * np.mean(g * n, axis=-1, keepdims=True)), (ct * n).sum(axis=0)


def told(forward, vjp, *primals, output="x", **options):
    found = check(forward, vjp, *primals, **options)
    assert not found.ok
    finding = next(f for f in found.findings if f.name == output)
    assert finding.diagnosis is not None
    return finding.diagnosis


def changed(x=lambda g: g, w=lambda g: g):
    def vjp(ct, *primals, **attrs):
        dx, dw = rms_vjp(ct, *primals, **attrs)
        return x(dx), w(dw)

    return vjp


@pytest.mark.suite(keep=6)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("vjp", "output", "label", "says"),
    [
        (changed(x=lambda g: -g), "x", "S", "dx has the wrong sign"),
        (changed(w=lambda g: g / 4), "w", "R", "averaged instead of summed"),
        (changed(x=np.zeros_like), "x", "G", "dx is zero"),
        (changed(w=lambda g: None), "w", "G", "dw is not returned"),
        (lambda ct, x, w: rms_vjp(np.ones_like(ct), x, w), "x", "U", "ignores the cotangent"),
        (lambda ct, x, w: (rms_vjp(ct, x, w)[0], ct * x), "w", "", "no known pattern"),
    ],
)
def test_a_wrong_vjp_is_named(vjp, output, label, says, dtype):
    found = told(rms, vjp, X.astype(dtype), W.astype(dtype), output=output)
    assert found.label == label, found
    assert says in found.says


def test_what_is_right_costs_nothing_and_has_no_diagnosis(monkeypatch):
    monkeypatch.delitem(sys.modules, "gradcheck.explain.black_box")
    found = check(rms, rms_vjp, X, W)
    assert found.ok
    assert all(finding.diagnosis is None for finding in found.findings)
    assert "gradcheck.explain.black_box" not in sys.modules


def test_only_what_is_wrong_is_explained():
    found = check(rms, changed(x=lambda g: 2 * g), X, W)
    assert [f.diagnosis is None for f in found.findings] == [False, True]


def test_an_attribute_is_told_from_a_constant():
    def fixed(ct, x, w, eps):
        return rms_vjp(ct, x, w, 1e-5)

    found = told(rms, fixed, X, W, attrs={"eps": 0.3})
    assert found.label == "E"
    assert "eps = 1e-05" in found.says
    assert "other eps" in found.evidence[-1]


def test_the_default_of_forward_is_known():
    def default(ct, x, w, eps):
        return rms_vjp(ct, x, w)

    found = told(rms, default, X, W, attrs={"eps": 0.3})
    assert "eps = 0.1, its default" in found.says


def test_the_output_in_the_place_of_the_input_is_named():
    found = told(np.tanh, lambda ct, x: ct * (1 - np.tanh(np.tanh(x)) ** 2), X)
    assert (found.label, found.says) == ("V", "dx reads the output where it needs x")


def test_a_coincidence_at_the_point_checked_is_not_enough():
    point = X.copy()

    def twice_here(ct, x):
        return ct * np.cos(x) * (2 if np.array_equal(x, point) else 3 * x)

    assert told(np.sin, twice_here, X).label != "F"


def test_a_forward_that_saves_for_its_vjp_has_saved_what_is_asked():
    class Saving:
        def forward(self, x):
            self.x = x
            return np.sin(x)

        def vjp(self, ct, x):
            return 2 * ct * np.cos(self.x)

    saving = Saving()
    found = told(saving.forward, saving.vjp, X)
    assert found.says == "dx is twice the right value"
    assert "all 4 probes" in found.evidence[-1]


def test_beyond_the_largest_what_was_differenced_is_known(monkeypatch):
    big = Draw("black box", "big").normal(32, 40)
    found = told(np.sin, lambda ct, x: -ct * np.cos(x), big)
    assert found.label == "S"
    assert "all 2 probes (the point checked)" in found.evidence[-1]


def test_a_forward_that_is_slow_is_asked_nothing_more(monkeypatch):
    monkeypatch.setattr(black_box.Differenced, "affords", lambda self, point: False)
    found = told(np.sin, lambda ct, x: -ct * np.cos(x), X)
    assert found.label == "S"
    assert "all 2 probes" in found.evidence[-1]


def test_a_domain_that_other_primals_leave_is_left_out():
    def asin(x):
        if np.any(np.abs(x) > 1):
            raise ValueError("out of the domain")
        return np.arcsin(x)

    x = np.array([0.9, -0.95, 0.85, -0.9])
    found = told(asin, lambda ct, x: -ct / np.sqrt(1 - x**2), x)
    assert found.label == "S"
    assert "all 2 probes (the point checked)" in found.evidence[-1]


# ── calls ────────────────────────────────────────────────────────────────────────────────────


def test_a_buffer_that_is_never_cleared():
    kept = [np.zeros_like(X)]

    def adding(ct, x):
        kept[0] = kept[0] + ct * np.cos(x)
        return kept[0]

    found = told(np.sin, adding, X, output="vjp")
    assert found.label == "A"
    assert found.says == "dx is added to what earlier calls gave: a buffer is never cleared"


def test_a_random_number():
    draws = np.random.Generator(np.random.Philox(key=3))

    def noisy(ct, x):
        return ct * np.cos(x) * (1 + 1e-3 * draws.standard_normal(x.shape))

    assert told(np.sin, noisy, X, output="vjp").label == "C"


def test_an_argument_that_is_written_to():
    def in_place(ct, x):
        ct *= np.cos(x)
        return ct

    found = told(np.sin, in_place, X, output="vjp")
    assert (found.label, found.rule) == ("X", "call")


def test_an_answer_that_is_kept():
    kept = {}

    def cached(ct, x):
        return kept.setdefault(x.shape, ct * np.cos(x))

    found = told(np.sin, cached, X)
    assert found.label == "V"
    assert "the answer to an earlier call" in found.says


def test_code_that_raises_has_no_class():
    found = check(np.sin, lambda ct, x: 1 / 0, X)
    assert found.findings[0].diagnosis is None


def test_the_class_stands_in_the_text():
    text = str(check(rms, changed(w=lambda g: g / 4), X, W))
    assert text.splitlines()[0].startswith("FAIL vjp, float64: dw: reduction: dw is 1/n of the")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("width", [5, 700])
def test_a_term_that_lacks_a_factor_is_seen_in_what_is_off(width):
    x, w = Draw("wide", width).normal(3, width), Draw("wide", "w").signed(width)

    def short(ct, x, w):
        r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 0.1)
        g = ct * w
        dx = r * (g - x * np.mean(g * x * r, axis=-1, keepdims=True))
        return dx, (ct * x * r).sum(axis=0)

    found = told(rms, short, x, w)
    assert found.label == "T"
    assert found.says.startswith("dx is off by a multiple of x in every row")


@pytest.mark.suite(keep=2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("narrow", "says"),
    [
        (TF32.rounded, "w is rounded to 10 bits of mantissa, as TF32 and float16 do"),
        (BFLOAT16.rounded, "w is rounded to bfloat16 (7 bits of mantissa)"),
        (lambda a: cut(a, 11), "w is cut to 10 bits of mantissa, as TF32 and float16 do"),
    ],
)
def test_operands_that_are_rounded_are_named_with_their_type(dtype, narrow, says):
    x, w = (Draw("narrow", name).normal(4, 5).astype(dtype) for name in "xw")

    def vjp(ct, x, w):
        a, b = (np.asarray(narrow(p), dtype=p.dtype) for p in (x, w))
        return ct @ b, ct.T @ a

    found = told(lambda x, w: x @ w.T, vjp, x, w)
    assert (found.label, found.says) == ("O", says)

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.errors import ManifestError
from gradcheck.judge.asked_contract import examine
from gradcheck.judge.contract.asking import Unasked, Unfit, Vacuous
from gradcheck.judge.contract.battery import PROPERTIES
from gradcheck.judge.contract.sizes import SIZES, sizes
from gradcheck.results.verdict import Verdict
from tests.ending import ends


def test_every_size_that_is_wrong_is_named(subject, mutant):
    seen = sizes(subject(mutant("no-tail"))).seen
    assert seen.startswith("with 9 along the last axis, dw: ")
    assert "all that are wrong: 9, 15, 17, 31, 33, 63, 65, 127, 129 along the last" in seen


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("lone-column", "with 1 along the last axis, dx: "),
        ("no-rows", "with 0 along the first axis, dw: 21 of 21 elements are not finite"),
        ("few-rows", "with 65 along the first axis, dw: "),
    ],
)
def test_special_sizes_are_seen(subject, mutant, name, start):
    assert sizes(subject(mutant(name), dtype="float64")).seen.startswith(start)


def test_a_size_that_raises_is_an_error(subject, right):
    both = right.both

    def some(ct, x, w, eps):
        if x.shape[-1] == 33:
            raise ValueError("33 is unlucky")
        return both(ct, x, w, eps)

    right.both = some
    breach = sizes(subject(right))
    assert breach.verdict is Verdict.ERROR
    assert breach.seen == "with 33 along the last axis, vjp raised ValueError: 33 is unlucky"


def test_after_a_crash_no_further_size_is_asked(subject, right):
    asked = []
    both = right.both

    def fragile(ct, x, w, eps):
        asked.append(x.shape)
        if x.shape != (3, 7):
            ends("vjp", "SIGSEGV in rms", Verdict.CRASH)
        return both(ct, x, w, eps)

    right.both = fragile
    breach = sizes(subject(right))
    assert breach.verdict is Verdict.CRASH
    assert breach.seen == "with 0 along the last axis, SIGSEGV in rms"
    assert [shape for shape in asked if shape != (3, 7)] == [(3, 0)]


def test_what_its_own_forward_refuses_is_not_owed(subject, silu):
    def refuses(x):
        if x.shape[-1] != 7:
            raise ValueError("7 columns")
        return x / (1 + np.exp(-x))

    def vjp(ct, x):
        refuses(x)
        return right(ct, x)

    right, silu.vjp, silu.forward = silu.vjp, vjp, refuses
    assert sizes(subject(silu, "silu/default/typical")) is None


def test_a_wrong_gradient_is_not_told_again(subject):
    wrong = SimpleNamespace(vjp=lambda ct, x: 2 * ct)
    with pytest.raises(Unasked, match="wrong"):
        sizes(subject(wrong, "silu/default/typical"))


def test_right_ones_are_right_at_every_size(subject, right):
    seen = set()
    both = right.both

    def spy(ct, x, w, eps):
        seen.add(x.shape)
        return both(ct, x, w, eps)

    right.both = spy
    assert sizes(subject(right)) is None
    assert seen == {(3, n) for n in SIZES} | {(n, 7) for n in SIZES}


@pytest.mark.parametrize("name", ["packed_swiglu/default/typical", "attention/separate/typical"])
def test_sizes_that_make_no_whole_parts_are_left_out(subject, name):
    assert sizes(subject(name=name)) is None


def test_a_sample_that_is_written_out_cannot_be_resized(subject):
    with pytest.raises(Vacuous, match="other sizes"):
        sizes(subject(name="rms_norm/plain/unsolved"))


def test_sizes_whose_results_a_narrow_dtype_does_not_hold_are_left_out(subject):
    """A product of 63 factors underflows in float16: that is no fault of who computes it."""
    products = subject(name="cumprod/default/typical", dtype="float16")
    with pytest.raises(Unfit, match="float16 does not hold"):
        products.resized(-1, 63).wrong()
    assert products.right
    assert sizes(products) is None


@pytest.mark.parametrize(("before", "verdict"), [(0, Verdict.NOTRUN), (1, Verdict.CRASH)])
def test_a_size_that_is_run_no_more_is_not_a_wrong_one(subject, silu, before, verdict):
    """After ten crashes of an operator nothing of it is run: that says nothing of its gradient."""
    right, left = silu.vjp, before

    def vjp(ct, x):
        nonlocal left
        if x.shape == subject(name="silu/default/typical").primals[0].shape:
            return right(ct, x)
        left -= 1
        if left >= 0:
            ends("vjp", "SIGSEGV", Verdict.CRASH)
        return ends("vjp", "not run after 10 crashes of silu", Verdict.NOTRUN)

    silu.vjp = vjp
    asked = next(p for p in PROPERTIES if p.name == "sizes")
    assert examine(asked, subject(silu, "silu/default/typical")).verdict is verdict


def test_a_size_at_which_a_manifest_means_nothing_is_none_that_is_supported(subject, silu):
    asked = subject(silu, "silu/default/typical")
    shape, bind = asked.primals[0].shape, asked.binding.bind

    def bound(case, dtype):
        if case.primals[0].shape != shape:
            raise ManifestError("`size(x) / 7` of parameter `n` yields 0.5")
        return bind(case, dtype)

    asked.binding.bind = bound
    with pytest.raises(Vacuous, match="other sizes"):
        sizes(asked)

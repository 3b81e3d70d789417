from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.errors import ManifestError
from gradcheck.implementations.returned import Broken
from gradcheck.judge.contract.asking import Unasked, Unfit, Vacuous
from gradcheck.judge.contract.other_points import (
    COMPILED,
    SEEN,
    SIZES,
    _candidates,
    attributes,
    few_sizes,
    form,
    layouts,
    sizes,
    subsets,
)
from gradcheck.judge.contract_check import PROPERTIES, examine
from gradcheck.results.verdict import Verdict
from tests.ending import ends


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("double-zeros", "with a cotangent of zeros, dx is float64, and x float32"),
        ("double-of-one-row", "with 1 along the first axis, dw is float64, and w float32"),
        ("wrong-dtype", "with the cotangent normal, dw is float64, and w float32"),
    ],
)
def test_a_path_with_another_dtype_is_seen(subject, mutant, name, seen):
    assert form(subject(mutant(name))).seen == seen


def test_integers_are_no_gradient(subject, silu):
    silu.vjp = lambda ct, x: np.zeros(x.shape, dtype=np.int64)
    assert form(subject(silu, "silu/default/typical")).seen.endswith("dx is int64, and x float32")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_right_ones_keep_the_dtype(subject, dtype):
    assert form(subject(dtype=dtype)) is None


def test_a_size_that_raises_is_another_question(subject, right):
    both = right.both

    def some(ct, x, w, eps):
        if not x.size:
            raise ValueError("nothing to do")
        return both(ct, x, w, eps)

    right.both = some
    assert form(subject(right)) is None


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ((Verdict.CRASH, Verdict.ERROR), Verdict.CRASH),
        ((Verdict.ERROR, Verdict.CRASH), Verdict.CRASH),
        ((Verdict.ERROR, None), Verdict.ERROR),
        ((Verdict.CRASH, None), Verdict.CRASH),
        ((Verdict.ERROR, Verdict.ERROR), None),
    ],
)
def test_what_fails_once_is_told_and_what_refuses_is_another_question(subject, silu, calls, told):
    """A size that raises, and again, is not supported; whatever ends a process is told."""
    right, left = silu.vjp, [*calls]

    def vjp(ct, x):
        how = left.pop(0) if left else None
        return right(ct, x) if how is None else ends("vjp", "it failed", how)

    silu.vjp = vjp
    asked = subject(silu, "silu/default/typical")
    if told is None:
        assert asked.raw_if_any(asked.cts[0]) == {}
    else:
        with pytest.raises(Broken) as error:
            asked.raw_if_any(asked.cts[0])
        assert error.value.finding.verdict is told


@pytest.mark.slow
def test_every_size_that_is_wrong_is_named(subject, mutant):
    seen = sizes(subject(mutant("no-tail"))).seen
    assert seen.startswith("with 9 along the last axis, dw: ")
    assert "all that are wrong: 9, 15, 17, 31, 33, 63, 65, 127, 129 along the last" in seen


@pytest.mark.slow(keep=1)
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
    assert breach.seen == "with 1 along the last axis, SIGSEGV in rms"
    assert [shape for shape in asked if shape != (3, 7)] == [(3, 1)]


def test_no_elements_are_asked_for_along_batch_axes_alone(subject, right, silu):
    """A norm has a value without rows, and none without features; silu has neither."""
    both, without = right.both, []

    def none(ct, x, w, eps):
        without.extend([x.shape] * (x.size == 0))
        if x.shape[0] == 0:
            raise ValueError("no rows")
        return both(ct, x, w, eps)

    right.both = none
    breach = sizes(subject(right))
    assert breach.verdict is Verdict.ERROR
    assert breach.seen == "with 0 along the first axis, vjp raised ValueError: no rows"
    assert form(subject(right)) is None
    assert {*without} == {(0, 7)}

    vjp = silu.vjp
    silu.vjp = lambda ct, x: vjp(ct, x) if x.shape[-1] else 1 / 0
    assert sizes(subject(silu, "silu/default/typical")).seen.startswith("with 0 along the last")


def test_code_that_is_compiled_for_each_size_is_asked_at_few(subject, right, mutant):
    seen, both = set(), right.both

    def spy(ct, x, w, eps):
        seen.add(x.shape)
        return both(ct, x, w, eps)

    right.both = spy
    for compiles, tried in ((True, COMPILED), (False, SIZES)):
        seen.clear()
        asked = subject(right)
        asked.bound = replace(asked.bound, compiles=compiles)
        assert few_sizes(asked) is None
        assert seen == {(3, 7)} | {(3, n) for n in tried if n} | {(n, 7) for n in tried}
    wrong = subject(mutant("no-tail"))
    wrong.bound = replace(wrong.bound, compiles=True)
    assert few_sizes(wrong).seen.startswith("with 33 along the last axis, dw: ")


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
    assert seen == {(3, n) for n in SIZES if n} | {(n, 7) for n in SIZES}
    beside = {2**k + d for k in range(3, 8) for d in (-1, 0, 1)}
    assert {n for n, columns in seen if columns == 7} >= {0, 1} | beside


@pytest.mark.slow(keep=1)
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


def test_an_attribute_that_is_ignored_is_seen(subject, mutant):
    assert attributes(subject(mutant("ignores-eps"))).seen == (
        "eps is ignored: where eps changes from 1e-05 to 0.1, the truth changes, and no answer"
    )


def test_an_attribute_that_is_followed_wrongly_is_seen(subject, right):
    both = right.both
    right.both = lambda ct, x, w, eps: both(ct, x, w, eps if eps < 1e-3 else 2 * eps)
    seen = attributes(subject(right)).seen
    assert seen.startswith("where eps changes from 1e-05 to 0.1, dx: ")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_follow_it(subject, right, dtype):
    assert attributes(subject(right, dtype=dtype)) is None
    assert attributes(subject(name="layer_norm/affine/typical", dtype=dtype)) is None


def test_what_is_fixed_in_the_code_is_not_asked(subject, right):
    fixed = SimpleNamespace(vjp=lambda ct, x, w: right.both(ct, x, w, 1e-5))
    with pytest.raises(Vacuous, match="no attribute"):
        attributes(subject(fixed))


def test_an_operator_without_attributes_owes_nothing(subject):
    entry = SimpleNamespace(vjp=lambda ct, x: -ct)
    with pytest.raises(Vacuous, match="no attributes"):
        attributes(subject(entry, "neg/default/typical"))


def test_attributes_do_not_repeat_a_wrong_gradient(subject, right):
    right.both = lambda ct, x, w, eps: (ct, np.zeros_like(w))
    with pytest.raises(Unasked, match="wrong"):
        attributes(subject(right))


def test_numbers_are_nudged_by_a_quarter_and_no_further(subject, right):
    """A probability must stay one."""
    spec = subject(right).case.spec
    known = {part.attrs.get("eps") for part in (*spec.samples, *spec.dialects)}
    values = [value for name, value in _candidates(subject(right)) if name == "eps"]
    asked = {*values} - {1e-5}
    assert len(asked) == len(values)  # each once, and never what it is
    assert asked - known - {spec.defaults["eps"]} == {1.25 * 1e-5, 0.75 * 1e-5, SEEN}


@pytest.mark.parametrize(
    ("name", "fixed", "asked"),
    [
        ("lstm_cell/pytorch/typical", "order", {"forget_bias"}),
        ("huber/huber/typical", "scaled", {"delta", "reduction"}),
    ],
)
def test_a_switch_between_dialects_is_not_asked_and_what_follows_it_is(subject, name, fixed, asked):
    one = subject(name=name)
    assert fixed in one.case.attrs
    assert {attr for attr, _ in _candidates(one)} == asked


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("flat-dy", "with the cotangent in Fortran order, dx["),
        ("strides-of-x", "with the cotangent in Fortran order, dx["),
        ("flat-x", "with x in Fortran order, dx["),
        ("flat-w", "with w every second element, dx["),
    ],
)
def test_assumed_strides_are_seen(subject, mutant, name, seen):
    assert layouts(subject(mutant(name))).seen.startswith(seen)


def test_code_that_copies_only_what_it_cannot_read_must_see_stride_zero(subject, mutant):
    """A check for rows that follow each other lets an expanded row pass."""
    naive = mutant("flat-dy")
    flat, right = naive.both, mutant("right").both

    def both(ct, x, w, eps):
        rows = ct.strides[-1] in (0, ct.itemsize)
        return flat(ct, x, w, eps) if rows else right(ct, x, w, eps)

    naive.both = both
    assert "the cotangent" in layouts(subject(naive)).seen


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_read_any_layout(subject, right, dtype):
    assert layouts(subject(right, dtype=dtype)) is None
    assert layouts(subject(name="get_rows/default/typical", dtype=dtype)) is None
    assert layouts(subject(name="lstm_cell/pytorch/typical", dtype=dtype)) is None


def test_what_only_ever_sees_copies_cannot_be_asked(subject, right):
    asked = subject(right)
    asked.bound = replace(asked.bound, strided=False)
    with pytest.raises(Unasked, match="contiguous copies"):
        layouts(asked)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("projection-with-dw", "asked for dx alone, dx["),
        ("dw-with-dx", "asked for dw alone, dw["),
    ],
)
def test_a_gradient_that_needs_another_is_seen(subject, mutant, name, seen):
    assert subsets(subject(mutant(name))).seen.startswith(seen)


def test_a_gradient_that_is_not_given_is_an_error(subject, mutant):
    with pytest.raises(Broken, match="asked for dx alone: no gradient for x"):
        subsets(subject(mutant("all-or-nothing")))


def test_what_needs_gives_must_be_what_vjp_gives(subject, right):
    vjp = right.vjp
    right.vjp = lambda ct, x, w, *, eps=1e-5, needs=None: tuple(
        g if g is None or needs is None else 2 * g
        for g in vjp(ct, x, w, eps=eps, needs=needs or (True, True))
    )
    assert subsets(subject(right)).seen.startswith("asked for all gradients by `needs`, d")


def test_right_ones_do_not_care(subject, right):
    asked = []
    vjp = right.vjp

    def spy(ct, x, w, *, eps=1e-5, needs=(True, True)):
        asked.append(needs)
        return vjp(ct, x, w, eps=eps, needs=needs)

    right.vjp = spy
    assert subsets(subject(right)) is None
    assert {(True, False), (False, True), (True, True)} == set(asked)


def test_who_takes_no_needs_cannot_be_asked(subject, right):
    right.vjp = lambda ct, x, w, *, eps=1e-5: right.both(ct, x, w, eps)
    with pytest.raises(Unasked, match="needs"):
        subsets(subject(right))


def test_one_gradient_has_no_others(subject, silu):
    with pytest.raises(Vacuous):
        subsets(subject(silu, "silu/default/typical"))


def test_of_what_is_not_asked_for_anything_may_come(subject, right):
    vjp = right.vjp
    right.vjp = lambda ct, x, w, *, eps=1e-5, needs=(True, True): tuple(
        np.full_like(p, np.nan) if not need else g
        for g, need, p in zip(vjp(ct, x, w, eps=eps), needs, (x, w), strict=True)
    )
    assert subsets(subject(right)) is None


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("attention/separate/typical", "dq and dk"),
        ("lstm_cell/pytorch/single", "dx and dh and dc and dw_ih and dw_hh and db_ih"),
    ],
)
def test_a_gradient_that_is_wrong_with_some_others_alone_is_seen(subject, name, asked):
    """Right alone, right with all of them: two of three, and all but one of many, are asked."""
    one = subject(name=name, dtype="float64")
    names, vjp = one.truth.names, one.bound.vjp

    def spoilt(needs, ct, *primals, **attrs):
        out = [*vjp(ct, *primals, **attrs)]
        if " and ".join(f"d{n}" for n, need in zip(names, needs, strict=True) if need) == asked:
            out[0] = 2 * out[0]
        return tuple(out)

    one.bound = replace(one.bound, asked=spoilt)
    assert subsets(one).seen.startswith(f"asked for {asked} alone, d")

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.returned import Broken
from gradcheck.judge.compare import tolerance_of
from gradcheck.judge.contract.asking import Unasked, Unfit, difference, finite, in_digits, place
from gradcheck.judge.contract.subject import Resized, _in_proportion, resized, several_rows
from gradcheck.judge.contract_check import contract_cases
from gradcheck.spec import Slack


def test_a_point_outside_of_the_domain_is_unfit(subject, right):
    with pytest.raises(Unfit, match="cannot be drawn"):
        subject(name="rms_norm/plain/unsolved").resized(-1, 8)


def test_a_size_that_leaves_a_remainder_is_unfit(subject):
    packed = subject(name="packed_swiglu/default/typical")
    assert packed.resized(-1, 8).primals[0].shape[-1] == 8
    with pytest.raises(Unfit, match="broadcast"):
        packed.resized(-1, 9)
    qkv = subject(name="packed_attention/gpt2/typical")
    size = qkv.primals[0].shape[-1]
    assert size % 3 == 0
    with pytest.raises(Unfit):
        qkv.resized(-1, size + 1)


def test_an_attribute_that_the_code_has_fixed_is_unfit(subject, right):
    fixed = SimpleNamespace(vjp=lambda ct, x, w: right.both(ct, x, w, 1e-5))
    with pytest.raises(Unfit, match="eps"):
        subject(fixed).renamed("nudged", {"eps": 0.5})


def test_other_values_have_the_same_shapes(subject, right):
    one = subject(right)
    two = one.renamed("other")
    assert [p.shape for p in one.primals] == [p.shape for p in two.primals]
    assert not np.array_equal(one.primals[0], two.primals[0])


def test_an_attribute_changes_and_nothing_else(subject, right):
    one = subject(right)
    two = one.renamed("nudged", {"eps": 0.5})
    np.testing.assert_array_equal(one.primals[0], two.primals[0])
    assert two.case.attrs["eps"] == 0.5


@pytest.mark.parametrize(
    ("vjp", "reason"),
    [
        (lambda ct, x, w: (ct, None), "at ease: no gradient for w"),
        (lambda ct, x, w: (ct, ct), r"at ease: the gradient of w has shape \(3, 7\)"),
        (lambda ct, x, w: ct, "at ease: vjp returned one ndarray"),
        (lambda ct, x, w: (ct, "w"), "at ease: the gradient of w is a str"),
        (lambda ct, x, w: 1 / 0, "at ease: vjp raised ZeroDivisionError"),
    ],
)
def test_what_is_no_answer_is_told_with_its_place(subject, vjp, reason):
    asked = subject(SimpleNamespace(vjp=vjp))
    with pytest.raises(Broken, match=reason):
        asked.ask(asked.cts[0], "at ease")


def test_a_gradient_that_is_never_given_is_left_out(subject, right):
    half = SimpleNamespace(vjp=lambda ct, x, w: (right.both(ct, x, w, 1e-5)[0], None))
    asked = subject(half).without_lacking()
    assert asked.names == ("x",)
    assert list(asked.ask(asked.cts[0])) == ["x"]
    assert asked.right
    assert asked.resized(-1, 8).names == ("x",)
    none = SimpleNamespace(vjp=lambda ct, x, w: (None, None))
    with pytest.raises(Unfit, match="no gradient"):
        subject(none).without_lacking()


def test_the_call_gets_read_only_copies(subject):
    seen = []

    def vjp(ct, x):
        seen.extend([ct, x])
        return -ct

    asked = subject(SimpleNamespace(vjp=vjp), "neg/default/typical")
    asked.ask(asked.cts[0])
    assert not any(a.flags.writeable for a in seen)
    assert not any(
        np.shares_memory(a, b) for a, b in zip(seen, (*asked.cts[0], *asked.primals), strict=True)
    )


def test_without_a_vjp_into_nothing_can_be_filled(subject, silu):
    asked = subject(silu, "silu/default/typical")
    with pytest.raises(Unasked):
        asked.fill(asked.cts[0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_ordinary_judgement_decides_on_appeal(subject, right, dtype):
    """An element far off by the quick comparison is put to the whole judgement."""
    assert subject(right, dtype=dtype).wrong() == ""
    both = right.both
    right.both = lambda ct, x, w, eps: (both(ct, x, w, eps)[0] * 1.01, both(ct, x, w, eps)[1])
    assert "elements are outside the tolerance (dx[" in subject(right, dtype=dtype).wrong()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gradient_may_be_off_by_the_bound_of_the_judgement(subject, dtype):
    one = subject(dtype=dtype)
    ct, rules = one.cts[0], tolerance_of(dtype)
    size = {"x": 1e3 * one.primals[0], "w": -1e3 * one.primals[1]}
    allowed, cost = one.allowed(ct, size, {n: 0 * g for n, g in size.items()}), one.cost(ct)
    for name in ("x", "w"):
        large = rules.rtol * np.abs(size[name].astype(np.float64))
        want = large + (rules.rtol / 16 + 4 * rules.u) * cost[name] + rules.underflow
        np.testing.assert_allclose(allowed[name], want, rtol=1e-6)


@pytest.mark.parametrize(("times", "off"), [(1.9, False), (2.1, True), (-2.1, True)])
def test_two_answers_may_differ_by_both_of_their_bounds(subject, times, off):
    one = subject()
    ct = one.cts[0]
    want = {name: g.astype(np.float64) for name, g in one.want(ct).items()}
    bound = one.allowed(ct, want)
    got = {name: want[name] + times * bound[name] for name in want}
    assert bool(one.differ(ct, got, want)) is off


def test_code_that_asks_for_slack_may_be_off_by_so_many_ulps_more(subject):
    one = subject()
    ct = one.cts[0]
    want, cost = one.want(ct), one.cost(ct)
    plain = one.allowed(ct, want)
    one.bound = replace(one.bound, slack=Slack(ulp=64, because="it sums in another order"))
    wide = one.allowed(ct, want)
    for name in want:
        np.testing.assert_allclose(wide[name] - plain[name], 128 * 2.0**-24 * cost[name], rtol=1e-6)


def test_where_its_own_forward_gives_another_shape_nothing_is_owed(subject):
    one = subject()
    plain = one.bound
    one.bound = replace(plain, forward=lambda x, w, **attrs: x[:1])
    with pytest.raises(Unfit, match="its forward is another operator there"):
        one._require_forward()
    one.bound = replace(plain, forward=lambda x, w, **attrs: x)
    one._require_forward()


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ((4, 2), (4, 3), True),  # a third of 6, then of 9
        ((4, 2), (4, 2), True),  # it does not follow
        ((4, 2), (4, 4), False),
        ((4, 4), (4, 7), True),  # no whole part of 6
        ((4, 1), (4, 5), True),  # one is no part
        ((4, 6), (4, 8), True),  # all of it
        ((4,), (4, 1), False),
    ],
)
def test_an_output_that_is_a_part_of_an_axis_stays_that_part(old, new, fits):
    assert _in_proportion(old, new, 6, 9) is fits


def case_of(op, dialect, sample="typical"):
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


@pytest.mark.parametrize("size", [0, 1, 8, 129])
def test_all_axes_of_one_size_change_together(size):
    case = case_of("rms_norm", "weight")
    assert [p.shape for p in resized(case, -1, size).primals] == [(3, size), (size,)]
    assert [p.shape for p in resized(case, 0, size).primals] == [(size, 7), (7,)]


def test_values_depend_on_names_and_the_size_alone():
    case = case_of("rms_norm", "weight")
    one, two, other = (resized(case, -1, n).primals[0] for n in (9, 9, 10))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other[:, :9])


def test_a_sample_that_writes_numbers_out_has_one_size():
    assert resized(case_of("rms_norm", "plain", "unsolved"), -1, 5) is None
    assert resized(case_of("rms_norm", "weight", "zero-gain"), -1, 7) is None


def test_operators_that_can_be_asked_at_one_size_alone():
    points = contract_cases(SUITE.cases())
    fixed = {
        case.spec.name
        for case in SUITE.cases()
        if case.name in points and resized(case, -1, 9) is None
    }
    assert fixed == {"max", "moe", "sort", "top_k"}  # whose samples keep off their kinks


def test_every_way_to_draw_follows():
    draw = Resized(7, 4, "a test")
    drawn = [
        draw.normal(3, 7), draw.uniform(0.0, 1.0, 3, 7), draw.positive(3, 7), draw.signed(3, 7),
        draw.signs(3, 7), draw.powers(3, 7), draw.near(1.0, 3, 7), draw.away(0.0, 3, 7),
        draw.integers(0, 7, 3, 7), draw.probabilities(3, 7),
    ]  # fmt: skip
    assert {np.shape(x) for x in drawn} == {(3, 4)}
    assert drawn[8].max() < 4
    assert sorted(draw.permutation(7)) == [0, 1, 2, 3]


def test_rows_are_several_elements_along_two_axes():
    assert several_rows([np.array([1, 2]), np.zeros((3, 7))])
    assert not several_rows([np.zeros((1, 7))])
    assert not several_rows([np.zeros(7), np.zeros((3, 7))])
    assert not several_rows([np.array([1])])


def test_the_worst_element_is_told_in_as_many_digits_as_it_takes():
    got, want = {"x": np.array([1.0, 2.0, np.nan])}, {"x": np.array([1.0, 2.5, np.nan])}
    allowed = {"x": np.full(3, 0.25)}
    assert difference(got, want, allowed) == "dx[1] is 2, not 2.5"
    assert difference(want, want, allowed) == ""
    lost, three, any_ = np.array([1.0, np.nan]), np.array([1.0, 3.0]), np.full(2, np.inf)
    assert difference({"x": lost}, {"x": three}, {"x": any_}) == "dx[1] is nan, not 3"
    assert in_digits(1.0, 1.0 + 2**-30) == "1, not 1.000000001"


def test_infinities_that_agree_are_no_difference():
    a = {"x": np.array([np.inf, -np.inf])}
    assert difference(a, a, {"x": np.zeros(2)}) == ""
    assert difference(a, {"x": np.array([np.inf, np.inf])}, {"x": np.ones(2)}) == (
        "dx[1] is -inf, not inf"
    )


def test_places_and_magnitudes():
    assert (place((1, 2)), place(())) == ("[1, 2]", "")
    assert finite(np.array([-2.0, np.inf, np.nan], np.float32)).tolist() == [2.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("dtype", "size"), [("float64", 2.0**-1030), ("float32", 2.0**-130), ("float16", 2.0**-20)]
)
def test_below_its_normal_numbers_a_dtype_of_low_precision_alone_owes_nothing(subject, dtype, size):
    minus = SimpleNamespace(vjp=lambda ct, x: -ct)
    one = subject(minus, "neg/default/typical", dtype)
    one.cts[0] = tuple(np.full_like(part, size) for part in one.cts[0])
    if dtype == "float16":
        with pytest.raises(Unfit, match="float16 does not hold the results there"):
            one.wrong()
    else:
        assert one.wrong() == ""

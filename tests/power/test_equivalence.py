"""What may call itself the right VJP after all: it must be, to 50 digits, wherever it is tried."""

import numpy as np
import pytest

from gradcheck.power.attack import TRIALS, difference


def inputs(draw):
    return (draw.signed(int(draw.integers(1, 4)), 2),), {}


def claimed(make, vjp=None, inputs=inputs, spec=None, trials=20, **options):
    """What speaks against a mutant that is said to be the right VJP."""
    mutant = make.mutant(vjp, equivalent="They are the same.", inputs=inputs, **options)
    return difference(mutant, spec or make.op(), trials)


def doubled(xp, ct, x):
    return ct * x + x * ct


@pytest.mark.parametrize("trials", [1, 20])
def test_another_text_of_the_same_gradient_is_the_same(make, trials):
    assert claimed(make, doubled, trials=trials) == ""


@pytest.mark.parametrize("digits", [1, 9, 17, 30, 44])
def test_what_no_sample_could_see_in_any_dtype_is_a_difference(make, digits):
    def vjp(xp, ct, x):
        return 2 * ct * x * (1 + xp.const(f"1e-{digits}"))

    assert "it differs from the right VJP at trial 0: shapes [(" in claimed(make, vjp)


def test_another_order_of_terms_is_none(make):
    assert claimed(make, lambda xp, ct, x: 2 * ct * x * (1 + xp.const("1e-47"))) == ""


@pytest.mark.parametrize(("digits", "same"), [(44, False), (47, True)])
def test_a_small_element_is_held_against_the_largest_one(make, digits, same):
    def vjp(xp, ct, x):
        g = 2 * ct * x
        g[0, 1] += g[0, 0] * xp.const(f"1e-{digits}")
        return g

    def drawn(draw):
        return (inputs(draw)[0][0] * np.array([1.0, 2.0**-100]),), {}

    found = claimed(make, vjp, drawn)
    assert (found == "") is same
    assert same or "it differs" in found


@pytest.mark.parametrize(
    "change",
    [
        lambda xp, g: xp.where(g > 5, 0 * g, g),
        lambda xp, g: g if g.size < 6 else 0 * g,
        lambda xp, g: g * g / g if g.size < 6 else g[::-1],
    ],
)
def test_one_trial_that_differs_is_enough(make, change):
    found = claimed(make, lambda xp, ct, x: change(xp, 2 * ct * x), trials=60)
    assert found.startswith("it differs from the right VJP at trial ")


@pytest.mark.parametrize(
    "vjp",
    [
        lambda xp, ct, x: None,
        lambda xp, ct, x: (2 * ct * x, None),
        lambda xp, ct, x: (2 * ct * x)[None],
        lambda xp, ct, x: (2 * ct * x)[:1] if len(x) > 1 else 2 * ct * x,
        lambda xp, ct, x: 2 * ct * x + xp.const("nan"),
        lambda xp, ct, x: 2 * ct * x + xp.const("inf"),
    ],
)
def test_another_form_or_no_number_is_a_difference(make, vjp):
    assert "it differs from the right VJP" in claimed(make, vjp)


def with_infinity(at_first):
    """The right VJP but for its first element."""

    def vjp(xp, ct, x):
        g = 2 * ct * x
        g[0, 0] = at_first(xp, g[0, 0]) * 1  # a number, no array
        return g

    return vjp


@pytest.mark.parametrize(
    ("at_first", "same"),
    [
        (lambda xp, g: xp.const("inf"), True),
        (lambda xp, g: xp.const("-inf"), False),
        (lambda xp, g: xp.const("nan"), False),
        (lambda xp, g: g, False),
    ],
)
def test_an_infinity_equals_itself_alone(make, at_first, same):
    spec = make.op(vjp=with_infinity(lambda xp, g: xp.const("inf")))
    found = claimed(make, with_infinity(at_first), spec=spec)
    assert (found == "") is same
    assert same or "it differs" in found


def test_an_infinity_excuses_no_other_element(make):
    right = with_infinity(lambda xp, g: xp.const("inf"))
    found = claimed(make, lambda xp, ct, x: right(xp, 3 * ct, x), spec=make.op(vjp=right))
    assert "it differs" in found


# ── inputs ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        (lambda draw: ((np.ones(3),), {}), "its `inputs` are the same in every trial; draw them"),
        (
            lambda draw: ((draw.signed(2, 5),), {}),
            "its `inputs` have the shapes [(2, 5)] in every trial; draw these too",
        ),
    ],
)
def test_the_same_thousand_times_proves_nothing(make, drawn, said):
    assert claimed(make, doubled, drawn) == said


def test_a_difference_is_told_before_a_lack_of_variety(make):
    found = claimed(make, lambda xp, ct, x: ct, lambda draw: ((np.ones(3),), {}))
    assert found == "it differs from the right VJP at trial 0: shapes [(3,)], {}"


def failing(error):
    def function(*_):
        raise error

    return function


@pytest.mark.parametrize(
    ("vjp", "drawn", "said"),
    [
        (doubled, failing(ValueError("one\ntwo")), "trial 0 raises ValueError: one two"),
        (doubled, failing(SystemExit(3)), "trial 0 raises SystemExit: 3"),
        (doubled, lambda draw: None, "trial 0 raises TypeError: "),
        (doubled, lambda draw: ((), {}), "trial 0 raises TypeError: "),
        (doubled, lambda draw: (inputs(draw)[0], {"eps": 0}), "trial 0 raises TypeError: "),
        (failing(IndexError("out")), inputs, "trial 0 raises IndexError: out"),
        (lambda xp, ct, x: xp.absolute(x), inputs, "trial 0 raises AttributeError: `xp.absolute`"),
    ],
)
def test_what_breaks_off_proves_nothing_and_ends_nothing(make, vjp, drawn, said):
    assert claimed(make, vjp, drawn).startswith(said)


def test_an_interruption_is_none_of_its_doubts(make):
    with pytest.raises(KeyboardInterrupt):
        claimed(make, doubled, failing(KeyboardInterrupt()))


SEEN = [["0.9371806"], ["0.8097022", "-0.8753612"], ["-1.3380533"]]


def test_trials_are_a_thousand_and_the_same_on_every_machine(make):
    seen = []

    def noted(draw):
        seen.append(draw.signed(1 + len(seen) % 2).tolist())
        return (np.array(seen[-1]),), {}

    mutant = make.mutant(doubled, equivalent="They are the same.", inputs=noted)
    spec = make.op(forward=lambda xp, x: x, vjp=doubled)
    assert difference(mutant, spec) == ""
    assert len(seen) == TRIALS == 1000
    assert [[f"{x:.7f}" for x in drawn] for drawn in seen[:3]] == SEEN


def powered(xp, x, *, exponent=2):
    return x**exponent


def powered_vjp(xp, ct, x, *, exponent=2):
    return exponent * ct * x ** (exponent - 1)


@pytest.mark.parametrize(("given", "same"), [({}, True), ({"exponent": 3}, False)])
def test_attributes_that_are_not_given_have_their_defaults(make, given, same):
    def drawn(draw):
        return inputs(draw)[0], given

    def vjp(xp, ct, x, *, exponent=5):
        return 2 * ct * x

    found = claimed(make, vjp, drawn, make.op(forward=powered, vjp=powered_vjp))
    assert (found == "") is same
    assert same or "{'exponent': 3}" in found


# ── operators of every form ──────────────────────────────────────────────────────────────────


def picked(xp, x, i):
    return x[i], xp.sum(x)


def picked_vjp(xp, ct, x, i):
    g = xp.zeros_like(x) + ct[1]
    for place, value in zip(i, ct[0], strict=True):
        g[place] += value
    return g, None


def picked_once_vjp(xp, ct, x, i):
    g = xp.zeros_like(x) + ct[1]
    for place, value in zip(i, ct[0], strict=True):
        g[place] = value + ct[1]
    return g, None


def some(draw):
    size = int(draw.integers(0, 4))
    return (draw.signed(3), draw.integers(0, 3, size)), {}


@pytest.mark.parametrize(("vjp", "same"), [(picked_vjp, True), (picked_once_vjp, False)])
def test_indices_several_outputs_and_no_elements_are_tried_too(make, vjp, same):
    spec = make.op(forward=picked, vjp=picked_vjp, signature="(n),(m)->(m),()")
    found = claimed(make, vjp, some, spec)
    assert (found == "") is same
    assert same or "it differs" in found


def test_one_with_a_memory_starts_every_trial_afresh(make):
    def once():
        calls = []

        def vjp(xp, ct, x):
            calls.append(0)
            return 2 * ct * x * len(calls)

        return vjp

    mutant = make.mutant(make=once, equivalent="They are the same.", inputs=inputs)
    assert difference(mutant, make.op(), 20) == ""

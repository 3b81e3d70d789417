from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.contract.asking import Unasked, Vacuous
from gradcheck.judge.contract.other_points import SEEN, _candidates, attributes


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


def test_a_wrong_gradient_is_not_told_again(subject, right):
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

import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.fifty_digits import mp50
from gradcheck.spec.model import MARGIN

SIZES = ["tiny", "uneven"]


@pytest.mark.parametrize("size", SIZES)
def test_examples_on_both_sides_of_the_margin_and_none_on_it(case, size):
    svm = case("svm", size)
    values = svm.program.forward(F64, svm.given)
    distance = 1 - svm.inputs["labels"] * values["scores"]
    assert np.abs(distance).min() >= MARGIN
    assert 0 < (distance > 0).sum() < distance.size
    assert set(svm.inputs["labels"].ravel()) == {-1, 1}


@pytest.mark.parametrize("size", SIZES)
def test_only_examples_short_of_the_margin_pull(case, fold, size):
    svm = case("svm", size)
    x, labels, w = svm.inputs["x"], svm.inputs["labels"], svm.params["w"]
    pull = -labels * (svm.program.forward(F64, svm.given)["short"] > 0) / len(x)
    cts = fold(svm)
    np.testing.assert_allclose(cts["w"], pull.T @ x + 2 * w / 32, rtol=1e-13)
    np.testing.assert_allclose(cts["b"], pull.sum(axis=0), rtol=1e-13)


def test_the_weights_get_the_penaltys_share_and_that_of_the_scores(case, fold, share):
    svm = case("svm", "tiny")
    penalty, scores = share(svm, "square", "w"), share(svm, "score", "w")
    assert svm.program.tied == {"w"}
    assert np.array_equal(penalty, svm.params["w"] / 16)
    assert np.array_equal(penalty + scores, fold(svm)["w"])
    assert not np.array_equal(scores, fold(svm)["w"])


def test_a_scalar_stays_an_array_in_50_digits(case):
    svm, mp = case("svm", "tiny"), mp50()
    given = {k: mp.asarray(v) if v.dtype.kind == "f" else v for k, v in svm.given.items()}
    values = svm.program.forward(mp, given)
    cts = svm.program.backward(mp, values, mp.asarray(1.0))
    for found in (values, cts):
        assert {type(found[name]) for name in ("loss", "penalty", "norm2")} == {np.ndarray}

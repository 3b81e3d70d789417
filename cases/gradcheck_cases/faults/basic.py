"""Planted faults of the small models: functions to be minimised, regression, a vector machine."""

from __future__ import annotations

from gradcheck.power import mutate
from gradcheck.spec.fault import changed, reading, scaled, with_attrs
from gradcheck_cases.faults.kit import (
    element,
    first_of,
    lost,
    missing,
    mutated,
    negated,
    planter,
    shifted,
)

_quadratic = planter("quadratic")
_test_opt = planter("test_opt")
_regression = planter("linear_regression")
_svm = planter("svm")

QUADRATIC = (
    _quadratic(
        "tied gradient overwritten", "square", "One of the two gradients of x is lost.", lost(0)
    ),
    _quadratic("sign", "square", "One of the two gradients of x is subtracted.", negated(1)),
    _quadratic("gradient missing", "times_a", "da is not produced.", missing(0)),
    _quadratic("stale activation", "times_a", "da is x, not x^2.", reading({1: "x"})),
    _quadratic(
        "formula", "times_a", "da is what was to be d(x^2).",
        mutated("mul/factors-swapped"),
    ),
    _quadratic("wrong scale", "times_a", "d(x^2) is doubled.", scaled(1, 2.0)),
    _quadratic("wrong scale", "plus_b", "db is halved.", scaled(1, 0.5)),
    _quadratic("sign", "plus_b", "b is subtracted.", negated(1)),
    _quadratic(
        "missing residual", "plus_b", "The cotangent passes b only, not a x^2.", lost(0)
    ),
    _quadratic("one element", "plus_b", "One element is off by 10%.", element(0, 0)),
    _quadratic("wrong scale", "sum", "The cotangent is tripled.", scaled(0, 3.0)),
    _quadratic("one element", "sum", "The last element is off by 10%.", element(0, -1)),
)  # fmt: skip

TEST_OPT = (
    _test_opt("layout", "mul_mat", "da is written in the other order.", changed(1, mutate.relaid)),
    _test_opt("gradient missing", "mul_mat", "db is not produced.", missing(0)),
    _test_opt("one element", "mul_mat", "One element of da is off by 10%.", element(1, 4)),
    _test_opt(
        "reduction", "mul_mat", "db is that of the first row only.", changed(0, first_of(0))
    ),
    _test_opt("sign", "sub", "d(ab) has the sign of dc.", negated(1)),
    _test_opt("wrong scale", "sub", "d(ab) is doubled.", scaled(1, 2.0)),
    _test_opt("one element", "sub", "One element of d(ab) is off by 10%.", element(1, 6)),
    _test_opt("formula", "sqr", "The slope of the square lacks its 2.", mutated("sqr/two-missing")),
    _test_opt(
        "stale activation", "sqr", "The square's backward reads a b, not c - a b.",
        reading({0: "ab"}),
    ),
    _test_opt("layout", "sqr", "Rows go to the next one.", changed(0, shifted())),
    _test_opt("reduction", "sum", "The sum is taken for a mean.", mutated("sum/mean")),
    _test_opt("one element", "sum", "The last element is lost.", element(0, -1, 0.0)),
)  # fmt: skip

LINEAR_REGRESSION = (
    _regression("gradient missing", "predict", "db is not produced.", missing(2)),
    _regression("reduction", "predict", "db is a mean.", mutated("matmul/bias-mean")),
    _regression("one element", "predict", "One element of dw is off by 10%.", element(1, 2)),
    _regression("sign", "predict", "dw points uphill.", negated(1)),
    _regression(
        "wrong scale", "residual", "The square's factor 2 is multiplied by once more.",
        scaled(0, 2.0),
    ),
    _regression("sign", "residual", "The prediction gets what is the target's.", negated(0)),
    _regression("one element", "residual", "One element is off by 10%.", element(0, 3)),
    _regression("stale activation", "square", "The square's backward reads the prediction.",
                reading({0: "predicted"})),
    _regression("formula", "square", "The slope of the square lacks its 2.",
                mutated("sqr/two-missing")),
    _regression("position offset", "square", "Each example gets its neighbour's gradient.",
                changed(0, shifted())),
    _regression("reduction", "mean", "The mean is taken for a sum.", mutated("mean/sum")),
    _regression("wrong scale", "mean", "The mean is over n - 1.", mutated("mean/less-one")),
)  # fmt: skip

SVM = (
    _svm("tied gradient overwritten", "square", "The penalty's gradient of w is lost.", lost(0)),
    _svm("tied gradient overwritten", "score", "The scores' gradient of w is lost.", lost(1)),
    _svm("gradient missing", "score", "db is not produced.", missing(2)),
    _svm("one element", "score", "One element of dw is off by 10%.", element(1, 1)),
    _svm("sign", "hinge", "The label's sign is left out.", mutated("hinge/label-left-out")),
    _svm("formula", "hinge", "Examples beyond the margin pull as well.",
         mutated("hinge/everywhere")),
    _svm("wrong scale", "hinge", "The margin is 0, as in the perceptron's.",
         with_attrs(margin=0.0)),
    _svm("reduction", "mean", "The mean is taken for a sum.", mutated("mean/sum")),
    _svm("one element", "mean", "The first example is off by 10%.", element(0, 0)),
    _svm("formula", "square", "The slope of the square lacks its 2.", mutated("sqr/two-missing")),
    _svm("sign", "norm", "The penalty is subtracted.", negated(0)),
    _svm("wrong scale", "penalty", "The factor of the penalty is left out.",
         mutated("scale/unscaled")),
    _svm("missing residual", "total", "The cotangent passes the penalty only.", lost(0)),
)  # fmt: skip

FAULTS = (*QUADRATIC, *TEST_OPT, *LINEAR_REGRESSION, *SVM)

import doctest

import numpy as np
import pytest

import gradcheck
from gradcheck.errors import UsageError
from gradcheck.testing import inputs, parametrize
from gradcheck.testing.parametrize import declared_of


def a_test(case):
    """Stands for one."""


def declared(decorator):
    def test(case):
        a_test(case)

    return declared_of(decorator(test))


def own(**said):
    return declared(gradcheck.case(**said)).cases("test_x.py::test_y")


def ids(**said):
    return [case.id for case in own(**said)]


X = gradcheck.normal(2, 3)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "names no primal: give one as x=gradcheck.normal"),
        ({"eps": 1e-5}, "names no primal"),
        ({"x": [1.0, 2.0]}, "x is a list: a primal is drawn"),
        ({"x": X, "attrs": {"x": 3}}, "x stands in `attrs` and beside it"),
        ({"x": X, "dtypes": ()}, "no dtype is named"),
        ({"x": X, "dtypes": "float16"}, "unknown dtype 'float16'"),
        ({"x": X, "dtypes": ("float64", "flaot32")}, "did you mean 'float32'"),
        ({"x": X, "seeds": 0}, "seeds is 0: write how often"),
        ({"x": X, "seeds": True}, "seeds is True"),
        ({"x": X, "seeds": 2.0}, "seeds is 2.0"),
        ({"x": X, "samples": {"typical": {}}}, "other than 'typical', which is the decorator's"),
        ({"x": X, "samples": {"One Row": {}}}, "sample 'One Row': use lower-case letters"),
        ({"x": X, "samples": {"a": 3}}, "sample 'a': write what differs in it as a dict"),
        ({"x": X, "samples": {"a": {"y": X}}}, "sample 'a': unknown name 'y'"),
        ({"x": X, "eps": 1.0, "samples": {"a": {"x": 1.0}}}, "x is a primal, and stays one"),
        ({"x": X, "eps": 1.0, "samples": {"a": {"eps": X}}}, "eps is an attribute, and stays one"),
        ({"x": X, "samples": {"a": {"x": [1.0]}}}, "sample 'a': x is a list"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(said, words):
    with pytest.raises(UsageError, match=words):
        own(**said)


def test_a_tensor_is_no_primal():
    class Tensor:
        def __dlpack__(self):
            raise NotImplementedError

    with pytest.raises(UsageError, match="x is a Tensor: a primal is drawn"):
        own(x=Tensor())


def test_two_decorators_are_one_too_many():
    with pytest.raises(UsageError, match="a_test has two decorators of gradcheck"):
        gradcheck.case(x=X)(gradcheck.case(x=X)(type("a_test", (), {})))


def test_ids_name_sample_dtype_and_every_seed_but_the_first():
    assert ids(x=X) == ["typical-float64", "typical-float32"]
    assert ids(x=X, dtypes="float32", seeds=3) == [
        "typical-float32", "typical-float32-seed1", "typical-float32-seed2"
    ]  # fmt: skip
    assert ids(x=X, dtypes="float64", samples={"tiny": {}, "0.5": {}}) == [
        "typical-float64", "tiny-float64", "0.5-float64"
    ]  # fmt: skip


def test_what_is_drawn_and_arrays_are_primals_and_all_else_attributes():
    array = np.arange(3.0)
    (case, *_) = own(b=X, a=array, eps=1e-5, axis=None, shape=(2, 3), attrs={"seeds": 7})
    assert list(case.named) == ["b", "a"]
    assert case.attrs == {"eps": 1e-5, "axis": None, "shape": (2, 3), "seeds": 7}
    assert case["a"] is case.primals[1]
    assert case["seeds"] == 7
    case["a"][0] = 9.0
    assert array[0] == 0.0  # the test has a copy
    with pytest.raises(UsageError, match="unknown primal or attribute 'esp': did you mean 'eps'"):
        case["esp"]


def test_a_sample_differs_in_what_it_says_and_in_nothing_else():
    typical, small = own(
        x=X, w=gradcheck.normal(3), eps=1.0, dtypes="float64",
        samples={"small": {"x": gradcheck.normal(1, 3, scale=0.5), "eps": 2.0}},
    )  # fmt: skip
    assert (typical["x"].shape, small["x"].shape) == ((2, 3), (1, 3))
    assert (typical["eps"], small["eps"]) == (1.0, 2.0)
    assert typical["w"].shape == small["w"].shape


def test_another_case_moves_nobody():
    before = {case.id: case["x"] for case in own(x=X, seeds=2)}
    after = {
        case.id: case["x"]
        for case in own(w=X, x=X, eps=3, seeds=4, samples={"more": {"x": gradcheck.normal(5)}})
    }
    for name, x in before.items():
        assert np.array_equal(x, after[name]), name
    assert len({x.tobytes() for x in after.values()}) == len(after)
    (other, *_) = declared(gradcheck.case(x=X)).cases("test_x.py::test_z")
    assert not np.array_equal(other["x"], before[other.id])


def test_both_dtypes_are_at_the_same_point():
    wide, narrow = own(x=X, ids=gradcheck.integers(0, 2, 4))
    assert (wide["x"].dtype, narrow["x"].dtype) == (np.float64, np.float32)
    assert np.array_equal(wide["x"].astype(np.float32), narrow["x"])
    assert not np.any(wide["x"] == narrow["x"])  # it fills the wider mantissa
    assert wide["ids"].dtype == narrow["ids"].dtype == np.int64


def of_suite(*words, **said):
    said = {"suite": ["gradcheck_cases:SUITE"], **said}
    return declared(gradcheck.cases_of(*words, **said)).cases("test_x.py::test_y")


@pytest.mark.parametrize(
    ("words", "said", "text"),
    [
        (["rms_nrom"], {}, "unknown operator 'rms_nrom': did you mean 'rms_norm'?"),
        (["rms_*"], {}, r"unknown operator 'rms_\*'"),
        (["rms_norm/wieght"], {}, "unknown dialect 'wieght': did you mean 'weight'?"),
        (["relu"], {"samples": "tipical"}, "unknown sample 'tipical': did you mean 'typical'?"),
        (["relu"], {"dtypes": "float8"}, "unknown dtype 'float8'"),
        (["relu"], {"convention": "PyTroch"}, "did you mean 'PyTorch'?"),
        (["relu"], {"suite": "gradcheck_cases:SUIT"}, "has no 'SUIT'"),
    ],
)
def test_what_the_suite_does_not_have_is_said(words, said, text):
    with pytest.raises(gradcheck.GradcheckError, match=text):
        of_suite(*words, **said)


def test_the_cases_of_an_operator_are_those_of_the_suite(suite):
    found = of_suite("rms_norm", dtypes="all", samples=["t*", "one-*"])
    wanted = suite.cases(["rms_norm"], samples=["t*", "one-*"])
    dtypes = ("float64", "float32", "float16", "bfloat16")
    assert [case.id for case in found] == [f"{c.name}/{d}" for c in wanted for d in dtypes]
    one = of_suite("rms_norm/weight", samples="typical", dtypes="float32", seed=3)
    assert [case.id for case in one] == ["rms_norm/weight/typical/float32"]
    (there,) = suite.cases(["rms_norm"], ["weight"], ["typical"], seed=3)
    assert [p.dtype for p in one[0].primals] == [np.float32] * len(there.primals)
    held = [primal.astype(np.float32) for primal in there.primals]
    assert all(map(np.array_equal, one[0].primals, held))
    assert one[0].attrs == there.attrs


def test_what_nobody_declared_is_nothing():
    class Anything:
        def __getattr__(self, name):
            return self

    assert declared_of(None, a_test, Anything()) is None


@pytest.mark.parametrize("module", [inputs, parametrize])
def test_the_examples_hold(module):
    found = doctest.testmod(module)
    assert (found.failed, found.attempted >= 1) == (0, True)

"""The cases that a decorator gives a test of one's own, as pytest would begin them."""

from gradcheck.testing.parametrize import declared_of

NODE = "tests/test_x.py::test_y[typical-float64]"


def given(decorator, node=NODE):
    def test(case):
        raise NotImplementedError

    cases = declared_of(decorator(test)).cases("test_x.py::test_y")
    for case in cases:
        case.begin(node)
    return cases

"""--convention, --dtype all and --taylor, as typed."""

import pytest

EVIDENCE = ("taylor", "curve", "heat")


def test_a_run_says_whose_convention_it_found(run):
    found = run("--op", "relu", "--sample", "kink")
    assert found.code == 0
    assert "\nsubgradient at kinks: relu, x = 0: 0 (PyTorch, JAX, ggml)" in found.out


def test_a_convention_asked_for_is_the_only_right_one(run):
    assert run("-q", "--op", "relu", "--convention", "pytorch").code == 0
    found = run("--op", "clamp", "--sample", "kink", "--convention", "JAX")
    assert found.code == 1
    said = " ".join(found.out.split())
    assert "on x = min only what JAX returns is right" in said
    assert "--convention JAX" in said  # in the line to paste


def test_taylor_adds_the_remainder_of_every_gradient(judged):
    plain = judged("-q", "--op", "tanh").results
    asked = judged("-q", "--op", "tanh", "--taylor").results
    assert {result["taylor"] for result in plain} == {None}
    for before, result in zip(plain, asked, strict=True):
        curve, *pictures = (result.pop(key) for key in EVIDENCE)
        none = result["output"] == "forward" or not result["compared"]
        assert (curve is None) == none
        assert none or pictures[0] is not None
        assert result == {k: v for k, v in before.items() if k not in EVIDENCE}
        if result["dtype"] == "float64" and curve is not None:
            assert len(curve["steps"]) == len(curve["remainders"]) == 1 + len(curve["slopes"])
            assert abs(curve["intercept"]) <= curve["error_bar"]


@pytest.mark.slow
def test_all_four_dtypes_stand_side_by_side(run):
    found = run("--op", "tanh", "--dtype", "all")
    assert found.code == 0
    assert "float64, float32, float16, bfloat16 · " in found.out
    (row,) = (line for line in found.out.splitlines() if line.split()[:1] == ["dx"])
    assert row.count("PASS") == 4

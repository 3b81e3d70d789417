from gradcheck.results.baseline.entry import Baseline
from gradcheck.results.baseline.match import Scope, matcher


def scope(make, baseline=None, suite=None):
    run = make.run(make.result("typical"), make.result("square", dtype="float64"))
    return Scope.of(suite or make.suite(), baseline or Baseline(name="k"), run)


def test_what_exists_what_was_run_and_what_was_not(make):
    found = scope(make)
    assert found.reached("*/*/*/float32") == ["rms_norm/weight/typical/float32"]
    assert found.exists("rms_norm/*/tiny/bfloat16")
    assert not found.exists("rms_norm/*/tiny/float23")
    assert not found.exists("rms_norm/*/other/float32")
    assert sorted(found.missed("rms_norm/weight/t*/float32")) == ["rms_norm/weight/tiny/float32"]
    assert len(found.missed("rms_norm/weight/*/*")) == 4  # of 3 samples in 2 dtypes
    assert len(found.missed("rms_norm/weight/*/bfloat16")) == 3  # not usual, and yet not run


def test_a_file_says_which_dtypes_a_full_run_has(make):
    wide = Baseline(name="k", dtypes=("float64", "float32", "bfloat16"))
    assert len(scope(make, wide).missed("rms_norm/weight/*/*")) == 7


def test_each_kind_has_its_own_dtypes(make):
    suite = make.suite(["op/d/s"], models=["gpt/d/tiny"], rules=["adam/d/s"])
    found = scope(make, Baseline(name="k", dtypes=("float32", "float16", "mp50")), suite)
    assert {*found.missed("op/*/*/*")} == {f"op/d/s/{d}" for d in ("float64", "float32", "float16")}
    assert {*found.missed("gpt/*/*/*")} == {
        f"gpt/d/tiny/{d}" for d in ("float64", "float32", "mp50")
    }
    assert not found.exists("op/*/*/mp50")
    assert not found.exists("gpt/*/*/float16")
    assert found.exists("adam/*/*/bfloat16")


def test_a_star_crosses_no_slash_where_both_have_three():
    assert matcher("*/*/*/*")("a/b/c/d")
    assert not matcher("*/b/c/d")("a/x/b/c")
    assert not matcher("a/b")("a/b/c/d")

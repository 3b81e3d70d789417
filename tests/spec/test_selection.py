import pytest

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.spec.selection import all_dtypes_of, dtypes_of, model_dtypes_of

ALL = ["float64", "float32", "float16", "bfloat16"]


@pytest.mark.parametrize("chosen", [dtypes_of, model_dtypes_of])
@pytest.mark.parametrize("word", ["flaot64", "mp500", "", "ALL"])
def test_a_word_that_is_no_dtype_is_refused(chosen, word):
    with pytest.raises(UnknownNameError, match="unknown dtype"):
        chosen(["float64", word])
    with pytest.raises(UnknownNameError, match="unknown dtype"):
        all_dtypes_of(["float64", word], operators=True, models=True)


def test_fifty_digits_are_for_models_alone():
    with pytest.raises(UsageError, match=r"--dtype mp50 is for models \(--model GLOB\)"):
        dtypes_of(["float64", "mp50"])
    with pytest.raises(UsageError, match="mp50 is for models"):
        all_dtypes_of(["mp50"], operators=True, models=False)
    with pytest.raises(UsageError, match="mp50 is for models"):
        all_dtypes_of(["mp50"], operators=True, models=True)


@pytest.mark.parametrize("word", ["float16", "bfloat16"])
def test_low_precision_is_for_operators_alone(word):
    said = f"--dtype {word}: models are judged in mp50, float64, float32"
    with pytest.raises(UsageError, match=said):
        model_dtypes_of([word, "float64"])
    with pytest.raises(UsageError, match=said):
        all_dtypes_of([word], operators=True, models=True)


@pytest.mark.parametrize(
    ("words", "operators", "models"),
    [
        ([], ALL[:2], ["mp50", *ALL[:2]]),
        (["float32", "float64"], ALL[:2], ALL[:2]),
        (["all"], ALL, ["mp50", *ALL[:2]]),
    ],
)
def test_each_kind_has_its_own_default_in_the_usual_order(words, operators, models):
    assert dtypes_of(words) == operators
    assert model_dtypes_of(words) == models
    assert all_dtypes_of(words, operators=True, models=True) == (operators, models)
    assert all_dtypes_of(words, operators=True, models=False) == (operators, [])
    assert all_dtypes_of(words, operators=False, models=True) == ([], models)


def test_in_a_mixed_run_each_kind_takes_its_own_words():
    words = ["float64", "float16", "mp50"]
    found = all_dtypes_of(words, operators=True, models=True)
    assert found == (["float64", "float16"], ["mp50", "float64"])


def test_without_the_suites_own_pass_fifty_digits_have_to_be_asked_for():
    assert model_dtypes_of([], certify=False) == ["float64", "float32"]
    assert model_dtypes_of(["all"], certify=False) == ["float64", "float32"]
    assert model_dtypes_of(["mp50"], certify=False) == ["mp50"]

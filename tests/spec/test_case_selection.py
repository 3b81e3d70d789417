import gradcheck_cases
import pytest

from gradcheck import Suite
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.spec.case_selection import CaseSelection, SelectedCases
from gradcheck.spec.dtype_selection import all_dtypes_of, dtypes_of, model_dtypes_of

SUITE = gradcheck_cases.SUITE


def names(cases):
    return list(dict.fromkeys(case.spec.name for case in cases))


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"ops": ["reluu"]}, "unknown operator 'reluu': did you mean 'relu'?"),
        ({"models": ["gtp2"]}, "unknown model 'gtp2': did you mean 'gpt2'?"),
        ({"rules": ["adaam"]}, "unknown rule 'adaam': did you mean 'adam'?"),
        ({"ops": ["relu"], "models": ["relu"]}, "unknown model 'relu'"),
        ({"models": ["gpt2"], "samples": ["tinny"]}, "unknown size 'tinny': did you mean 'tiny'?"),
        ({"models": ["gpt2"], "dialects": ["weight"]}, "unknown dialect 'weight': known: default"),
        ({"ops": ["relu"], "samples": ["tiny"]}, "unknown sample 'tiny'"),
        (
            {"ops": ["relu"], "models": ["gpt2"], "samples": ["typicl"]},
            "unknown sample or size 'typicl': did you mean 'typical'?",
        ),
    ],
)
def test_a_glob_that_matches_nothing_is_an_error_with_the_nearest_name(choice, said):
    with pytest.raises(UnknownNameError) as error:
        CaseSelection(**choice).cases(SUITE)
    assert said in str(error.value)


def test_where_no_kind_is_named_a_run_means_operators_and_a_list_everything():
    found = CaseSelection().cases(SUITE)
    assert names(found.operators) == list(SUITE.operators)
    assert not found.models
    assert not found.rules
    found = CaseSelection().everything(SUITE)
    assert names(found.operators) == list(SUITE.operators)
    assert names(found.models) == list(SUITE.models)
    assert names(found.rules) == list(SUITE.rules)


@pytest.mark.parametrize("meant", ["cases", "everything"])
def test_a_kind_that_is_named_leaves_the_others_out(meant):
    found = getattr(CaseSelection(models=["gpt2", "g*a"]), meant)(SUITE)
    assert names(found.models) == ["gemma", "gpt2"]
    assert not found.operators
    found = getattr(CaseSelection(models=["gpt2"], ops=["relu"], rules=["sgd"]), meant)(SUITE)
    kinds = (found.operators, found.models, found.rules)
    assert [names(kind) for kind in kinds] == [["relu"], ["gpt2"], ["sgd"]]


def test_a_sample_has_to_match_in_one_kind_only():
    found = CaseSelection(ops=["relu"], models=["gpt2"], samples=["typical"]).cases(SUITE)
    assert [case.name for case in found.operators] == ["relu/default/typical"]
    assert list(found.models) == []
    found = CaseSelection(ops=["relu"], models=["gpt2"], samples=["t*"]).cases(SUITE)
    assert "gpt2/default/tiny" in [case.name for case in found.models]
    assert found.operators


def test_a_keyword_narrows_every_kind_after_the_globs():
    every = CaseSelection(
        ops=["relu", "tanh"], models=["gpt2"], rules=["sgd"], keyword="relu or sgd"
    )
    found = every.cases(SUITE)
    assert (names(found.operators), names(found.models)) == (["relu"], [])
    assert names(found.rules) == ["sgd"]
    found = CaseSelection(ops=["relu"], keyword="typical").cases(SUITE)
    assert [case.name for case in found.operators] == ["relu/default/typical"]
    assert CaseSelection(keyword="relu/default").everything(SUITE).operators


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"ops": ["relu"], "keyword": "tanh"}, "none of the "),
        (
            {"ops": ["relu"], "samples": ["typical"], "keyword": "square"},
            "none of the selected cases (1)",
        ),
        ({"models": ["gpt2"], "keyword": "relu"}, "operator/dialect/size"),
        ({"ops": ["relu"], "models": ["gpt2"], "keyword": "x y"}, "column 3, at 'y'"),
        ({"ops": ["relu"], "keyword": ""}, "it is empty"),
    ],
)
def test_a_keyword_that_leaves_nothing_or_is_none_is_an_error(choice, said):
    for select in (CaseSelection(**choice).cases, CaseSelection(**choice).everything):
        with pytest.raises(UsageError) as error:
            select(SUITE)
        assert said in str(error.value)


def test_the_seed_reaches_every_kind():
    found = CaseSelection(ops=["relu"], models=["gpt2"], rules=["sgd"], seed=7).cases(SUITE)
    assert {c.seed for c in (*found.operators, *found.models, *found.rules)} == {7}


def test_a_suite_without_models_lists_without_them():
    alone = Suite("mine", "1", [SUITE.operators["relu"]])
    found = CaseSelection().everything(alone)
    assert names(found.operators) == ["relu"]
    assert not found.models
    with pytest.raises(UnknownNameError):
        CaseSelection(models=["*"]).cases(alone)


def test_what_is_chosen_is_true_if_there_is_any():
    assert not SelectedCases()
    assert CaseSelection(models=["gpt2"]).cases(SUITE)


# ── dtypes ───────────────────────────────────────────────────────────────────────────────────

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

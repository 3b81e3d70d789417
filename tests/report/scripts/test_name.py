"""The name of a case, as reports print it, leads to the case; another name says what is wrong."""

import re

import pytest

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.report.scripts.export import named

NAME = "softmax/default/typical/float32"


def test_a_name_of_four_parts_is_a_case(suite):
    found = named(NAME, suite, 3)
    assert (found.case.name, found.dtype, found.output) == (NAME[:-8], "float32", "")
    assert found.case.seed == 3


@pytest.mark.parametrize(
    ("said", "meant"), [("x", "x"), ("dx", "x"), ("forward", "forward"), ("vjp", "vjp")]
)
def test_a_gradient_may_be_named_behind_it(suite, said, meant):
    assert named(f"{NAME}:{said}", suite, 0).output == meant


def test_a_primal_comes_before_the_gradient_of_another(suite):
    primals = ((s, p) for s in suite for p in s.primals if p.startswith("d"))
    spec, primal = next(primals)
    name = f"{spec.name}/{spec.dialects[0].name}/{spec.samples[0].name}/float64"
    assert named(f"{name}:{primal}", suite, 0).output == primal
    assert named(f"{name}:d{primal}", suite, 0).output == primal


def test_the_hash_of_a_case_is_accepted_and_another_is_not(suite):
    own = named(NAME, suite, 0).case.fingerprint
    assert named(f"{NAME}#{own}:x", suite, 0).output == "x"
    other = "0000" if own != "0000" else "1111"
    with pytest.raises(UsageError, match=f"changed its meaning since; it is #{own} now:"):
        named(f"{NAME}#{other}", suite, 0)
    with pytest.raises(UsageError, match="now with seed 1:"):
        named(f"{NAME}#{own}", suite, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("softmx/default/typical/float64", "unknown operator 'softmx': did you mean 'softmax'"),
        ("softmax/defualt/typical/float64", "dialect of softmax 'defualt': did you mean 'default'"),
        ("softmax/default/tipical/float64", "did you mean 'typical'"),
        ("softmax/default/typical/floot64", "unknown dtype 'floot64': did you mean 'float64'"),
        ("softmax/default/typical/float64:y", "unknown gradient of softmax/default 'y'"),
        ("softmax/default/typical/float64:", "unknown gradient of softmax/default ''"),
        ("rms_norm/plain/typical/float64:w", "unknown gradient of rms_norm/plain 'w'"),
    ],
)
def test_a_part_that_names_nothing_is_said_with_the_nearest(suite, text, says):
    with pytest.raises(UnknownNameError, match=re.escape(says)):
        named(text, suite, 0)


def test_a_sample_of_another_dialect_is_none(suite):
    spec, sample = next((s, p) for s in suite for p in s.samples if p.dialects)
    other = next(d.name for d in spec.dialects if d.name not in sample.dialects)
    with pytest.raises(UnknownNameError, match=f"unknown sample of {spec.name}/{other}"):
        named(f"{spec.name}/{other}/{sample.name}/float64", suite, 0)


@pytest.mark.parametrize(
    "text",
    ["", "/", "softmax", "softmax/default/typical", "softmax//typical/float64", "a/b/c/d/e",
     ":x", "#abcd", "softmax/default/typical/float64/x"],
)  # fmt: skip
def test_another_form_is_no_name(suite, text):
    with pytest.raises(UsageError, match="is no name of a case: write operator/dialect/sample/dty"):
        named(text, suite, 0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpt2/default/small/mp50", "gpt2 is a model: `gradcheck run --model gpt2 "),
        ("adam/default/typical/float64", "adam is an update rule: `gradcheck run --rule adam "),
        ("softmax/default/typical/mp50", "mp50 is for models"),
    ],
)
def test_models_and_rules_are_sent_to_their_own_command(suite, text, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        named(text, suite, 0)

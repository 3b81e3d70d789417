from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.mutants.contract import MUTANTS

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.python import bound_operator
from gradcheck.implementations.reference import Reference
from gradcheck.implementations.returned import broken
from gradcheck.judge.contract_check import PROPERTIES, Property, contract_cases, judge_contract
from gradcheck.judge.operator_truth import CaseTruth
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

NAMES = [asked.name for asked in PROPERTIES]


def case_of(op, dialect="default", sample="typical"):
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


def binding(entry):
    def bind(case, dtype):
        fixed = {**case.spec.defaults, **case.dialect.attrs}
        return bound_operator(entry, case.attrs, fixed, case.primal_names)

    return SimpleNamespace(name="kernels:IMPL", bind=bind)


def mutant(name):
    return next(m for m in MUTANTS if m.name == name).make()


def judged(entry, case=None, dtype="float64", properties=PROPERTIES):
    case = case or case_of("rms_norm", "weight")
    return judge_contract(CaseTruth(case), binding(entry), dtype, properties)


def only(verdict, findings):
    return [f.name for f in findings if f.verdict is verdict]


def test_the_right_one_keeps_every_property_in_the_order_of_the_table():
    found = judged(mutant("right"))
    assert [f.name for f in found] == NAMES
    assert only(Verdict.PASS, found) == NAMES
    assert {f.part for f in found} == {Part.CONTRACT}
    assert {f.compared for f in found} == {0}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("name", "broken_by", "verdict"),
    [
        ("flushes-small", "scaling", Verdict.FAIL),
        ("scales-dy", "pure", Verdict.ERROR),
        ("flat-dy", "layouts", Verdict.FAIL),
        ("one-past-the-end", "bounds", Verdict.ERROR),
    ],
)
def test_one_property_is_broken_and_says_what_is_owed_and_what_was_seen(name, broken_by, verdict):
    found = judged(mutant(name))
    assert only(verdict, found) == [broken_by]
    assert len(only(Verdict.PASS, found)) == len(NAMES) - 1
    (bad,) = (f for f in found if not f.verdict.expected)
    says = next(p.says for p in PROPERTIES if p.name == broken_by)
    assert bad.reason.startswith(f"{says} Here ")
    assert len(bad.reason) > len(says) + 10


def test_what_a_binding_does_not_offer_is_skipped_with_the_reason():
    bare = SimpleNamespace(vjp=lambda ct, x, w, *, eps=1e-5: mutant("right").both(ct, x, w, eps))
    found = {f.name: f for f in judged(bare) if f.verdict is Verdict.SKIP}
    assert set(found) == {"subsets", "accumulates", "written", "aliases", "bounds"}
    assert found["bounds"].reason == "there is no `vjp_into`"
    assert "needs" in found["subsets"].reason


def test_what_says_nothing_about_the_operator_is_left_out():
    found = judged(SimpleNamespace(vjp=lambda ct, x: -ct), case_of("neg"))
    assert {"attributes", "subsets"}.isdisjoint(f.name for f in found)


@pytest.mark.parametrize(
    "vjp",
    [lambda ct, x: 1 / 0, lambda ct, x: ct[0], lambda ct, x: None, lambda ct, x: (ct, ct)],
)
def test_of_a_call_that_fails_nothing_more_is_said(vjp):
    assert judged(SimpleNamespace(vjp=vjp), case_of("neg")) == []


def test_of_what_is_not_supported_nothing_is_said():
    def lacks(ct, x):
        raise Unsupported("not here")

    assert judged(SimpleNamespace(vjp=lacks), case_of("neg")) == []

    def declines(ct, x):
        if x.shape[-1] > 100:
            raise NotImplementedError("100 columns at most")
        return -ct

    found = {f.name: f.verdict for f in judged(SimpleNamespace(vjp=declines), case_of("neg"))}
    assert found["sizes"] == "pass"  # a declared limit, as by `Unsupported`
    silent = SimpleNamespace(name="silent", bind=lambda case, dtype: None)
    assert judge_contract(CaseTruth(case_of("neg")), silent, "float64") == []


def test_a_wrong_gradient_is_not_told_again_by_what_needs_the_truth():
    found = judged(SimpleNamespace(vjp=lambda ct, x: 3 * ct), case_of("silu"))
    assert only(Verdict.SKIP, found)[0] == "sizes"
    assert {"linear", "zero", "scaling", "repeatable", "stateless"} <= {*only(Verdict.PASS, found)}


def test_after_a_call_that_hung_nothing_else_is_asked():
    def hangs(subject):
        raise broken("vjp", "did not return within 1 s", Verdict.TIMEOUT)

    asked = (
        Property("first", "One.", hangs),
        Property("second", "Two.", lambda subject: None),
        Property("third", "Three.", lambda subject: None),
    )
    found = judged(SimpleNamespace(vjp=lambda ct, x: -ct), case_of("neg"), properties=asked)
    assert [(f.name, f.verdict) for f in found] == [
        ("first", Verdict.TIMEOUT),
        ("second", Verdict.NOTRUN),
        ("third", Verdict.NOTRUN),
    ]
    assert found[0].reason == "One. Here did not return within 1 s"
    assert "hung" in found[1].reason


def test_a_crash_is_one_and_the_others_are_asked():
    def dies(subject):
        raise broken("vjp", "SIGSEGV", Verdict.CRASH)

    asked = (Property("first", "One.", dies), Property("second", "Two.", lambda subject: None))
    found = judged(SimpleNamespace(vjp=lambda ct, x: -ct), case_of("neg"), properties=asked)
    assert [f.verdict for f in found] == [Verdict.CRASH, Verdict.PASS]


def test_a_property_at_fault_is_invalid_and_no_failure_of_the_code():
    def faulty(subject):
        raise KeyError("x")

    asked = (Property("p", "P.", faulty),)
    (found,) = judged(SimpleNamespace(vjp=lambda ct, x: -ct), case_of("neg"), properties=asked)
    assert found.verdict is Verdict.INVALID
    assert "the property itself raised KeyError" in found.reason


def test_what_the_code_prints_is_kept_with_what_it_breaks():
    said = ["before", "noise of linear", "noise of the rest"]

    def bind(case, dtype):
        return Bound(
            vjp=lambda ct, x: np.abs(ct), forward=None, attrs={}, printed=lambda: said.pop(0)
        )

    noisy = SimpleNamespace(name="noisy", bind=bind)
    asked = [p for p in PROPERTIES if p.name in ("linear", "zero")]
    said.pop(0)
    bad, good = judge_contract(CaseTruth(case_of("neg")), noisy, "float64", asked)
    assert (bad.verdict, bad.printed) == (Verdict.FAIL, "noise of linear")
    assert (good.verdict, good.printed) == (Verdict.PASS, "")
    assert said == []


@pytest.mark.suite(keep=4, rest=12)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(
    "op", ["softmax", "get_rows", "conv_2d", "lstm_cell", "attention", "clamp"]
)
def test_the_reference_keeps_every_property_that_it_can_be_asked(op, dtype):
    names = contract_cases(SUITE.cases([op]))
    assert names
    for case in SUITE.cases([op]):
        if case.name in names:
            truth = CaseTruth(case, low=dtype if dtype == "bfloat16" else "")
            found = judge_contract(truth, Reference(), dtype)
            assert [f for f in found if not f.verdict.expected] == []
            assert len(only(Verdict.PASS, found)) >= 8


# ── which cases ──────────────────────────────────────────────────────────────────────────────


def test_one_case_per_dialect_with_several_rows():
    cases = SUITE.cases(["rms_norm"])
    assert contract_cases(cases) == {
        "rms_norm/weight/typical", "rms_norm/unit-offset/typical", "rms_norm/plain/typical",
    }  # fmt: skip


def test_every_dialect_of_the_suite_has_one():
    named = contract_cases(SUITE.cases())
    assert len(named) == len({(c.spec.name, c.dialect.name) for c in SUITE.cases()})


def test_of_few_samples_the_best_is_taken_and_none_if_none_fits():
    some = SUITE.cases(["rms_norm"], ["weight"], ["single-row"])
    assert contract_cases(some) == {"rms_norm/weight/single-row"}
    later = SUITE.cases(["rms_norm"], ["weight"], ["single-row", "square"])
    assert contract_cases(later) == {"rms_norm/weight/square"}
    assert contract_cases(SUITE.cases(["rms_norm"], ["weight"], ["empty"])) == frozenset()
    kinks = [c for c in SUITE.cases(["relu"]) if c.sample.at_kink]
    assert kinks
    assert contract_cases(kinks) == frozenset()


def test_names_and_sentences_are_unique():
    assert len({p.name for p in PROPERTIES}) == len(PROPERTIES) == 16
    assert len({p.says for p in PROPERTIES}) == len(PROPERTIES)


@pytest.mark.parametrize("asked", PROPERTIES, ids=lambda p: p.name)
def test_each_says_what_is_owed_in_one_sentence(asked):
    assert asked.says[0].isupper()
    assert asked.says.endswith(".")
    assert asked.needs in ("", "strided", "asked", "into")
    assert asked.examine.__doc__

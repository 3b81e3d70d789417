import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.python import Python
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.results.verdict import Verdict


@pytest.fixture
def table(monkeypatch):
    """Make a table importable and bind it."""

    def bound(entries):
        module = ModuleType("kernels")
        module.IMPL = entries
        monkeypatch.setitem(sys.modules, "kernels", module)
        return Python("kernels:IMPL")

    return bound


@pytest.fixture
def imported(monkeypatch, tmp_path):
    """Write a module and bind NAME in it."""

    def bound(text, name="IMPL"):
        (tmp_path / "written_kernels.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "written_kernels", raising=False)
        return Python(f"written_kernels:{name}")

    yield bound
    sys.modules.pop("written_kernels", None)


def case_of(op, dialect, sample="typical"):
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


WEIGHT = case_of("rms_norm", "weight")
GEMMA = case_of("rms_norm", "unit-offset")


def judged(binding, case, dtype="float64"):
    return {f.name: f for f in judge_case(CaseTruth(case), binding, dtype)}


def verdicts(*args):
    return {name: finding.verdict.value for name, finding in judged(*args).items()}


# ── rms_norm by hand ─────────────────────────────────────────────────────────────────────────


def normalised(x, eps):
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(eps))
    return x * r, r


def forward(x, w, *, eps=1e-5):
    return normalised(x, eps)[0] * w


def vjp(ct, x, w, *, eps=1e-5):
    n, r = normalised(x, eps)
    g = ct * w
    dw = (ct * n).reshape(-1, w.size).sum(axis=0)
    return r * (g - n * np.mean(g * n, axis=-1, keepdims=True)), dw


def vjp_without_eps(ct, x, w):
    return vjp(ct, x, w)


def vjp_of_gemma(ct, x, w, *, eps=1e-6):
    return vjp(ct, x, 1 + w, eps=eps)


RIGHT = SimpleNamespace(vjp=vjp, forward=forward)


class Methods:
    def vjp(self, ct, x, w, *, eps):
        return vjp(ct, x, w, eps=eps)

    def forward(self, x, w, *, eps):
        return forward(x, w, eps=eps)


class Static:
    vjp = staticmethod(vjp)
    forward = staticmethod(forward)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "entry", [RIGHT, Methods(), Static, {"vjp": vjp, "forward": forward}],
    ids=["namespace", "object", "class", "dict"],
)  # fmt: skip
def test_an_entry_is_anything_with_a_vjp(table, entry, dtype):
    found = verdicts(table({"rms_norm": entry}), WEIGHT, dtype)
    assert found == {"forward": "pass", "x": "pass", "w": "pass"}


def test_a_wrong_vjp_is_found_and_a_wrong_forward_too(table):
    twice = SimpleNamespace(vjp=lambda *args: tuple(2 * g for g in vjp(*args)))
    assert verdicts(table({"rms_norm": twice}), WEIGHT) == {"x": "fail", "w": "fail"}
    other = SimpleNamespace(vjp=vjp, forward=lambda x, w, *, eps: x * w)
    found = verdicts(table({"rms_norm": other}), WEIGHT)
    assert found == {"forward": "fail", "x": "pass", "w": "pass"}


# ── names ────────────────────────────────────────────────────────────────────────────────────


def test_a_dialect_of_its_own_comes_before_the_operator(table):
    binding = table(
        {
            "rms_norm": SimpleNamespace(vjp=vjp_without_eps),
            "rms_norm/unit-offset": SimpleNamespace(vjp=vjp_of_gemma),
        }
    )
    assert verdicts(binding, WEIGHT) == {"x": "pass", "w": "pass"}
    assert binding.bind(GEMMA, "float64").vjp is vjp_of_gemma
    # vjp_of_gemma takes no unit_offset: the dialect's is fixed in it.
    assert verdicts(binding, GEMMA) == {"x": "pass", "w": "pass"}


def test_a_dialect_alone_does_not_answer_for_the_operator(table):
    binding = table({"rms_norm/unit-offset": SimpleNamespace(vjp=vjp_of_gemma)})
    assert binding.bind(WEIGHT, "float64") is None
    assert verdicts(binding, WEIGHT) == {"vjp": "unbound"}


def test_an_operator_that_is_not_in_the_table_is_unbound(table):
    binding = table({"layer_norm": RIGHT, "rms": RIGHT, "rms_norm/": RIGHT})
    found = judged(binding, WEIGHT)["vjp"]
    assert found.verdict is Verdict.UNBOUND
    assert found.reason == "kernels:IMPL says nothing about rms_norm"
    assert verdicts(table({}), WEIGHT) == {"vjp": "unbound"}


# ── attributes ───────────────────────────────────────────────────────────────────────────────


def test_a_vjp_without_an_attribute_is_judged_where_the_case_wants_the_default(table):
    binding = table({"rms_norm": SimpleNamespace(vjp=vjp_without_eps)})
    reasons = {
        ("weight", "typical"): None,
        ("weight", "eps-0.1"): "vjp takes no 'eps'; this case wants eps=0.1",
        ("unit-offset", "typical"): "vjp takes no 'eps'; this case wants eps=1e-06",
    }
    for (dialect, sample), reason in reasons.items():
        found = judged(binding, case_of("rms_norm", dialect, sample))
        if reason is None:
            assert {f.verdict for f in found.values()} == {Verdict.PASS}
        else:
            assert (found["vjp"].verdict, found["vjp"].reason) == (Verdict.UNSUPPORTED, reason)
            assert list(found) == ["vjp"]


def test_the_fixed_value_of_a_dialects_entry_is_the_dialects(table):
    def fixed(ct, x, w):
        return vjp_of_gemma(ct, x, w)

    binding = table({"rms_norm/unit-offset": SimpleNamespace(vjp=fixed)})
    assert verdicts(binding, GEMMA) == {"x": "pass", "w": "pass"}
    assert verdicts(binding, case_of("rms_norm", "unit-offset", "eps-0.1")) == {
        "vjp": "unsupported"
    }


def test_a_default_of_its_own_does_not_replace_the_cases(table):
    def other_default(ct, x, w, eps=0.5):
        return vjp(ct, x, w, eps=eps)

    binding = table({"rms_norm": SimpleNamespace(vjp=other_default)})
    assert verdicts(binding, WEIGHT) == {"x": "pass", "w": "pass"}


def test_any_keyword_is_passed_to_a_vjp_that_takes_them_all(table):
    seen = []

    def open_vjp(ct, x, w, **attrs):
        seen.append(attrs)
        return vjp(ct, x, w + attrs["unit_offset"], eps=attrs["eps"])

    binding = table({"rms_norm": SimpleNamespace(vjp=open_vjp)})
    for case in (WEIGHT, GEMMA, case_of("rms_norm", "weight", "eps-0.1")):
        assert verdicts(binding, case) == {"x": "pass", "w": "pass"}
        assert seen[-1] == dict(case.attrs)


def test_what_has_no_signature_gets_every_attribute(table):
    class Opaque:
        __signature__ = "none"

        def __call__(self, ct, x, w, *, eps, unit_offset):
            return vjp(ct, x, w, eps=eps)

    binding = table({"rms_norm": {"vjp": Opaque()}})
    assert verdicts(binding, WEIGHT) == {"x": "pass", "w": "pass"}


def test_forward_takes_attributes_of_its_own(table):
    binding = table({"rms_norm": SimpleNamespace(vjp=vjp_without_eps, forward=forward)})
    assert verdicts(binding, WEIGHT) == {"forward": "pass", "x": "pass", "w": "pass"}
    needs = SimpleNamespace(vjp=vjp_without_eps, forward=Methods().forward)  # eps has no default
    assert set(verdicts(table({"rms_norm": needs}), WEIGHT).values()) == {"pass"}


def test_a_forward_without_the_attribute_is_not_blamed_for_its_value(table):
    def deaf(x, w):
        return forward(x, w)

    binding = table({"rms_norm": SimpleNamespace(vjp=vjp, forward=deaf)})
    assert set(verdicts(binding, WEIGHT).values()) == {"pass"}
    found = judged(binding, case_of("rms_norm", "weight", "eps-0.1"))["vjp"]
    assert found.verdict is Verdict.UNSUPPORTED
    assert found.reason == "forward takes no 'eps'; this case wants eps=0.1"


def test_a_statement_that_something_is_lacking_is_a_verdict(table):
    def picky(ct, x, w, **attrs):
        if x.dtype == np.float32:
            raise Unsupported("float64 only")
        return vjp(ct, x, w, eps=attrs["eps"])

    binding = table({"rms_norm": SimpleNamespace(vjp=picky)})
    assert verdicts(binding, WEIGHT, "float64") == {"x": "pass", "w": "pass"}
    found = judged(binding, WEIGHT, "float32")["vjp"]
    assert (found.verdict, found.reason) == (Verdict.UNSUPPORTED, "float64 only")


# ── saved tensors ────────────────────────────────────────────────────────────────────────────


def with_pullback(x, w, *, eps=1e-5):
    n, r = normalised(x, eps)

    def pullback(ct):
        g = ct * w
        dw = (ct * n).reshape(-1, w.size).sum(axis=0)
        return r * (g - n * np.mean(g * n, axis=-1, keepdims=True)), dw

    return n * w, pullback


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_forward_that_returns_its_pullback_needs_no_vjp(table, dtype):
    binding = table({"rms_norm": {"forward": with_pullback}})
    assert verdicts(binding, WEIGHT, dtype) == {"forward": "pass", "x": "pass", "w": "pass"}
    assert verdicts(binding, GEMMA, dtype) == {"vjp": "unsupported"}


def test_the_pullback_is_judged(table):
    def wrong(x, w, *, eps=1e-5):
        y, pullback = with_pullback(x, w, eps=eps)
        return y, lambda ct: tuple(1.001 * g for g in pullback(ct))

    found = verdicts(table({"rms_norm": {"forward": wrong}}), WEIGHT)
    assert found == {"forward": "pass", "x": "fail", "w": "fail"}


def test_a_vjp_beside_a_pullback_is_the_one_that_counts(table):
    binding = table({"rms_norm": {"forward": with_pullback, "vjp": lambda ct, x, w: (ct, w)}})
    assert verdicts(binding, WEIGHT) == {"forward": "pass", "x": "fail", "w": "fail"}


@pytest.mark.parametrize(
    "returned", [lambda y: y, lambda y: (y, y), lambda y: (y,), lambda y: [y, lambda ct: ct]]
)
def test_neither_vjp_nor_pullback_is_an_error_that_says_so(table, returned):
    binding = table({"rms_norm": {"forward": lambda x, w: returned(forward(x, w))}})
    found = judged(binding, WEIGHT)
    assert list(found) == ["forward"]
    assert found["forward"].verdict is Verdict.ERROR
    assert "there is no vjp, and forward did not return (y, pullback)" in found["forward"].reason


# ── what cannot be loaded ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("kernels", "'kernels' is not of the form package.module:NAME"),
        (":IMPL", "not of the form"),
        ("kernels:", "not of the form"),
        ("no_such_kernels:IMPL", "importing no_such_kernels raised ModuleNotFoundError"),
        ("..kernels:IMPL", "importing ..kernels raised TypeError"),
        ("math:IMPL", "math:IMPL: math has no 'IMPL'"),
        ("os:path.nothing", "os has no 'path.nothing'"),
    ],
)
def test_a_reference_that_leads_nowhere_says_where_it_ends(reference, message):
    with pytest.raises(LoadError) as caught:
        Python(reference)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('no GPU')", "raised ValueError: no GPU"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("import sys; sys.exit()", "raised SystemExit"),
        ("def", "raised SyntaxError"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("OTHER = {}", "has no 'IMPL'"),
    ],
)
def test_a_module_that_fails_on_import_is_named_with_its_error(imported, text, message):
    with pytest.raises(LoadError, match="written_kernels") as caught:
        imported(text)
    assert message in str(caught.value)


def test_ctrl_c_during_an_import_is_still_ctrl_c(imported):
    with pytest.raises(KeyboardInterrupt):
        imported("raise KeyboardInterrupt")


def test_a_table_may_lie_inside_an_object(imported):
    assert imported("class A:\n    B = {}", "A.B").table == {}


@pytest.mark.parametrize("entries", [[("rms_norm", RIGHT)], None, RIGHT, vjp, "rms_norm"])
def test_what_is_no_mapping_is_refused_with_advice(table, entries):
    with pytest.raises(LoadError, match=r"kernels:IMPL is a \w+; make it a dict from operator"):
        table(entries)


@pytest.mark.parametrize("entry", [1, None, object(), {}, {"vjp": 3}, {"backward": vjp}, vjp])
def test_an_entry_without_a_vjp_is_refused_and_named(table, entry):
    with pytest.raises(LoadError) as caught:
        table({"layer_norm": RIGHT, "rms_norm": entry})
    assert f"kernels:IMPL['rms_norm'] is a {type(entry).__name__} without" in str(caught.value)
    assert "give it vjp(ct, *primals, **attrs)" in str(caught.value)

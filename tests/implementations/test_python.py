"""What a script is told of an entry, in this process and from another one."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.isolated import Isolation
from gradcheck.implementations.load import load
from gradcheck.implementations.python import (
    Python,
    bound_operator,
    differentiated,
    into_of,
    refuse_unknown,
    vjp_from,
)
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.draw import Draw
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Suite
from tests.implementations.tables import case_of, imported, judged, verdicts


@pytest.fixture
def table():
    """Bind a table."""
    return lambda entries: imported(entries, Python)


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Write a module and bind NAME in it."""

    def bound(text, name="IMPL"):
        (tmp_path / "written_kernels.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "written_kernels", raising=False)
        return Python(f"written_kernels:{name}")

    yield bound
    sys.modules.pop("written_kernels", None)


WEIGHT = case_of("rms_norm", "weight")
GEMMA = case_of("rms_norm", "unit-offset")


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


@pytest.mark.slow(keep=1)
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


# ── a function alone ─────────────────────────────────────────────────────────────────────────


def bare(function, key="rms_norm"):
    return imported({key: function}, lambda word: load(word, SUITE))


def test_a_function_alone_is_the_vjp():
    assert verdicts(bare(vjp), WEIGHT) == {"x": "pass", "w": "pass"}
    wrong = bare(lambda ct, x, w, eps: tuple(2 * g for g in vjp(ct, x, w, eps=eps)))
    assert verdicts(wrong, WEIGHT) == {"x": "fail", "w": "fail"}


@pytest.mark.parametrize(
    "function",
    [
        lambda dy, a, b: None,
        lambda ct, x, w=None: None,
        lambda *args: None,
        lambda ct, x, w, eps: None,
        lambda ct, x, w, saved=None, *, eps: None,
        partial(lambda scale, ct, x, w: None, 2.0),
        type("Callable", (), {"__call__": lambda self, ct, x, w: None})(),
        np.add,  # without a signature
    ],
)
def test_whatever_can_take_the_cotangent_and_the_primals_is_one(function):
    assert bare(function).table["rms_norm"] == {"vjp": function}


@pytest.mark.parametrize(
    ("key", "function", "shown"),
    [
        ("rms_norm", forward, "forward(x, w); a function alone is the operator's vjp"),
        ("rms_norm", lambda x, w, dy: None, "(x, w, dy); a function alone"),
        ("rms_norm", lambda ct, x, w, more: None, "takes (ct, x, w), the cotangent first"),
        ("rms_norm", lambda ct, eps: None, "<lambda>(ct); a function alone"),
        ("layer_norm", lambda ct, x, w: None, "takes (ct, x, w, b)"),
    ],
)
def test_a_function_that_cannot_be_the_vjp_is_refused_with_both_signatures(key, function, shown):
    with pytest.raises(LoadError) as error:
        bare(function, key)
    assert str(error.value).startswith(f"kernels:IMPL['{key}'] is ")
    assert shown in str(error.value)
    assert '{"forward": f, "vjp": g}' in str(error.value)


def test_a_function_for_a_dialect_without_a_primal_need_not_take_it():
    assert bare(lambda ct, x: ct, "layer_norm/plain").name == "kernels:IMPL"
    assert bare(lambda ct, x, w, b: ct, "layer_norm").name == "kernels:IMPL"


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
    assert found.reason == "not implemented by kernels:IMPL"
    assert verdicts(table({}), WEIGHT) == {"vjp": "unbound"}


# ── attributes ───────────────────────────────────────────────────────────────────────────────


def test_a_vjp_without_an_attribute_is_judged_where_the_case_wants_the_default(table):
    binding = table({"rms_norm": SimpleNamespace(vjp=vjp_without_eps)})
    reasons = {
        ("weight", "typical"): None,
        ("weight", "eps-0.1"): "vjp takes no 'eps'; this case wants eps=0.1: add that keyword",
        ("unit-offset", "typical"): "vjp takes no 'eps'; this case wants eps=1e-06: add that "
        "keyword",
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
    assert found.reason == "forward takes no 'eps'; this case wants eps=0.1: add that keyword"


# ── primals of a dialect ─────────────────────────────────────────────────────────────────────


AFFINE, UNAFFINE = (case_of("layer_norm", dialect) for dialect in ("affine", "plain"))


def norm_vjp(ct, x, w, b, *, eps=1e-5):
    n, r = normalised(x - x.mean(-1, keepdims=True), eps)
    g = ct * w
    mean = {"axis": -1, "keepdims": True}
    dx = r * (g - np.mean(g, **mean) - n * np.mean(g * n, **mean))
    return dx, (ct * n).sum(axis=0), ct.sum(axis=0)


def plain_norm_vjp(ct, x, eps=1e-5):
    return norm_vjp(ct, x, np.ones(x.shape[-1]), 0, eps=eps)[0]


def either_vjp(ct, x, w=None, b=None, *, eps=1e-5):
    return plain_norm_vjp(ct, x, eps) if w is None else norm_vjp(ct, x, w, b, eps=eps)


def test_primals_of_another_dialect_are_unsupported_with_the_remedy(table):
    """A signature of all primals or of the least is no mistake, and 26 errors help nobody."""
    passed = {"x": "pass", "w": "pass", "b": "pass"}
    whole, least = (
        table({"layer_norm": {"vjp": norm_vjp}}),
        table({"layer_norm": {"vjp": plain_norm_vjp}}),
    )
    assert verdicts(whole, AFFINE) == passed
    found = judged(whole, UNAFFINE)["vjp"]
    assert (found.verdict, found.reason) == (
        Verdict.UNSUPPORTED,
        "vjp takes w and b, which layer_norm/plain does not have: bind it as layer_norm/affine, or "
        "give w and b a default",
    )
    assert verdicts(least, UNAFFINE) == {"x": "pass"}
    found = judged(least, AFFINE)["vjp"]
    assert (found.verdict, found.reason) == (
        Verdict.UNSUPPORTED,
        "vjp takes no w and b, which layer_norm/affine has: bind it as layer_norm/plain, or add "
        "them",
    )


def test_both_remedies_work(table):
    either = table({"layer_norm": {"vjp": either_vjp}})
    assert verdicts(either, UNAFFINE) == {"x": "pass"}
    assert set(verdicts(either, AFFINE).values()) == {"pass"}
    bound = table({"layer_norm/affine": {"vjp": norm_vjp}})
    assert set(verdicts(bound, AFFINE).values()) == {"pass"}
    assert bound.bind(UNAFFINE, "float64") is None


def test_a_number_of_primals_that_no_dialect_has_is_an_error(table):
    """So is another one than that of a dialect which the entry names."""
    none = table({"layer_norm": {"vjp": lambda ct, x, w: ct}, "relu": {"vjp": lambda ct: ct}})
    for case in (AFFINE, UNAFFINE, case_of("relu", "default")):
        assert verdicts(none, case) == {"vjp": "error"}
    named = table({"layer_norm/plain": {"vjp": norm_vjp}})
    assert verdicts(named, UNAFFINE) == {"vjp": "error"}


@pytest.mark.parametrize(
    "entry",
    [
        {"vjp": lambda ct, *primals, eps: norm_vjp(ct, *primals, eps=eps)},
        {"forward": lambda x, w, b, *, eps: (x, lambda ct: norm_vjp(ct, x, w, b, eps=eps))},
        {"vjp_into": lambda outs, ct, x, w, b, *, eps: None},
    ],
    ids=["any number", "pullback", "into"],
)
def test_every_form_of_an_entry_is_read_by_its_signature(table, entry):
    found = verdicts(table({"layer_norm": entry}), UNAFFINE)
    assert found == {"vjp": "error" if "vjp" in entry else "unsupported"}


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
def test_a_module_that_fails_on_import_is_named_with_its_error(written, text, message):
    with pytest.raises(LoadError, match="written_kernels") as caught:
        written(text)
    assert message in str(caught.value)


def test_ctrl_c_during_an_import_is_still_ctrl_c(written):
    with pytest.raises(KeyboardInterrupt):
        written("raise KeyboardInterrupt")


def test_a_table_may_lie_inside_an_object(written):
    assert written("class A:\n    B = {}", "A.B").table == {}


@pytest.mark.parametrize("entries", [[("rms_norm", RIGHT)], None, RIGHT, vjp, "rms_norm"])
def test_what_is_no_mapping_is_refused_with_advice(table, entries):
    with pytest.raises(LoadError, match=r"kernels:IMPL is a \w+; make it a dict from operator"):
        table(entries)


@pytest.mark.parametrize("entry", [1, None, object(), {}, {"vjp": 3}, {"backward": vjp}, Suite])
def test_an_entry_without_a_vjp_is_refused_and_named(table, entry):
    with pytest.raises(LoadError) as caught:
        table({"layer_norm": RIGHT, "rms_norm": entry})
    assert f"kernels:IMPL['rms_norm'] is a {type(entry).__name__} without" in str(caught.value)
    assert "give it vjp(ct, *primals, **attrs)" in str(caught.value)


ROOT = Path(__file__).parents[2]

QUESTION = """
import sys
from gradcheck.implementations.python import differentiated

class Kernel:
    def vjp(self, ct, x): ...

for entry in (Kernel, Kernel(), {"vjp": len}, len, lambda x: x, 3, None):
    assert differentiated(entry) is None
assert not {"torch", "jax"} & set(sys.modules)
"""


@pytest.mark.slow
def test_no_framework_is_imported_for_the_question():
    root = {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", QUESTION], env=root, check=True)


@pytest.mark.frameworks
def test_what_says_itself_how_it_is_differentiated_is_not_a_frameworks():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")

    class Kernel:
        __module__ = "torch.kernels"

        def vjp(self, ct, x):
            return ct

        def __call__(self, x):
            return x

    for entry in (Kernel(), Kernel, {"vjp": torch.tanh}, {"forward": jax.numpy.tanh}):
        assert differentiated(entry) is None


EXAMPLES = {
    ("silu", "default"): {"x": "pass"},
    ("rms_norm", "weight"): {"x": "pass", "w": "fail"},
    ("swiglu", "default"): {"gate": "fail", "up": "pass"},
    ("softmax", "default"): {"x": "pass"},
    ("sigmoid", "default"): {"x": "pass"},
    ("tanh", "default"): {"x": "fail"},
    ("gelu", "erf"): {"x": "pass"},
}


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("op", "dialect"), EXAMPLES)
def test_the_examples_are_right_and_wrong_as_they_say(op, dialect, dtype):
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    found = verdicts(load("examples.frameworks:IMPL", SUITE), case_of(op, dialect), dtype)
    assert found == {"forward": "pass", **EXAMPLES[op, dialect]}


@pytest.mark.frameworks
def test_the_examples_model_is_right():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    (case,) = SUITE.model_cases(["linear_regression"], sizes=["tiny"])
    binding = load("examples.frameworks:IMPL", SUITE)
    found = judge_model(ModelTruth(case), binding, "float64").findings
    assert {f.name: f.verdict.value for f in found} == dict.fromkeys(("loss", "w", "b"), "pass")


SPEC = SUITE.operators["rms_norm"]
CT = Draw(0, "test_into").powers(3, 7)  # sums of powers of two are exact
X, W = np.full((3, 7), 2.0), np.full(7, 3.0)
SUMS = CT.sum(axis=0)


def fills(outs, ct, x, w, *, eps=1e-5):
    outs["x"][...] = ct * eps
    outs["w"] += ct.sum(axis=0)


def entry(**changes):
    return SimpleNamespace(**{"vjp_into": fills, "accumulates": ("w",), **changes})


def test_what_is_declared_comes_along():
    into = into_of(entry(zeroed="x", aliases=[["x", "ct"]]), {"eps": 0.5}, {"eps": 1e-5})
    assert into.accumulates == {"w"}
    assert into.zeroed == {"x"}
    assert into.aliases == (("x", "ct"),)
    outs = {"x": np.zeros((3, 7)), "w": np.ones(7)}
    into.call(outs, CT, X, W, eps=0.25, unknown=1)  # it has attributes of its own
    assert np.array_equal(outs["x"], 0.5 * CT)
    assert np.array_equal(outs["w"], 1 + SUMS)


def test_without_a_vjp_into_there_is_none():
    assert into_of(SimpleNamespace(vjp=fills), {}, {}) is None


def test_an_attribute_that_it_does_not_take_is_fixed():
    fixed = entry(vjp_into=lambda outs, ct, x, w: None)
    assert into_of(fixed, {"eps": 1e-5}, {"eps": 1e-5}) is not None
    with pytest.raises(Unsupported, match="vjp_into takes no 'eps'"):
        into_of(fixed, {"eps": 0.1}, {"eps": 1e-5})


def test_a_vjp_into_alone_makes_a_vjp():
    bound = bound_operator(entry(), {"eps": 0.5}, {"eps": 1e-5}, ("x", "w"))
    dx, dw = bound.vjp(CT, X, W, **bound.attrs)
    assert np.array_equal(dx, 0.5 * CT)
    assert np.array_equal(dw, SUMS)
    again = bound.vjp(CT, X, W, **bound.attrs)
    assert np.array_equal(again[1], SUMS)  # from zeros each time
    assert bound.strided
    assert bound.asked is None
    with pytest.raises(Unsupported, match="stage"):
        bound_operator(entry(), {}, {})


def test_an_index_gets_no_buffer():
    seen = []

    def looks(outs, ct, x, ids):
        seen.append(sorted(outs))

    bound = bound_operator(SimpleNamespace(vjp_into=looks), {}, {}, ("x", "ids"))
    assert bound.vjp(CT, X, np.array([1, 2]))[1] is None
    assert seen == [["x"]]


def test_a_derived_vjp_survives_a_write_past_the_end():
    def strays(outs, ct, x):
        flat = np.lib.stride_tricks.as_strided(outs["x"], (22,), (8,))
        flat[...] = 1.0

    vjp = vjp_from(into_of(SimpleNamespace(vjp_into=strays), {}, {}), ("x",))
    assert vjp(CT, X)[0].tolist() == np.ones((3, 7)).tolist()


def test_a_vjp_that_takes_needs_can_be_asked_for_some():
    def vjp(ct, x, w, *, eps=1e-5, needs=(True, True)):
        return tuple(ct * eps if need else None for need in needs)

    bound = bound_operator(SimpleNamespace(vjp=vjp), {"eps": 0.5}, {"eps": 1e-5}, ("x", "w"))
    assert bound.attrs == {"eps": 0.5}
    dx, dw = bound.asked((False, True), CT, X, W, **bound.attrs)
    assert dx is None
    assert np.array_equal(dw, 0.5 * CT)
    silent = SimpleNamespace(vjp=lambda ct, x, w, **attrs: None)
    assert bound_operator(silent, {}, {}, ("x", "w")).asked is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accumulates": ("v",)}, "`accumulates` names 'v', no primal; did you mean|known"),
        (
            {"accumulates": "weight"},
            "`accumulates` names 'weight', no primal; known: \\['x', 'w'\\]",
        ),
        ({"zeroed": ("dx",)}, "`zeroed` names 'dx', no primal; did you mean 'x'"),
        ({"aliases": (("y", "ct"),)}, "`aliases` names 'y'"),
        ({"aliases": (("ct", "x"),)}, "`aliases` names 'ct'"),
        ({"aliases": ("x",)}, "as pairs"),
        ({"aliases": (("x", "ct", "w"),)}, "as pairs"),
        ({"vjp_into": None, "vjp": fills}, "`accumulates` is about vjp_into, and there is none"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(changes, said):
    with pytest.raises(LoadError, match=said):
        refuse_unknown("kernels:IMPL['rms_norm']", entry(**changes), SPEC)


def test_right_declarations_and_none_are_accepted():
    refuse_unknown("k", entry(aliases=(("x", "ct"), ("x", "x"))), SPEC)
    refuse_unknown("k", SimpleNamespace(vjp=fills), SPEC)
    refuse_unknown("k", {"vjp_into": fills, "zeroed": ["x"]}, SPEC)


TABLE = """
import numpy as np

class Both:
    def forward(x, w, b=None, *, eps): return x
    def vjp(ct, x, w, b=None, *, eps, unit_offset=False): return ct, ct
def pair(x): return x, lambda ct: ct
def into(outs, ct, x): outs["x"][...] = ct
def bare(ct, x): return ct

TABLE = {
    "rms_norm/weight": Both,
    "tanh": {"forward": pair},
    "neg": {"vjp_into": into},
    "softcap": {"vjp": bare},
    "exp": bare,
    "abs": {"vjp": bare, "vjp_into": into, "forward": pair},
}
"""
WANT = {
    "rms_norm": ("rms_norm/weight", "vjp", False, {"eps", "unit_offset"}, {"eps"}),
    "tanh": ("tanh", "pullback", True, set(), set()),
    "neg": ("neg", "into", True, set(), None),
    "softcap": ("softcap", "vjp", True, set(), None),
    "exp": ("exp", "bare", False, set(), None),
    "abs": ("abs", "vjp", True, set(), set()),
}


@pytest.fixture(params=["here", "elsewhere"])
def table_of(request, suite, tmp_path, monkeypatch):
    """The implementation, in this process or in one of its own."""
    (tmp_path / "recipes.py").write_text(TABLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    isolation = Isolation(suites=["gradcheck_cases:SUITE"])
    own = request.param == "elsewhere"
    found = load("recipes:TABLE", suite, isolation=isolation if own else None)
    yield found
    if own:
        found.close()


@pytest.mark.slow(keep=1)
def test_each_entry_is_told_as_it_is_called(suite, table_of):
    for op, (key, style, mapping, attrs, forward) in WANT.items():
        dialect = key.partition("/")[2] or suite.operators[op].dialects[0].name
        case = suite.cases([op], [dialect], ["typical"])[0]
        recipe = table_of.bind(case, "float64").recipe
        assert (recipe.key, recipe.style, recipe.mapping) == (key, style, mapping)
        assert set(recipe.attrs) == attrs
        assert (None if recipe.forward is None else set(recipe.forward)) == forward
        assert all(recipe.attrs[name] == case.attrs[name] for name in attrs)
        assert not recipe.ours


def test_what_is_bound_by_no_table_has_none(suite):
    case = suite.cases(["tanh"])[0]
    assert load("reference", suite).bind(case, "float64").recipe is None


@pytest.mark.frameworks
def test_a_wrapped_function_needs_us_and_a_bare_one_does_not(suite, monkeypatch):
    torch = pytest.importorskip("torch")
    from gradcheck import torch_op

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, cap=30.0, other=7):
            return x

    table_of = {"tanh": torch_op(torch.tanh), "neg": torch.neg, "softcap": Scaled,
             "sigmoid": torch.nn.Sigmoid()}  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "wrapped", SimpleNamespace(TABLE=table_of))
    found = load("wrapped:TABLE", suite)
    told = {op: found.bind(suite.cases([op])[0], "float64").recipe for op in table_of}
    assert {op: (r.style, r.ours) for op, r in told.items()} == {
        "tanh": ("vjp", True), "neg": ("torch", False), "softcap": ("apply", False),
        "sigmoid": ("module", False),
    }  # fmt: skip
    assert told["softcap"].behind == (suite.cases(["softcap"])[0].attrs["cap"],)

"""The text of issues: lines that Python takes, whatever is in them, and Markdown that holds."""

import ast
from dataclasses import replace

import numpy as np
import pytest

from gradcheck.errors import UsageError
from gradcheck.implementations.bound import Callee
from gradcheck.implementations.reference import Reference
from gradcheck.report.scripts.issue import Issue, markdown, script
from gradcheck.report.scripts.point import accepted, whole
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

TORCH = Callee(framework="torch", name="torch.tanh", module="", style="function", attrs={})
JAX = replace(TORCH, framework="jax", name="jax.numpy.tanh")


@pytest.fixture(scope="module")
def made(suite):
    """`made(operator, callee, sample=, dtype=, …)`: an issue on the reference's own gradient."""

    def call(operator, callee, sample="typical", dtype="float64", output="x", **changes):
        case = next(iter(suite.cases([operator], samples=[sample])))
        finding = Finding(name=output, verdict=Verdict.FAIL)
        shrunk = whole(case, Reference(), dtype, finding)
        usual = {"word": "mine:IMPL", "verdict": Verdict.FAIL, "says": ["FAIL x: dx: no"],
                 "again": "Again: gradcheck repro x"}  # fmt: skip
        found = accepted(shrunk)
        return Issue(shrunk=shrunk, accepted=found, callee=callee, **{**usual, **changes})

    return call


def literals(text, name):
    """The numbers of the array that a script calls `name`."""
    nodes = (node for node in ast.parse(text).body if isinstance(node, ast.Assign))
    node = next(node for node in nodes if getattr(node.targets[0], "id", "") == name)
    return np.array(ast.literal_eval(node.value.args[0]))


@pytest.mark.parametrize("callee", [TORCH, JAX])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_numbers_are_those_that_were_judged(made, callee, dtype):
    issue = made("tanh", callee, dtype=dtype)
    text = script(issue)
    primal = issue.shrunk.case.primals[0]
    kind = issue.shrunk.case.primals[0].astype("float32" if dtype == "bfloat16" else dtype).dtype
    given = literals(text, "x").astype(kind)
    assert given.shape == primal.shape
    scale = {"float64": 0, "float32": 1e-7, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(given, primal, rtol=scale)


def test_several_outputs_get_a_cotangent_each(made):
    issue = made("qk_norm", replace(TORCH, name="f"), output="q")
    text = script(issue)
    ast.parse(text)
    assert "torch.autograd.backward(out, (torch.tensor(" in text
    text = script(made("qk_norm", replace(JAX, name="f"), output="k"))
    ast.parse(text)
    assert "f, q, k, wq, wk)" in text
    assert ")[1].flatten()" in text


def test_attributes_and_devices_are_passed(made):
    attrs = {"eps": 1e-5, "shape": (3, float("inf")), "mode": "it's"}
    text = script(made("tanh", replace(TORCH, attrs=attrs, device="cuda")))
    assert 'torch.tanh(x, eps=1e-05, shape=(3, float("inf")), mode="it\'s")' in text
    assert text.count("device='cuda'") == 2
    applied = replace(TORCH, name="Tanh", module="my.k", style="apply", behind=(2, None))
    text = script(made("tanh", applied, ours=True))
    assert "from my.k import Tanh  # its table imports gradcheck\n" in text
    assert "out = Tanh.apply(x, 2, None)\n" in text
    text = script(made("tanh", replace(JAX, attrs=attrs, compiled=True, device="gpu")))
    assert "jax.vjp(jax.jit(lambda x: jax.numpy.tanh(x, eps=1e-05, " in text
    assert "jax.config.update(\"jax_default_device\", jax.devices('gpu')[0])" in text


def test_what_is_too_large_or_empty_is_refused(made):
    with pytest.raises(UsageError, match="more than 256 elements; remove --no-shrink"):
        script(made("get_rows", TORCH, sample="far"))
    with pytest.raises(UsageError, match="dx has no elements here"):
        script(made("tanh", TORCH, sample="empty"))


def test_hostile_words_stay_comments_and_text(made):
    says = ['FAIL x: dx: """\nimport os\n```\n\x1b[1m', "```"]
    issue = made("tanh", TORCH, says=says)
    text = script(issue)
    assert [type(node).__name__ for node in ast.parse(text).body[:2]] == ["Import", "Assign"]
    assert "\x1b" not in text
    page = markdown(issue, text, "```\n# no title\n", 1)
    fences = [line for line in page.splitlines() if line.startswith("````")]
    assert fences == ["````python", "````", "````text", "````", "````text", "````"]
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, "It ends with exit status 1."),
        (-11, "It ends with SIGSEGV."),
        (None, "It does not end."),
    ],
)
def test_the_end_of_the_script_is_told(made, code, says):
    issue = made("tanh", TORCH)
    assert says in markdown(issue, script(issue), "", code)

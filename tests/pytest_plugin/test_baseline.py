import json
import re

import pytest

KERNELS = """
def relu(ct, x): return ct * (x > 0)
class Relu:
    vjp = staticmethod(relu)
class Negated:
    vjp = staticmethod(lambda ct, x: -relu(ct, x))
class Doubled:
    vjp = staticmethod(lambda ct, x: 2.0 * relu(ct, x))
class Nothing:
    vjp = staticmethod(lambda ct, x: None)
class Neg:
    vjp = staticmethod(lambda ct, x: -ct)

RIGHT = {"relu": Relu, "neg": Neg}
WRONG = {"relu": Doubled, "neg": Neg}
"""
SAMPLES = ("--gradcheck-sample", "typical", "--gradcheck-sample", "cube")
WORDS = (
    "--gradcheck-suite", "gradcheck_cases:SUITE", "--gradcheck-op", "relu", "--gradcheck-op", "neg",
    *SAMPLES, "--gradcheck-dtype", "float64", "--gradcheck-no-contract", "--gradcheck-no-isolate",
    "--gradcheck-baseline", "known.toml", "-rxfs",
)  # fmt: skip
XDIST = ("-p", "xdist", "-n", "2", "--dist", "loadscope")
KNOWN = """
[[known]]
match = "relu/*/*/float64"
output = "dx"
verdict = "fail"
class = "scale"
max_error = 0.51
reason = "twice the \\u001b[31mvalue"
link = "https://example.org/17"
"""
STALE = """
[[known]]
match = "rely/*/*/float64"
output = "dx"
verdict = "fail"
reason = "misspelt"
"""
OVER = """
[[known]]
match = "silu/*/typical/float64"
output = "dx"
verdict = "fail"
reason = "it took a while"
expires = 2020-01-01
"""
NO_OUTPUT = """
[[known]]
match = "neg/*/typical/float64"
output = "dw"
verdict = "fail"
reason = "there is no such output"
"""


@pytest.fixture
def judged(pytest_, folder):
    def judge(impl, *entries, words=()):
        (folder / "known.toml").write_text("".join(entries))
        return pytest_(*WORDS, "--gradcheck-impl", f"kernels:{impl}", *words)

    return judge


def section(found):
    """The lines below the title of ours in the terminal."""
    (text,) = re.findall(r"=+ gradcheck =+\n(.*?)\n=", found.stdout, re.DOTALL)
    return text.splitlines()


@pytest.mark.slow
def test_what_is_known_is_xfailed_with_its_reason_and_its_line(judged):
    found = judged("WRONG", KNOWN)
    assert found.returncode == 0, found.stdout
    assert "3 passed, 2 xfailed" in found.stdout  # neg twice, and the baseline itself
    reason = r"known.toml:2: twice the \x1b[31mvalue (https://example.org/17)"
    node = "XFAIL gradcheck::kernels:WRONG::relu/default/cube/float64 - "
    assert f"{node}{reason}" in found.stdout.replace("- reason: ", "- ")  # as pytest 8 has it
    assert section(found) == ["4 checks, 2 known; known failures: known.toml"]
    assert "\x1b" not in found.stdout


@pytest.mark.slow
def test_without_an_entry_it_fails(judged):
    found = judged("WRONG", NO_OUTPUT.replace("dw", "dx").replace("fail", "flaky"))
    assert (found.returncode, "2 failed, 3 passed" in found.stdout) == (1, True)
    first = section(found)[0]
    assert first.startswith("4 checks, 2 failed (scale 2); known failures: known.toml; as a page")
    assert len(section(found)) == 1  # the failures stand above


@pytest.mark.slow
def test_a_listed_failure_that_passes_is_a_failure_that_names_the_line_to_remove(judged):
    found = judged("RIGHT", KNOWN)
    assert found.returncode == 1
    assert "2 failed, 3 passed" in found.stdout
    says = "relu/default/cube/float64 · dx passes now: remove the entry, or narrow its match"
    assert f"\nknown.toml:2: XPASS: {says}\n" in found.stdout
    node = "gradcheck::kernels:RIGHT::relu/default/cube/float64"
    assert f"FAILED {node} - XPASS known.toml:2: {says}\n" in found.stdout
    told = section(found)
    assert told[0] == "4 checks, 2 listed and passing; known failures: known.toml"
    assert [line.partition(" (")[0] for line in told[1:]] == ["known.toml:2: XPASS: 2 results"]
    assert "Traceback" not in found.stdout


@pytest.mark.slow
def test_another_failure_than_the_listed_one_fails_with_the_baselines_words(judged):
    known = KNOWN.replace("*", "default", 1).replace('"relu/default/*/', '"relu/default/{}/')
    verdict = known.replace("fail", "crash").replace('class = "scale"\nmax_error = 0.51\n', "")
    found = judged(
        "WRONG",
        known.format("typical").replace("scale", "sign"),
        known.format("cube").replace("0.51", "0.3"),
        verdict.format("square"),
        words=["--gradcheck-sample", "square"],
    )
    assert found.returncode == 1
    assert "3 failed, 4 passed" in found.stdout
    for line, sample, breach, rest in (
        (2, "typical", "OTHER CLASS", "is of class scale, not sign: "),
        (11, "cube", "WORSE", "has a relative error of 0.5, above max_error = 0.3: "),
        (20, "square", "OTHER VERDICT", "is FAIL, not crash: "),
    ):
        title = f"relu/default/{sample}/float64 · dx"
        assert f"\nknown.toml:{line}: {breach}: {title} {rest}" in found.stdout
        assert f" - {breach} known.toml:{line}: {title} {rest}" in found.stdout
        assert f"\nFAIL {title} (kernels.py:" in found.stdout  # and all that is known of it


@pytest.mark.slow
def test_entries_about_nothing_and_entries_that_are_over_fail_once(judged):
    found = judged("WRONG", KNOWN, STALE, OVER)
    assert found.returncode == 1
    assert "1 failed, 2 passed, 2 xfailed" in found.stdout
    stale = "known.toml:11: STALE: no case matches rely/*/*/float64: "
    over = "known.toml:17: EXPIRED: silu/*/typical/float64 · dx was known until 2020-01-01: "
    failure, _, below = found.stdout.partition(" gradcheck =")
    assert failure.count(stale) == failure.count(over) == 1
    assert [line.startswith(x) for line, x in zip(section(found)[1:], (stale, over), strict=True)]
    assert f"FAILED gradcheck::baseline - STALE {stale[:13]}" in below
    assert " (and 1 more)" in below


@pytest.mark.slow
def test_where_only_a_part_is_run_nothing_is_called_stale(judged):
    found = judged("WRONG", KNOWN, STALE, OVER, NO_OUTPUT, words=["-k", "relu"])
    assert found.returncode == 0, found.stdout
    assert "2 xfailed" in found.stdout
    assert len(section(found)) == 1


@pytest.mark.slow
def test_an_output_that_no_case_has_is_stale_where_all_were_run(judged):
    found = judged("WRONG", KNOWN, NO_OUTPUT)
    assert found.returncode == 1
    assert "3 passed, 2 xfailed" in found.stdout  # no item could know
    says = "known.toml:11: STALE: neg/*/typical/float64 has no dw (it has dx): "
    assert section(found)[1].startswith(says)
    partly = judged("WRONG", KNOWN, NO_OUTPUT.replace("typical", "*"))
    assert partly.returncode == 0, partly.stdout  # other samples were not selected


@pytest.mark.slow(rest=0)
def test_the_same_under_xdist(judged):
    pytest.importorskip("xdist")
    found = judged("WRONG", KNOWN, STALE, NO_OUTPUT, words=XDIST)
    assert found.returncode == 1
    assert "1 failed, 2 passed, 2 xfailed" in found.stdout
    told = section(found)
    assert told[0] == "4 checks, 2 known; known failures: known.toml"
    assert [line.partition(": ")[0] for line in told[1:]] == ["known.toml:11", "known.toml:17"]


@pytest.mark.slow
def test_runxfail_lets_what_is_known_fail(judged):
    found = judged("WRONG", KNOWN, words=["--runxfail", *SAMPLES[:2]])
    assert found.returncode == 1
    assert "2 failed, 3 passed" in found.stdout
    assert "FAIL relu/default/typical/float64 · dx (kernels.py:" in found.stdout


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (KNOWN.replace("output", "outptu"), (), "known.toml:2: unknown key 'outptu'"),
        (KNOWN, ("--gradcheck-baseline", "none.toml"), "none.toml: there is no such file"),
    ],
    ids=["key", "absent"],
)
def test_a_bad_baseline_is_a_usage_error(judged, text, words, said):
    found = judged("WRONG", text, words=words)
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = found.stderr.splitlines()[:1]
    assert line.startswith(f"ERROR: gradcheck: {said}")


@pytest.mark.slow
def test_a_baseline_needs_an_implementation(pytest_):
    found = pytest_("--gradcheck-baseline", "known.toml")
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    assert "name it with --gradcheck-impl" in found.stderr


@pytest.mark.slow
def test_the_report_holds_what_the_baseline_says(judged, folder):
    words = ["--gradcheck-report", "run.json", "--gradcheck-report", "run.md"]
    found = judged("WRONG", KNOWN, words=words)
    assert found.returncode == 0
    assert section(found)[1:] == ["written: run.json", "written: run.md"]
    run = json.loads((folder / "run.json").read_text())
    assert (run["footer"]["baseline"]["xfail"], run["footer"]["passed"]) == (2, True)
    assert (folder / "run.md").read_text().startswith("**gradcheck: ")


@pytest.mark.slow
def test_what_is_required_fails_where_it_is_lacking(judged):
    gap = ("--gradcheck-op", "tanh", "--gradcheck-require", "tanh")
    found = judged("RIGHT", words=gap)
    assert (found.returncode, "2 failed, 5 passed" in found.stdout) == (1, True), found.stdout
    assert "tanh: required, but UNBOUND in typical/float64: not implemented by" in found.stdout
    assert any(line.startswith("tanh: required, but UNBOUND in 2 re") for line in section(found))
    assert judged("RIGHT", words=("--gradcheck-require", "neg")).returncode == 0
    misspelt = judged("RIGHT", words=("--gradcheck-require", "relo"))
    assert (misspelt.returncode, "did you mean 'relu'?" in misspelt.stderr) == (4, True)

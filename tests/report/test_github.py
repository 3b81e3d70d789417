import re

import pytest

from gradcheck.report.github import MOST, render
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Breach, Known, Verdict

FAIL = Verdict.FAIL
COMMAND = re.compile(
    r"::(?P<name>error|warning|notice)(?: (?P<properties>[^:]*))?::(?P<message>.*)"
)
DECODED = {"%25": "%", "%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}


def decoded(text):
    """As a runner decodes what it reads."""
    return re.sub("%(25|0D|0A|3A|2C)", lambda m: DECODED[m[0]], text)


def commands(run):
    """The commands of a report as (name, properties, message), read as a runner reads them."""
    *lines, last = render(run).splitlines()
    assert last == run.summary
    found = []
    for line in lines:
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = [pair.split("=", 1) for pair in (match["properties"] or "").split(",") if pair]
        properties = {key: decoded(value) for key, value in pairs}
        assert set(properties) <= {"file", "line", "title"}
        assert len(properties) == len(pairs)
        found.append((match["name"], properties, decoded(match["message"])))
    return found


def one(make, **changes):
    ((name, properties, message),) = commands(make.run(make.result(verdict=FAIL, **changes)))
    assert name == "error"
    return properties, message


def test_every_run_is_made_of_commands_that_a_runner_reads(any_run):
    found = commands(any_run)
    assert any(name == "error" for name, _, _ in found) == (not any_run.passed)
    assert sum(name == "error" for name, _, _ in found) <= MOST


def test_a_run_that_passes_annotates_nothing(passing):
    assert render(passing) == f"{passing.summary}\n"


def test_a_gradient_is_named_with_its_class_where_its_code_stands(make):
    properties, message = one(make, output="w", diagnosis=make.why(), source="src/rms.c:120")
    assert properties == {
        "file": "src/rms.c",
        "line": "120",
        "title": "rms_norm/weight · dw: scale",
    }
    assert message.splitlines() == [
        "dw is 1/3 of the right value",
        "3 is the number of rows",
        "wrong in all 5 probes",
        "FAIL rms_norm/weight/typical/float64: 3 of 24 elements are outside their bound",
        "run: gradcheck run --op rms_norm --dialect weight --sample typical --dtype float64",
    ]


def test_the_escapes_are_those_that_a_runner_decodes(make):
    run = make.run(make.result(verdict=FAIL, diagnosis=make.why(), source="a,b:c%.c:7"))
    line = render(run).splitlines()[0]
    assert line.startswith(
        "::error file=a%2Cb%3Ac%25.c,line=7,title=rms_norm/weight · dx%3A scale::dw is 1/3"
    )
    assert "%0A3 is the number of rows%0A" in line
    percent = make.run(make.result(verdict=FAIL, reason="50% off%0A::error::no"))
    assert "::50%25 off%250A::error::no%0AFAIL" in render(percent)


def test_without_a_class_the_verdict_and_the_reason_stand_for_it(make):
    properties, message = one(make, diagnosis=make.why("", evidence=("the residual is 0.3",)))
    assert properties == {"title": "rms_norm/weight · dx: FAIL"}
    assert message.splitlines()[:3] == [
        "3 of 24 elements are outside their bound",
        "pattern: none known; the residual is 0.3",
        "FAIL rms_norm/weight/typical/float64",
    ]
    _, bare = one(make, reason="", repro="")
    assert bare == "FAIL\nFAIL rms_norm/weight/typical/float64"


@pytest.mark.parametrize(
    ("source", "properties"),
    [
        ("", {}),
        ("src/rms.c", {"file": "src/rms.c"}),
        ("src/rms.c:", {"file": "src/rms.c:"}),
        ("src/rms.c:x", {"file": "src/rms.c:x"}),
        (":7", {"file": ":7"}),
        ("a:b.c:7", {"file": "a:b.c", "line": "7"}),
        ("a.c:٣", {"file": "a.c:٣"}),  # a digit that no runner reads
    ],
)
def test_a_place_is_told_as_far_as_it_is_known(make, source, properties):
    found, _ = one(make, source=source)
    found.pop("title")
    assert found == properties


def test_a_gradient_has_one_error_however_many_samples_and_dtypes_fail(make):
    results = [
        make.result(verdict=FAIL, sample=s, dtype=d, diagnosis=make.why(label))
        for d in ("float64", "float32")
        for s, label in (("a", "F"), ("b", "F"), ("c", "T"))
    ]
    ((_, properties, message),) = commands(make.run(*results))
    assert properties["title"].endswith(": scale")
    assert "… and 5 more: 5 FAIL: 3 scale, 2 term (dw is 1/3 of the right value)" in message


def test_outputs_dialects_and_implementations_have_errors_of_their_own(make):
    results = [
        make.result(output=o, verdict=FAIL, dialect=d, implementation=i)
        for i in ("mine", "yours")
        for d in ("weight", "plain")
        for o in ("x", "w")
    ]
    found = commands(make.run(*results, implementations=("mine", "yours")))
    titles = {properties["title"] for _, properties, _ in found}
    assert len(found) == len(titles) == 8
    assert "yours · rms_norm/plain · dw: FAIL" in titles


def test_beyond_ten_errors_the_rest_is_counted(make):
    results = [make.result(f"op{i:02}", verdict=FAIL) for i in range(13)]
    found = commands(make.run(*results))
    assert [name for name, _, _ in found] == ["error"] * 10 + ["notice"]
    assert found[-1][2].startswith("and 3 more; ")
    ten = commands(make.run(*results[:10]))
    assert [name for name, _, _ in ten] == ["error"] * 10


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"troubles": ("mine: no module\n::error::named 'mine'",)}, "gradcheck: problem"),
        ({"complete": False}, "gradcheck: incomplete"),
    ],
)
def test_whatever_else_closes_the_gate_is_an_error(make, changes, title):
    ((name, properties, _),) = commands(make.run(make.result(), **changes))
    assert (name, properties) == ("error", {"title": title})


def test_an_empty_run_is_an_error(empty):
    ((name, properties, message),) = commands(empty)
    assert (name, message) == ("error", "nothing was checked")
    assert properties


def test_gradients_that_a_guilty_stage_spoils_are_counted_and_the_stage_is_blamed(make):
    blames = (
        make.blame("ln_f", names=("its dw lacks a factor",)),
        make.blame("embed", round=2, names=("its dw is lost",)),
    )
    run = make.run(
        make.of_model("loss", part=Part.VALUE, blames=blames),
        make.of_model("ln_f", FAIL, part=Part.STAGE),
        *(make.of_model(f"w{i}", FAIL) for i in range(20)),
    )
    (name, properties, message), (last, _, rest) = commands(run)
    assert (name, last) == ("error", "notice")
    assert properties["title"] == "gpt2/default · stage ln_f: FAIL"
    assert "round 1: faulty stage: ln_f (1 of 25 stages)" in message.splitlines()
    assert "its dw lacks a factor" in message.splitlines()
    assert "its dw is lost" not in message  # of another stage
    assert rest.startswith("and 20 gradients affected downstream of faulty stages; ")


def test_no_text_of_anybodys_begins_a_line_or_ends_a_property(hostile, make):
    found = commands(hostile)
    assert found
    evil = "x\n::stop-commands::y\r::error file=z,title=q::w%0A::add-mask::v"
    properties, message = one(
        make, output=evil, reason=evil, repro=evil, source=f"{evil}:3",
        diagnosis=make.why(says=evil, evidence=(evil,)),
    )  # fmt: skip
    assert set(properties) == {"file", "line", "title"}
    assert properties["line"] == "3"
    assert not [line for line in message.splitlines() if line.startswith("::")]


def units(text):
    return len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize("letter", ["x", "\U0001f4a5"])
def test_a_message_is_not_cut_by_the_runner_and_keeps_its_command(make, letter):
    long = letter * 3000
    evidence = tuple(f"{i} {long}" for i in range(30))
    properties, message = one(
        make, op=long, output=long, reason=long, diagnosis=make.why(says=long, evidence=evidence)
    )
    assert units(message) <= 4096
    assert len(properties["title"]) <= 500
    assert message.startswith(letter)
    told = message.splitlines()[-1].startswith("run: gradcheck run --op ")
    assert told == (letter == "x")  # as wide characters it would leave no room for the reason
    assert message.splitlines()[1].startswith("0 ")
    for changes in ({"troubles": (long,)}, {}):
        for _, _, other in commands(make.run(make.result(verdict=FAIL, reason=long), **changes)):
            assert units(other) <= 4096


def test_a_listed_failure_that_passes_is_an_error_at_its_line(make):
    run = make.run(make.result())
    problem = make.problem(Breach.XPASS, line=7, says="it passes now: remove the entry")
    ((name, properties, message),) = commands(make.gated(run, [Known.XPASS], [problem]))
    assert (name, message) == ("error", "it passes now: remove the entry")
    assert properties == {"file": "known.toml", "line": "7", "title": "baseline: xpass"}


def test_a_baselines_warnings_are_warnings_and_ten_at_most(make):
    run = make.run(make.result())
    texts = [f"known.toml:{i}: matches many" for i in range(13)]
    found = commands(make.gated(run, [None], warnings=texts))
    assert [name for name, _, _ in found] == ["warning"] * 10 + ["notice"]
    assert found[0][2] == texts[0]
    assert found[-1][2] == "and 3 more warnings"

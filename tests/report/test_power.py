"""The score of an attack as text, markdown and JSON: nothing that survives stays unsaid."""

import json
import re

import pytest

from gradcheck.power.operators import Power, Score, Trial
from gradcheck.power.run_mutants import WHOLE, Part
from gradcheck.report.power import LISTED, SMALL, render, summary
from gradcheck.report.power_page import FORMATS

ONE, TWO, EMPTY = "plain/one", "plain/two", "plain/empty"
HOSTILE = '<script>a</script>"|`x`**_\n\n# no\x1b[31m\x00\ud800\u202e&[l](u) $m$ ~~s~~ \\'
BARE = re.compile(r"(?<!\\)\|")
TAG = re.compile(r"</?(details|summary|b)>")


def trial(what="wrong", **parts):
    usual = {"kind": "mutant", "says": "The factor 2 is missing.", "label": "F", "killer": "one",
             "tried": (ONE, TWO), "killed": (ONE, TWO)}  # fmt: skip
    return Trial(what=what, **{**usual, **parts})


def impostor(what="zeros of x", **parts):
    says = "In place of dx: nothing but zeros."
    return trial(what, **{"kind": "impostor", "says": says, "label": "", "killer": "", **parts})


NO = " narrow=0/0 narrow_equivalent=0"
NARROW = (
    trial("narrow-x-tf32 in float32", kind="narrow", label="O", killer="", killed=(ONE,)),
    trial("narrow-sums-tf32 in float32", kind="narrow", label="O", killer="", killed=(),
          equivalent="its backward adds nothing up"),
)  # fmt: skip
EQUIVALENT = trial("same", killed=(), killer="", equivalent="Addition commutes.", label="L")


def score(*trials, op="square", family="elementwise", **parts):
    sizes = {ONE: 1, TWO: 1200, EMPTY: 0}
    return Score(**{"op": op, "family": family, "sizes": sizes, "trials": trials, "judged": 6,
                    **parts})  # fmt: skip


def power(*scores, **parts):
    usual = {"version": "0.1.0", "suite": "mine", "suite_version": "7", "seed": 3,
             "dtypes": ("float64", "float32"), "part": WHOLE}  # fmt: skip
    return Power(scores=scores, **{**usual, **parts})


WEAK = trial("weak", killed=(TWO,), killer="two")
BLIND = impostor("rolled of x", killed=(TWO,))
SOUND = power(score(impostor(), impostor("nan of x"), BLIND, trial(), WEAK, EQUIVALENT))


def strict(text):
    """JSON as it is defined: no NaN, no infinity."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


# ── the last line ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (SOUND, "POWER pass mutants=2/2 equivalent=1 impostors=3/3 alarms=0 survivors=0" + NO),
        (
            power(score(trial(killed=()), impostor(killed=()), impostor("nan of x"))),
            "POWER fail mutants=0/1 equivalent=0 impostors=1/2 alarms=0 survivors=2" + NO,
        ),
        (
            power(score(trial(), alarms=("a", "b")), score(op="f", alarms=("c",))),
            "POWER fail mutants=1/1 equivalent=0 impostors=0/0 alarms=3 survivors=0" + NO,
        ),
        (
            power(score(trial(equivalent="1 = 1.", killed=(), killer="", doubt="it differs"))),
            "POWER fail mutants=0/1 equivalent=0 impostors=0/0 alarms=0 survivors=1" + NO,
        ),
        (
            power(score(trial(equivalent="1 = 1.", killer="", doubt="a sample rejects it"))),
            "POWER fail mutants=1/1 equivalent=0 impostors=0/0 alarms=0 survivors=0" + NO,
        ),
        (power(), "POWER fail mutants=0/0 equivalent=0 impostors=0/0 alarms=0 survivors=0" + NO),
        (
            power(score(trial()), complete=False),
            "POWER fail mutants=1/1 equivalent=0 impostors=0/0 alarms=0 survivors=0" + NO,
        ),
    ],
)
def test_the_last_line_is_for_a_script(found, line):
    assert summary(found) == line
    assert render(found, "terminal").splitlines()[-1] == line
    assert render(found, "markdown").splitlines()[-1] == f"`{line}`"


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_ends_in_one_newline_and_is_the_same_twice(format):
    text = render(SOUND, format)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert render(SOUND, format) == text


# ── the terminal ─────────────────────────────────────────────────────────────────────────────


def test_the_matrix_names_the_cheapest_killer_and_numbers_the_cases():
    lines = render(SOUND, "terminal").splitlines()
    assert lines[0] == "gradcheck 0.1.0, suite mine 7, float64, float32, seed 3"
    assert lines[2].startswith("square: ● rejected")
    assert "wrong gradient    class    cheapest    123" in lines
    assert "rolled of x                plain/two   ·●" in lines
    assert "weak              F        plain/two   ·●" in lines
    assert "same              L        equivalent  ··" in lines


def test_impostors_that_every_case_rejects_share_a_line():
    text = render(SOUND, "terminal")
    assert "\n2 generic wrong gradients rejected in every case: zeros, nan\n" in text
    assert "zeros of x" not in text
    found = power(score(impostor("zeros of x"), impostor("zeros of w")))
    assert "\n2 generic wrong gradients rejected in every case: zeros\n" in render(
        found, "terminal"
    )


def test_every_case_has_a_certificate():
    lines = render(SOUND, "terminal").splitlines()
    start = lines.index("cases (elements): wrong gradients rejected")
    assert lines[start + 1 : start + 4] == [
        "   1  plain/one (1): 3 of 6",
        "   2  plain/two (1200): 5 of 6",
        "   3  plain/empty (0): 0 of 0",
    ]


def test_families_are_added_up():
    found = power(
        score(trial(), impostor(), op="a", family="norm"),
        score(trial(), trial("b", killed=()), op="b", family="norm", alarms=("x",)),
        score(EQUIVALENT, *NARROW, op="c", family="loss", judged=4),
    )
    rows = [line.split("  ") for line in render(found, "terminal").splitlines()]
    cells = {row[0]: [c.strip() for c in row[1:] if c.strip()] for row in rows}
    assert cells["norm"] == ["2", "2 of 3", "0", "0 of 0", "0", "1 of 1", "1 of 12"]
    assert cells["loss"] == ["1", "0 of 0", "1", "1 of 1", "1", "0 of 0", "0 of 4"]
    assert cells["all"] == ["3", "2 of 3", "1", "1 of 1", "1", "1 of 1", "1 of 16"]


def test_narrow_mutants_are_counted_beside_the_others():
    found = power(score(trial(), *NARROW))
    for text in (render(found, "terminal"), render(found, "markdown")):
        assert "roundings: 1 of 1 rejected" in text
        assert "equivalent, its backward adds nothing up: sums (tf32)" in text
        assert "1 of 1 wrong gradients rejected" in text or "mutants=1/1" in text
        assert "narrow-x-tf32" not in text
    assert summary(found).endswith("mutants=1/1 equivalent=0 impostors=0/0 alarms=0 survivors=0 "
                                   "narrow=1/1 narrow_equivalent=1")  # fmt: skip


def test_a_narrow_mutant_that_survives_says_why():
    found = power(score(trial("narrow-x-tf32 in float32", kind="narrow", killer="", killed=(),
                              says="x is rounded to TF32.", doubt="TF32 holds x")))  # fmt: skip
    said = "square/narrow-x-tf32 in float32 survives: x is rounded to TF32. TF32 holds x"
    assert said in render(found, "terminal")
    assert summary(found).startswith("POWER fail")


def test_a_part_says_which():
    found = power(score(trial()), part=Part(2, 5))
    assert "seed 3, part 2 of 5" in render(found, "terminal")
    assert "seed 3, part 2 of 5" in render(found, "markdown")
    assert "part" not in render(SOUND, "terminal")


def test_only_a_short_report_leaves_matrices_out():
    found = power(*(score(trial(), op=f"op-{i}") for i in range(SMALL + 1)))
    matrix = "wrong gradients rejected"
    assert render(found, "terminal").count(matrix) == SMALL + 1
    assert render(found, "terminal", short=True).count(matrix) == 0
    few = power(*found.scores[:SMALL])
    assert render(few, "terminal", short=True).count(matrix) == SMALL


def test_every_survivor_is_listed_and_a_short_report_counts_the_rest():
    many = [trial(f"wrong-{i:03}", killed=()) for i in range(LISTED + 7)]
    found = power(score(*many))
    for text in (render(found, "terminal"), render(found, "markdown")):
        listed = re.findall(r"wrong-\d{3} survives", text)
        assert len(set(listed)) == len(listed) == LISTED + 7
    text = render(found, "terminal", short=True)
    assert len(re.findall(r"wrong-\d{3} survives", text)) == LISTED
    assert "\n… and 7 more problems; write them all into a file with -o\n" in text


@pytest.mark.parametrize("width", [1, 2, 20, 400])
def test_a_narrow_terminal_breaks_lines_and_loses_none(width):
    found = power(score(impostor(), trial("wrong-in-one", killed=())))
    text = render(found, "terminal", width=width)
    assert "square/wrong-in-onesurvives:" in re.sub(r"\s", "", text)
    assert (width < 23) is ("\nsquare/wrong-in-one survives: The" not in text)


# ── what is said ─────────────────────────────────────────────────────────────────────────────

SAID = [
    (
        score(trial(killed=())),
        "square/wrong survives: The factor 2 is missing. No sample rejects it; add one that "
        "does, or prove in `equivalent` that it is right",
    ),
    (
        score(trial(killed=(), says="It is halved")),
        "square/wrong survives: It is halved. No sample rejects it; add one",
    ),
    (
        score(impostor(killed=())),
        "square/zeros of x survives: In place of dx: nothing but zeros. No sample rejects it; "
        "add one whose gradient has such elements",
    ),
    (
        score(trial(equivalent="1 = 1.", killed=(), killer="", doubt="it differs at trial 7")),
        "square/wrong survives: The factor 2 is missing. It is declared equivalent (1 = 1.), but "
        "it differs at trial 7",
    ),
    (
        score(trial(equivalent="1 = 1.", killer="", doubt="a sample rejects it")),
        "square/wrong: it is declared equivalent (1 = 1.), but plain/one rejects it; name that "
        "sample in `killer` instead",
    ),
    (
        score(trial(killed=(TWO,))),
        "square/wrong: its killer 'one' does not catch it, plain/two does; name that one",
    ),
    (
        score(trial(killed=(), tried=()), alarms=("square/plain/one/float64",)),
        "square/wrong survives: The factor 2 is missing. It could not be tried; correct the "
        "problems listed here first",
    ),
    (
        score(alarms=("square/plain/one/float64",)),
        "square/plain/one/float64: the right VJP does not pass; run it with `gradcheck run`",
    ),
    (
        score(useless=("square/plain/one",)),
        "square/plain/one: this sample rejects nothing; change its values or remove it",
    ),
    (score(troubles=("square/plain/bad: no\nsuch thing",)), "square/plain/bad: no such thing"),
]


@pytest.mark.parametrize(("found", "said"), SAID)
def test_what_is_amiss_is_one_line_that_says_what_to_change(found, said):
    lines = render(power(found), "terminal", width=1000).splitlines()
    assert sum(said in line for line in lines) == 1
    text = render(power(found), "markdown").replace("\\", "")
    assert f"\n- {said}" in text
    assert not power(found).sound


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (SOUND, "every wrong gradient is rejected"),
        (power(score(trial(killed=()))), "NOT SOUND"),
        (power(score(alarms=("square/plain/one/float64",))), "NOT SOUND"),
        (power(score(troubles=("square/plain/one: no",))), "NOT SOUND"),
        (power(score(trial()), complete=False), "incomplete: the run stopped early"),
        (power(score()), "nothing was attacked"),
        (power(), "nothing was attacked"),
    ],
)
def test_the_state_stands_first_in_markdown_and_no_fault_looks_like_a_pass(found, state):
    first = render(found, "markdown").splitlines()[0]
    assert first == f"**gradcheck power: {state}**"
    text = render(found, "terminal")
    assert (state in text) is (state not in ("NOT SOUND", "every wrong gradient is rejected"))


def test_what_ended_a_run_is_said_before_everything_else():
    found = power(score(trial(killed=())), complete=False, troubles=("a worker process died",))
    text = render(found, "terminal")
    assert "\n\na worker process died\nsquare/wrong survives" in text
    assert "\n- a worker process died\n" in render(found, "markdown")
    assert strict(render(found, "json"))["troubles"] == ["a worker process died"]


def test_a_sound_report_names_no_problem():
    for format in ("terminal", "markdown"):
        text = render(SOUND, format)
        assert "survives" not in text
        assert "its killer" not in text


# ── markdown ─────────────────────────────────────────────────────────────────────────────────


def tables(text):
    """The rows of each table, cut at the bars that are not escaped."""
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    return [[[c.strip() for c in BARE.split(line)[1:-1]] for line in block] for block in blocks]


def test_the_matrix_stands_in_every_operators_details():
    text = render(SOUND, "markdown")
    assert "<details><summary><b>square</b> 5 of 5 wrong gradients rejected</summary>" in text
    assert "\n\nGeneric wrong gradients that every case rejects: zeros, nan.\n\n" in text
    matrix = next(t for t in tables(text) if t[0][0] == "wrong gradient")
    assert matrix[2:] == [
        ["`rolled of x`", "", "", "`plain/two`", "`.x-`"],
        ["`wrong`", "F", "The factor 2 is missing.", "`plain/one`", "`xx-`"],
        ["`weak`", "F", "The factor 2 is missing.", "`plain/two`", "`.x-`"],
        ["`same`", "L", "Addition commutes.", "–", "`..-`"],
    ]
    assert (
        "\nCases (elements), wrong gradients rejected: 1 `plain/one` (1) 3 of 6, "
        "2 `plain/two` (1200) 5 of 6, 3 `plain/empty` (0) 0 of 0.\n"
    ) in text


def test_classes_and_real_bugs_and_impostors_have_tables_of_their_own():
    found = power(
        score(trial(modelled_on="numpy #1"), EQUIVALENT, impostor(), impostor("zeros of w")),
        score(trial(killed=(), label="S"), op="other"),
    )
    heads = {t[0][0]: t[2:] for t in tables(render(found, "markdown"))}
    assert heads["class"] == [["F", "1 of 1"], ["L", "0 of 0"], ["S", "0 of 1"]]
    assert heads["mutant"] == [["`square/wrong`", "F", "numpy #1", "`plain/one`"]]
    assert heads["generic"] == [["`zeros`", "nothing but zeros"]]


def test_a_table_without_rows_is_left_out():
    text = render(power(score(impostor())), "markdown")
    assert "class of defect" not in text
    assert "real bugs" not in text
    assert "Generic" not in render(power(score(trial())), "markdown")


@pytest.fixture
def hostile():
    """Foreign text wherever a suite may put any."""
    return power(
        score(
            trial(says=HOSTILE, modelled_on=HOSTILE, killed=()),
            trial("b", equivalent=HOSTILE, killed=(), killer="", doubt=HOSTILE),
            trial("c", equivalent=HOSTILE, killed=(), killer=""),
            family=HOSTILE, troubles=(HOSTILE,),
        ),
        score(trial(), op="other", family="**bold** | __main__"),
        suite=HOSTILE, suite_version=HOSTILE, troubles=(HOSTILE,),
    )  # fmt: skip


def test_hostile_text_is_printable_everywhere(hostile):
    for format in FORMATS:
        text = render(hostile, format)
        text.encode("utf-8")
        assert not set(text) & set("\x1b\x00\ud800\u202e")


def test_hostile_text_breaks_no_table_and_opens_no_tag(hostile):
    text = render(hostile, "markdown")
    found = tables(text)
    assert len(found) == 5
    for table in found:
        assert {len(row) for row in table} == {len(table[0])}, table
    for line in text.splitlines():
        assert not re.search("[<>]", TAG.sub("", line)), line
        assert not line.startswith("#")
        bare = re.sub(r"\\.", "", re.sub(r"`[\w./,\[\]=:* -]+`", "", line))
        assert "`" not in bare, line
        if not line.startswith(("**gradcheck", "<details>")):
            assert not set("[*_$~") & set(bare), line


def test_hostile_text_breaks_no_line_of_the_terminal(hostile):
    text = render(hostile, "terminal", width=4000)
    assert "\n# no" not in text
    assert sum("# no" in line for line in text.splitlines()) >= 4


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────


def test_json_holds_everything_that_was_found(hostile):
    document = strict(render(hostile, "json"))
    assert document["suite"] == HOSTILE
    first, other = document["operators"]
    assert first["troubles"] == [HOSTILE]
    assert [t["survives"] for t in first["trials"]] == [True, True, False]
    assert first["trials"][1]["doubt"] == HOSTILE
    assert other["trials"][0]["cheapest"] == ONE
    assert document["sound"] is False


def test_json_says_what_was_attacked_and_how_far():
    document = strict(render(power(score(trial()), part=Part(2, 5), complete=False), "json"))
    assert document["part"] == {"number": 2, "of": 5}
    assert (document["complete"], document["sound"], document["seed"]) == (False, False, 3)
    (found,) = document["operators"]
    assert found["certificates"] == {
        ONE: {"rejected": 1, "tried": 1},
        TWO: {"rejected": 1, "tried": 1},
        EMPTY: {"rejected": 0, "tried": 0},
    }
    assert found["sizes"] == {ONE: 1, TWO: 1200, EMPTY: 0}
    assert found["trials"][0]["tried"] == [ONE, TWO]

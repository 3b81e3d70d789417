import re

from gradcheck.report import html_evidence, models
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict


def lights(run):
    (blamed,) = models.blamed(run)
    found = html_evidence.stages(run, blamed)
    *stages, others = found if found[-1].name.endswith(" others") else (*found, None)
    assert (others is None) == (len(stages) == 25)
    assert others is None or others.name == f"{25 - len(stages)} others"
    return {light.name: (light.tone, light.mark) for light in stages}


def test_each_stage_is_right_suspect_wrong_or_unknown(make):
    verdicts = {"a": "pass", "b": "fail", "c": "missing", "d": "unbound", "e": "pass", "f": "pass"}
    found = [make.of_model(n, Verdict(v), part=Part.STAGE) for n, v in verdicts.items()]
    blames = (make.blame("e"), make.blame("a", "d", "x", exact=False))
    shown = lights(make.run(*found, make.of_model("loss", part=Part.VALUE, blames=blames)))
    tones = {name: tone for name, (tone, _) in shown.items()}
    assert tones == {"a": "good", "b": "bad", "c": "bad", "d": "warn", "e": "bad", "f": "good",
                     "x": "warn"}  # fmt: skip
    assert len({mark for _, mark in shown.values()}) == len(set(tones.values()))


def test_a_suspect_stays_one_in_every_round_that_does_not_name_it(make):
    blames = (make.blame("a", "b", exact=False), make.blame("b", round=2))
    assert lights(make.run(make.of_model("loss", blames=blames))) == {
        "a": ("warn", "?"), "b": ("bad", "✗"),
    }  # fmt: skip


def test_stages_of_another_implementation_say_nothing(make):
    mine = make.of_model("loss", implementation="mine", blames=(make.blame("a"),))
    other = make.of_model("b", part=Part.STAGE, implementation="other")
    assert lights(make.run(mine, other)) == {"a": ("bad", "✗")}


def test_where_every_stage_is_known_there_are_no_others(make):
    found = [make.of_model(f"s{i}", part=Part.STAGE) for i in range(25)]
    blames = (make.blame("s3"),)
    shown = lights(make.run(*found, make.of_model("loss", part=Part.VALUE, blames=blames)))
    assert [tone for tone, _ in shown.values()].count("good") == 24


def test_marks_are_told_without_colour():
    marks = [mark for _, mark, _ in html_evidence.LIGHTS.values()]
    assert len(set(marks)) == len(marks)
    assert all(re.fullmatch(r"\S", mark) for mark in marks)

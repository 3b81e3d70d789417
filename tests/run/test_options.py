"""The table of options: an option is written once, and is in every place that takes it."""

import argparse
from dataclasses import fields

import pytest
from gradcheck_cases import SUITE

from gradcheck import pytest_plugin
from gradcheck.cli import flags, project_defaults
from gradcheck.cli.main import _parser
from gradcheck.errors import UsageError
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.run import to_result
from gradcheck.run.options import IMPLEMENTATION, OPTIONS, STRING, Option
from gradcheck.run.plan import Plan

EXTRA = Option(
    name="flavour", section=IMPLEMENTATION, kind=STRING, default="", metavar="NAME",
    plan="convention", repro="always",  # any field of a plan that is a string
    help="the flavour of a run", pytest="the flavour of a session",
)  # fmt: skip


@pytest.fixture
def extended(monkeypatch):
    """The table with one more option, in every module that reads it."""
    table = (*(option for option in OPTIONS if option.name != "convention"), EXTRA)
    for module in (flags, project_defaults, pytest_plugin, to_result):
        monkeypatch.setattr(module, "OPTIONS", table)
    to_result._repeated.cache_clear()
    yield
    to_result._repeated.cache_clear()


def test_a_new_option_is_a_flag_a_key_a_flag_of_pytest_and_in_repro_lines(extended, tmp_path):
    parser = argparse.ArgumentParser()
    flags.add_sections(parser, IMPLEMENTATION)
    assert parser.parse_args(["--flavour", "sour"]).flavour == "sour"
    assert "the flavour of a run" in parser.format_help()

    (tmp_path / "pyproject.toml").write_text('[tool.gradcheck]\nflavour = "sweet"\n')
    assert project_defaults.project_of(tmp_path).defaults == {"flavour": "sweet"}
    assert project_defaults.filled({"flavour": None}, {"flavour": ""}, {"flavour": "sweet"}) == {
        "flavour": "sweet"
    }
    (tmp_path / "pyproject.toml").write_text("[tool.gradcheck]\nflavour = 3\n")
    with pytest.raises(UsageError, match="flavour = 3: write a text"):
        project_defaults.project_of(tmp_path)

    plugins = pytest.Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(plugins)
    found = plugins.parse(["--gradcheck-flavour", "salty"])
    assert found.gradcheck_flavour == "salty"

    (case, *_) = SUITE.cases()
    plan = Plan(suite=SUITE, cases=[case], implementations=["reference"], dtypes=["float64"],
                seed=0, convention="bitter")  # fmt: skip
    finding = Finding(name="vjp", verdict=Verdict.PASS)
    again = to_result.result_of(plan, case, "", "reference", "float64", finding).repro
    assert again.endswith(" --flavour bitter")


def test_every_option_is_a_flag_of_a_run_and_sets_a_field_that_there_is():
    commands = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    known_flags = {f for a in commands.choices["run"]._actions for f in a.option_strings}
    known = {field.name for field in fields(Plan)}
    for option in OPTIONS:
        assert {option.short or f"--{option.name}"} <= known_flags
        assert option.plan in ("", *known)
        assert option.repro in ("", "always", *Kind, *Part)
        assert not option.repro or option.plan


def test_the_initial_value_of_an_option_is_the_parser_s_default():
    commands = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    usual = commands.choices["run"].get_default("usual")
    assert {o.name: o.initial for o in OPTIONS if o.config} == usual
    assert usual["contract"] is None

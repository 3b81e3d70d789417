"""Project defaults: the keys of `[tool.gradcheck]`, and what each means for `gradcheck run`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from _pages.commands import parser_of, said
from _pages.text import block, code, front, joined, link, table, text
from gradcheck.cli.options import project_keys

PAGE: Final = "reference/config.md"
EXAMPLE: Final = """\
[tool.gradcheck]
impl = ["mykernels:IMPL", "kernels/gradcheck.toml"]
dtype = ["float64", "float32"]
baseline = "known-failures.toml"
jobs = "auto"
"""


def pages() -> Iterator[tuple[str, str]]:
    """The page's path and Markdown."""
    parser = parser_of("run")
    flags = {
        flag.removeprefix("--"): said(parser, action)
        for action in parser._actions
        for flag in action.option_strings
    }
    rows = [
        [code(key), text(option.kind.how.removeprefix("write ")), text(flags.get(key, ""))]
        for key, option in project_keys().items()
    ]
    yield (
        PAGE,
        joined(
            front("Project defaults", "The keys of [tool.gradcheck] in pyproject.toml"),
            "# Project defaults",
            "What every `gradcheck run` of a project has in common can stand in its "
            "pyproject.toml: the nearest one, from the folder where the command is given upwards, "
            "that has the table.",
            block("toml", EXAMPLE, title="pyproject.toml"),
            "A flag on the command line goes before its key; `--no-config` leaves the table out. "
            "Paths are relative to the file. An unknown key, or a value of another type, ends the "
            "run with exit code 2, and is named.",
            "`pytest --gradcheck` takes "
            f"{link('its defaults', '../pytest.md#a-projects-defaults')} from the same table.",
            table(["key", "value", "meaning"], rows),
        ),
    )

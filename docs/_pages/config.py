"""Project defaults: the keys of `[tool.gradcheck]`, and what each means for `gradcheck run`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from _pages.commands import parser_of, said
from _pages.text import block, code, front, joined, link, table, text
from gradcheck.cli.project_defaults import project_keys

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
            "Defaults of `gradcheck run` for a project belong in its pyproject.toml. The nearest "
            "file with the table is used, from the working directory upwards.",
            block("toml", EXAMPLE, title="pyproject.toml"),
            "A flag on the command line overrides its key; `--no-config` ignores the table. Paths "
            "are relative to the file. An unknown key or a value of the wrong type ends the run "
            "with exit code 2 and a message.",
            "`pytest --gradcheck` takes "
            f"{link('its defaults', '../pytest.md#a-projects-defaults')} from the same table.",
            table(["key", "value", "meaning"], rows),
        ),
    )

"""`gradcheck init`: a first manifest, guessed from a library's names."""

from __future__ import annotations

import argparse
from pathlib import Path

from gradcheck import console
from gradcheck.commands.flags import suite_of
from gradcheck.commands.outcome import OK, USAGE
from gradcheck.errors import UsageError

KINDS = ("c", "python", "process")


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Write a manifest for --impl. From a C library it takes the functions and, from debug "
        "information or a header, their prototypes; by their names it guesses operators and what "
        "each parameter is, and marks what you should confirm."
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="",
        help="a C library (default with --lib or --header), Python objects, or a program",
    )  # fmt: skip
    parser.add_argument("--lib", metavar="FILE.so", help="the shared library")
    parser.add_argument("--header", metavar="FILE.h", help="where its functions are declared")
    parser.add_argument(
        "-o", dest="output", default="gradcheck.toml", metavar="FILE.toml",
        help="what to write; never overwritten; default gradcheck.toml",
    )  # fmt: skip
    parser.add_argument("--suite", action="append", default=[], metavar="MODULE:NAME")
    parser.set_defaults(command=init)


def init(arguments: argparse.Namespace) -> int:
    """Write the manifest; returns the exit code."""
    library, header = (Path(p) if p else None for p in (arguments.lib, arguments.header))
    kind = arguments.kind or ("c" if library or header else "")
    path = Path(arguments.output)
    if not kind:
        raise UsageError("say what for: --lib build/libk.so, --kind python, or --kind process")
    if kind != "c" and (library or header):
        raise UsageError(f"--lib and --header are for --kind c, not {kind}")
    if path.suffix != ".toml":
        raise UsageError(f"-o {path}: name a .toml, so that --impl knows what it is")
    if path.exists():
        raise UsageError(f"-o {path}: it exists; remove it, or name another with -o")

    from gradcheck.manifest.suggest import suggest_c, template

    if kind == "c":
        found = suggest_c(library, header, path, suite_of(arguments.suite))
    else:
        found = template(kind)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(found.text)
    except OSError as error:
        raise UsageError(f"-o {path}: {error.strerror}") from error
    if kind == "c":
        shown = [
            f"{path} binds {', '.join(dict.fromkeys(found.bound)) or 'nothing yet'}, by name.",
            "Confirm the lines that say so, complete what is a comment, then",
        ]
    else:
        shown = [f"{path} is to be filled in, then"]
    shown += [f"    gradcheck run --impl {path}", ""]
    return OK if console.show("\n".join(shown)) else USAGE

"""What failed last time, by implementation: a small file in the folder where runs are started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict
from gradcheck.system.reading import contents

FOLDER: Final = ".gradcheck_cache"
FILE: Final = "failed.json"
LARGEST: Final = 1 << 26
"""Bytes of it."""

Failed = Mapping[str, Sequence[str]]
"""Names of what failed (operator/dialect/sample/dtype), by the word of `--impl`."""


def known(folder: Path = Path()) -> Failed:
    """What is known to have failed in `folder`; nothing where there is no such file.

    What somebody else has made of the file counts as nothing: it is only a memory.
    """
    try:
        content = contents(folder / FOLDER / FILE, LARGEST)
    except OSError:
        return {}
    import json  # deferred, as all that a run without a failure does not need

    try:
        plain = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    failed = plain.get("failed") if isinstance(plain, dict) else None
    if not isinstance(failed, dict):
        return {}
    return {
        whose: [name for name in names if isinstance(name, str)]
        for whose, names in failed.items()
        if isinstance(names, list)
    }


def cases(failed: Failed, implementations: Sequence[str]) -> frozenset[str]:
    """The cases (operator/dialect/sample) in which one of the implementations failed."""
    return frozenset(
        name.rpartition("/")[0] for whose in implementations for name in failed.get(whose, ())
    )


def after(failed: Failed, run: Run) -> dict[str, list[str]]:
    """What is known after a run: what it did not reach stays as it was."""
    reached: dict[str, dict[str, bool]] = {}
    for result in run.results:
        if result.finding.verdict is Verdict.SKIP:
            continue
        names = reached.setdefault(result.case.implementation, {})
        names[result.case.name] = names.get(result.case.name, False) or not run.accepts(result)
    now = {whose: [*names] for whose, names in failed.items()}
    for whose, names in reached.items():
        before = [name for name in now.get(whose, ()) if name not in names]
        now[whose] = before + [name for name, wrong in names.items() if wrong]
    return {whose: names for whose, names in now.items() if names}


def keep(run: Run, folder: Path = Path()) -> None:
    """Remember what failed; a folder that cannot be written is none of a run's concern."""
    before = known(folder)
    now = after(before, run)
    if now == before:
        return
    import json

    from gradcheck.system import atomic_io

    place = folder / FOLDER
    with suppress(OSError):
        place.mkdir(exist_ok=True)
        ignore = place / ".gitignore"
        if not ignore.exists():
            atomic_io.replace(ignore, "*\n")
        atomic_io.replace(
            place / FILE, json.dumps({"failed": now}, indent=1, sort_keys=True) + "\n"
        )

"""What can go wrong around a check, as an exception tree.

The verdicts about the code that is judged are data, not exceptions; these are about us::

    GradcheckError            base; carries the exit code of the command line
    ├── UsageError            2   a flag, a name, an output path
    │   ├── UnknownNameError  2   a name that matches nothing; suggests the nearest one
    │   ├── SpecError         2   an operator spec or suite that contradicts itself
    │   └── ManifestError     2   a gradcheck.toml that cannot be right
    ├── LoadError             3   an implementation (or suite) that cannot be imported
    └── Unsupported           –   raised *by* an implementation: "I lack this"; becomes a verdict
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from collections.abc import Iterable

CODE_ERRORS = (Exception, SystemExit)
"""What the code of a suite may raise, and a run survives."""


class GradcheckError(Exception):
    """Base of everything that gradcheck raises on purpose."""

    exit_code = 5


class UsageError(GradcheckError):
    """The request cannot be carried out as written; the message says how to write it."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name or pattern that matches nothing."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Name what was asked for, and the nearest of what is `known`."""
        names = sorted(known)
        near = nearest(name, names)
        if near:
            hint = f"did you mean {near!r}?"
        else:
            hint = f"known: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"
        super().__init__(f"unknown {kind} {name!r}: {hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most likely meant; empty: none is near.

    >>> nearest("rmsnorm", ["relu", "rms_norm"]), nearest("implementation", ["impl", "dtype"])
    ('rms_norm', 'impl')
    """
    import difflib  # deferred: only a mistake needs it

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    near += [n for n in names if len(n) > 2 and name.startswith(n)]
    near += difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return near[0] if near else ""


def text_of(error: BaseException) -> str:
    """The text of an exception in one line; of a foreign one, code that may raise itself."""
    try:
        return " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  whatever it is, it is no text
        return "its text cannot be read"


def raised(error: BaseException) -> str:
    r"""What was raised, in one line: its type, and its text.

    >>> raised(ValueError("no\n  number"))
    'ValueError: no number'
    """
    return f"{type(error).__name__}: {text_of(error)}"


def told(error: BaseException) -> str:
    r"""The same; of what we raised ourselves the text alone, which needs no type.

    >>> told(UsageError("no\n  number")), told(KeyError("x"))
    ('no number', "KeyError: 'x'")
    """
    return text_of(error) if isinstance(error, GradcheckError) else raised(error)


class SpecError(UsageError):
    """A spec that contradicts itself; the message says how to repair it."""


class ManifestError(UsageError):
    """A manifest that cannot be right; the message names the file and the key to change."""


class LoadError(GradcheckError):
    """An implementation or suite that cannot be loaded."""

    exit_code = 3


class Unsupported(GradcheckError):  # noqa: N818  read as a statement by the implementation: "unsupported"
    """Raise this inside an implementation to declare that it lacks an operator or attribute."""

"""Functions in a user's table: entries, keywords that they take, where their code stands."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Callee
from gradcheck.numerics.arrays import Attrs, is_float
from gradcheck.spec.case import AnyCase
from gradcheck.spec.loading import resolve
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Program
from gradcheck.spec.suite import Case

POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def entry_of(table: Mapping[str, Any], case: AnyCase) -> tuple[Any, Attrs]:
    """The entry for `name/dialect`, else for `name`, else None.

    With it come the values that its code may have fixed: the spec's defaults, and the dialect's
    values if the entry names the dialect.
    """
    name, defaults = case.spec.name, case.spec.defaults
    exact = table.get(f"{name}/{case.dialect.name}")
    if exact is None:
        return table.get(name), defaults
    return exact, {**defaults, **case.dialect.attrs}


def peers(word: str, framework: str, references: Sequence[str]) -> dict[str, Any]:
    """The tables at "module:NAME" that a suite has for `--impl word`, as one.

    Raises:
        LoadError: there are none, or one cannot be imported.
    """
    if not references:
        raise LoadError(f"--impl {word}: the suite has no {framework} counterparts")
    table: dict[str, Any] = {}
    for reference in references:
        table.update(resolve(reference))
    return table


def method(entry: Any, name: str) -> Callable[..., Any] | None:
    """What an entry of a table, an object or a mapping, has to call by this name."""
    found = member(entry, name)
    return found if callable(found) else None


def member(entry: Any, name: str) -> Any:
    """What an entry of a table has by this name, or None."""
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)


def takes(function: Callable[..., Any]) -> frozenset[str] | None:
    """Names of the keywords that a function takes; None if it takes any, or does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(
        p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    )


def accepted(function: Callable[..., Any], role: str, attrs: Attrs, fixed: Attrs) -> Attrs:
    """Those of `attrs` that `function` takes; messages call it `role`.

    One that it does not take is fixed in its code: the case applies only where its value is the
    one in `fixed`.

    Raises:
        Unsupported: the case wants another value.
    """
    return taken(takes(function), role, attrs, fixed)


def taken(known: Collection[str] | None, role: str, attrs: Attrs, fixed: Attrs) -> Attrs:
    """As `accepted`, of code that takes the keywords `known`; None: it takes all.

    Raises:
        Unsupported: the case wants another value.
    """
    if known is None:
        return attrs
    for name, value in attrs.items():
        if name not in known and value != fixed[name]:
            raise Unsupported(
                f"{role} takes no {name!r}; this case wants {name}={value!r}: add that keyword"
            )
    return {name: value for name, value in attrs.items() if name in known}


def refuse_primals(function: Callable[..., Any], role: str, leading: int, case: Case) -> None:
    """Refuse the primals of a case's dialect where `function` takes those of another one.

    Where they are another number than any dialect has, the call itself fails, and that is an ERROR.

    Args:
        function: what is bound to the operator as a whole.
        role: what messages call it.
        leading: the number of arguments before the primals.
        case: the case.

    Raises:
        Unsupported: it takes the primals of another dialect.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    spec, mine = case.spec, case.primal_names
    taken = [p for p in parameters if p.kind in POSITIONAL and p.name not in spec.defaults]
    least = sum(p.default is p.empty for p in taken) - leading
    most = math.inf if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(taken) - leading
    if least <= len(mine) <= most:
        return
    for dialect in spec.dialects:
        others = [name for name in spec.primals if name not in dialect.without]
        if least <= len(others) <= most:
            lacking = [name for name in others if name not in mine]
            extra = [name for name in mine if name not in others]
            names = " and ".join(lacking or extra)
            raise Unsupported(
                f"{role} takes {' and '.join(lacking)}, which {spec.name}/{case.dialect.name} does "
                f"not have: bind it as {spec.name}/{dialect.name}, or give {names} a default"
                if lacking
                else f"{role} takes no {names}, which {spec.name}/{case.dialect.name} has: bind it "
                f"as {spec.name}/{dialect.name}, or add {'it' if len(extra) == 1 else 'them'}"
            )


def dimensions(function: Callable[..., Any], role: str, case: ModelCase, fixed: Attrs) -> Attrs:
    """The dimensions of a model that `function` takes; messages call it `role`.

    One that it does not take it may read off the shapes of its arguments, as long as the stages
    are the same for the value in `fixed`: what changes a stage is fixed in its code.

    Raises:
        Unsupported: the case wants another value of such a dimension.
    """
    known = takes(function)
    if known is None:
        return case.attrs
    seen = {n: v for n, v in case.attrs.items() if n not in known and _in_shapes(case, n, fixed[n])}
    return accepted(function, role, case.attrs, {**fixed, **seen})


def _in_shapes(case: ModelCase, name: str, value: Any) -> bool:
    """Whether another value of a dimension changes nothing but shapes: no stage, no attribute."""
    try:
        other = case.spec.build(**{**case.attrs, name: value})
    except Exception:  # noqa: BLE001  the other dimensions may not go with this value
        return False
    return _lines(other) == _lines(case.program)


def _lines(program: Program) -> list[str]:
    return [
        f"{s.name} {s.op.name} {s.reads} {s.outputs} {sorted(s.all_attrs.items())!r}"
        for s in program.stages
    ]


WRAPPED: Final = 16
"""Wrappers (decorators, partials, compiled functions) that are looked through at the most."""
INSTALLED: Final = "site-packages"
"""The folder of packages that were installed, in an environment below the working directory too."""


def source_of(function: Callable[..., Any]) -> str:
    """File and first line of a Python function ("src/rms.py:12"), what wraps it looked through.

    Empty where it has none, or where that is an installed package's or lies outside the working
    directory: it is not the user's to change, and its path would be another on every machine.
    """
    code = _code(function)
    if code is None:
        return ""
    file = _seen(Path(code.co_filename))
    return "" if file is None or INSTALLED in Path(file).parts else f"{file}:{code.co_firstlineno}"


def placed(source: str, folder: Path) -> str:
    """A file, and perhaps a line, that a manifest in `folder` names, from the working directory.

    Unchanged where the manifest's folder has no such file.
    """
    name, colon, line = source.rpartition(":")
    if not (colon and line.isdecimal()):
        name, colon, line = source, "", ""
    path = folder / name
    file = _seen(path) if name and path.is_file() else None
    return source if file is None else f"{file}{colon}{line}"


def _code(function: Any) -> CodeType | None:
    for _ in range(WRAPPED):
        if isinstance(function, partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            wrapped = _member(function, "__wrapped__")
            if wrapped is None and isinstance(function, FunctionType):
                return function.__code__
            function = type(function).__call__ if wrapped is None else wrapped
    return None


def _member(function: Any, name: str) -> Any:
    """An attribute, if there is one: an object of a user's may answer anything."""
    try:
        return getattr(function, name, None)
    except Exception:  # noqa: BLE001  code of the user's answers
        return None


def _seen(path: Path) -> str | None:
    """A file's path from the working directory; None if it does not lie below it."""
    try:
        whole = path.resolve()
        return whole.relative_to(Path.cwd().resolve()).as_posix() if whole.is_file() else None
    except (OSError, ValueError):
        return None


HOMES: Final = (
    "torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft",
    "jax.numpy", "jax.nn", "jax.lax", "jax.scipy.special", "jax.numpy.linalg", "jax.numpy.fft",
)  # fmt: skip
"""Where frameworks have the public names of their functions."""
MAKERS: Final = ("torch", "jax", "jaxlib")
"""Packages whose functions those are."""


def public_name(function: Any) -> str:
    """The name in `HOMES` of a framework's own function; empty if it has none there."""
    if str(_member(function, "__module__")).partition(".")[0] not in MAKERS:
        return ""
    for home in (home for home in HOMES if home in sys.modules):
        for name, found in vars(sys.modules[home]).items():
            if found is function and not name.startswith("_"):
                return f"{home}.{name}"
    return ""


def address_of(function: Any) -> tuple[str, str] | None:
    """Module and name from which a function or class can be imported."""
    module, name = (_member(function, attr) for attr in ("__module__", "__qualname__"))
    found = sys.modules.get(str(module))
    for part in str(name).split("."):
        found = _member(found, part)
    return None if found is None or found is not function else (str(module), str(name))


def argument_names(function: Any) -> tuple[str, ...]:
    """Names of the positional arguments of a function; empty: it does not say.

    Looks through what frameworks make of functions: modules, `Function.apply`, `torch_op`, `jit`.
    A function without a signature, of NumPy's or PyTorch's own, names them in its documentation.
    """
    own = _member(function, "__self__")
    if isinstance(own, Differentiated):
        return own.arguments
    if isinstance(own, type) and _member(function, "__name__") == "apply":
        own = _member(own, "forward")
        function = own if callable(own) else function
    elif not isinstance(function, FunctionType | MethodType):
        inner = _member(function, "forward")
        function = inner if callable(inner) else function
    try:
        parameters = inspect.signature(function).parameters.values()
    except Exception:  # noqa: BLE001  code of the user's answers, or there is no signature
        return _documented(function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(p.name for p in parameters if p.kind in kinds)
    return names[names[:1] == ("ctx",) :]


def _documented(function: Any) -> tuple[str, ...]:
    """The positional arguments in the first line of a documentation: "tanh(x, /, out=None"."""
    said = re.match(r"\s*\w+\(([^()=*]*)[)=*]", str(_member(function, "__doc__")))
    names = [] if said is None else [word.strip() for word in said[1].split(",")]
    return tuple(itertools.takewhile(str.isidentifier, (n for n in names if n != "/")))


class Differentiated(ABC):
    """A table entry's VJP, from `asked`."""

    __slots__ = ()
    name: str

    @property
    @abstractmethod
    def arguments(self) -> tuple[str, ...]:
        """Names of the user's arguments; empty: unknown."""

    @abstractmethod
    def callee(self, attrs: Attrs, primals: int, item: tuple[str, str] | None) -> Callee | None:
        """How its function is called with that many primals; None where a script cannot import it.

        `item` is where it stands in a table, if it does: a module, and an expression there.
        """

    @property
    @abstractmethod
    def code(self) -> Callable[..., Any]:
        """The user's function that is judged: his backward, where he wrote one."""

    @property
    @abstractmethod
    def signature(self) -> tuple[Callable[..., Any], int]:
        """What has the primals as parameters, and the number of parameters before them."""

    @abstractmethod
    def asked(
        self, needs: tuple[bool, ...], ct: Any, *primals: Any, **attrs: Any
    ) -> tuple[Any, ...]:
        """The gradients of those primals for which `needs` has True; None for the others."""

    def vjp(self, ct: Any, *primals: Any, **attrs: Any) -> Any:
        """The gradients for the cotangent `ct`, a tuple where the function returns one.

        Raises:
            Broken: what comes back is no gradient, or something was written into.
            Unsupported: its device is not here.
        """
        needs = tuple(is_float(p.dtype) for p in primals)
        found = self.asked(needs, ct, *primals, **attrs)
        return found if len(found) > 1 else found[0]

"""Protocols of an implementation, and the calls that binding it to a case gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gradcheck.spec.case import AnyCase, Kind

if TYPE_CHECKING:
    from gradcheck.numerics.arrays import Attrs
    from gradcheck.spec.model import ModelCase
    from gradcheck.spec.operator import Slack
    from gradcheck.spec.program import Stage, StageVjp
    from gradcheck.spec.rule import RuleCase
    from gradcheck.spec.suite import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Into:
    """A VJP that writes into memory of the caller's.

    `call(outs, ct, *primals, **attrs)` fills `outs`, a dict from names of primals to arrays of
    their shape and dtype, and returns nothing. An array of `outs` may be the very object that is
    passed as cotangent or primal, where `aliases` allows it. `accumulates` names primals whose
    gradient is added to what their array holds; `zeroed` those whose array must be zero before,
    since only a part of it is written; the others are overwritten. `aliases` are pairs (primal,
    argument), "ct" or a primal, whose gradient may share its memory.
    """

    call: Callable[..., None]
    accumulates: frozenset[str] = frozenset()
    zeroed: frozenset[str] = frozenset()
    aliases: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a script of its own calls the code of a Python table: the entry at `key`.

    `style` says what the entry is: "vjp" (it has one), "bare" (it is one), "pullback" (its forward
    returns (y, pullback)), "into" (it has a vjp_into alone); "apply" (a `torch.autograd.Function`),
    "module" (PyTorch's), "torch" or "jax" (a function that they differentiate). The functions of a
    `mapping` are its items, otherwise attributes. `attrs` go to the function that gives gradients,
    `forward` to its forward (None: it has none), and `behind` stands behind the primals of an
    "apply". `ours` says that gradcheck made the entry, so that importing it needs gradcheck.
    """

    key: str
    style: str
    attrs: Attrs
    forward: Attrs | None
    mapping: bool = False
    behind: tuple[Any, ...] = ()
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A framework's function, as a few lines in the framework's own API call it.

    `framework` is "torch" or "jax". `name` is a public name of the framework's own
    ("torch.nn.functional.relu") where `module` is empty, else an expression that begins with a name
    of that module ("Tanh", "IMPL['tanh']"). `style` is "apply" (a `torch.autograd.Function`, with
    `behind` behind the primals), "module" (PyTorch's) or "function"; `attrs` are keywords of its
    call. `device` is empty for the framework's default; `compiled` says that JAX compiles it.
    """

    framework: str
    name: str
    module: str
    style: str
    attrs: Attrs
    behind: tuple[Any, ...] = ()
    device: str = ""
    compiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An implementation of one case.

    `vjp(ct, *primals, **attrs)` returns one gradient per primal; `forward(*primals, **attrs)`,
    if there is one, an array or a tuple of arrays. `attrs` are the attributes to pass.

    What the contract check may ask besides: `into` is the same VJP, into memory of the caller's;
    `asked(needs, ct, *primals, **attrs)` gives only the gradients for which `needs`, a tuple of
    bools, has True, and None for the others; `strided` says that arrays of any memory layout
    reach the code as they are. `slack` widens the bound, with a sentence why; `source` is the file
    and line of the code; `printed()` gives, and forgets, what it has printed since it was last
    asked. `compiles` says that a compiler is loaded beside it, which may compile it for each size
    of its arguments. `missing` names primals whose gradient the code lacks, with the reason;
    `recipe` says how a script calls it, where one can, and `callee` which function a framework
    differentiates.
    """

    vjp: Callable[..., Any]
    forward: Callable[..., Any] | None
    attrs: Attrs
    into: Into | None = None
    asked: Callable[..., Any] | None = None
    strided: bool = False
    slack: Slack | None = None
    source: str = ""
    printed: Callable[[], str] = lambda: ""
    compiles: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    recipe: Recipe | None = None
    callee: Callee | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundModel:
    """An implementation of one model's backward pass: the whole of it, or its stages, or both.

    `gradients(params, inputs)` takes arrays by name and returns a mapping from names to gradients;
    a list of arrays, or a mapping to them from names of their own, counts as their sum (the buffers
    of a tied weight), and None says that there is no gradient. Beside parameters it may name other
    values of the program: their cotangents. `loss(params, inputs)` returns a number.
    `stage(stage)` is the implementation of one stage's VJP, or None; it takes `(stage, cts,
    values)` and returns one gradient per value that the stage reads. Any of them may raise
    `Unsupported`.
    """

    gradients: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None = None
    loss: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = None
    stage: Callable[[Stage], StageVjp | None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRule:
    """An implementation of one update rule.

    `update(params, grads, state, t, **attrs)` returns (tensors, state), dicts by name; or it works
    in place and returns None. `init(params)` is the state before step 1, a dict from slots to
    dicts; None: the reference's.
    """

    update: Callable[..., Any]
    init: Callable[..., Any] | None
    attrs: Attrs


AnyBound = Bound | BoundModel | BoundRule


class Binding(Protocol):
    """An implementation that can be asked for each case of a suite."""

    @property
    def name(self) -> str:
        """What `--impl` calls it."""

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The implementation of `case`, or None if it says nothing about the operator.

        Raises:
            Unsupported: it declares that it lacks the operator or an attribute's value.
        """


class ModelBinding(Protocol):
    """An implementation that can be asked for each model of a suite."""

    @property
    def name(self) -> str:
        """What `--impl` calls it."""

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """The implementation of a model, or None if it says nothing about it.

        Raises:
            Unsupported: it declares that it lacks the model, or a dimension's value.
        """


class RuleBinding(Protocol):
    """An implementation that can be asked for each update rule of a suite."""

    @property
    def name(self) -> str:
        """What `--impl` calls it."""

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule | None:
        """The implementation of a rule, or None if it says nothing about it.

        Raises:
            Unsupported: it declares that it lacks the rule, or a hyper-parameter's value.
        """


class Implementation(Binding, ModelBinding, RuleBinding, Protocol):
    """What `--impl` names: it can be asked for operators, for models and for update rules."""


def bind(binding: Implementation, case: AnyCase, dtype: str) -> AnyBound | None:
    """The implementation of a case of any kind, or None if there is none.

    Raises:
        Unsupported: it declares that it lacks the operator, model or rule, or an attribute's value.
    """
    of_kind: dict[Kind, Callable[[Any, str], AnyBound | None]] = {
        Kind.OPERATOR: binding.bind,
        Kind.MODEL: binding.bind_model,
        Kind.RULE: binding.bind_rule,
    }
    return of_kind[case.kind](case, dtype)


class OperatorsOnly:
    """Base of implementations without models and update rules."""

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """None: it has no models."""
        return None

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule | None:
        """None: it has no update rules."""
        return None


@runtime_checkable
class LaidOut(Protocol):
    """An implementation whose calls follow from a manifest, and can be planned without a call."""

    def smoke(self, cases: Sequence[Case], dtypes: Sequence[str]) -> Sequence[str]:
        """Mistakes in the manifest that concern these cases."""

    def exchanged(self, cases: Sequence[Case], dtypes: Sequence[str]) -> Sequence[str]:
        """Swapped sizes, found by calls; only of cases that can be laid out."""


@runtime_checkable
class Closing(Protocol):
    """An implementation that runs in processes of its own."""

    def close(self) -> None:
        """End them."""

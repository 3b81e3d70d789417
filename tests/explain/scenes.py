"""Scenes for tests of rules: an operator of the suite with a wrong VJP, asked at its samples."""

import gradcheck_cases
import numpy as np

from gradcheck.arithmetic import FLOATS
from gradcheck.explain.diagnose import diagnose
from gradcheck.explain.interrogate import Interrogation
from gradcheck.explain.rules.table import RULES
from gradcheck.explain.suspicion import Scene
from gradcheck.power.attack import Wrong
from gradcheck.spec import as_tuple


def right(op, ct, *primals, **attrs):
    """The right gradients, in the dtype of the first floating primal."""
    dtype = next(p.dtype.name for p in primals if p.dtype.kind == "f")
    vjp = gradcheck_cases.SUITE.operators[op].vjp
    return as_tuple(vjp(FLOATS[dtype], ct, *primals, **attrs))


def changed(op, **by_name):
    """A VJP whose gradients of some primals are changed: `name=function(gradient)`."""
    spec = gradcheck_cases.SUITE.operators[op]

    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        for name, change in by_name.items():
            at = spec.primals.index(name)
            found[at] = np.asarray(change(found[at])).astype(found[at].dtype)
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


def spoiled(op, output, change):
    """A VJP of which one gradient is `change(gradient, ct, primals by name, attributes)`."""
    spec = gradcheck_cases.SUITE.operators[op]
    at = spec.primals.index(output)

    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        named = dict(zip(spec.primals, primals, strict=False))
        with np.errstate(all="ignore"):
            wrong = np.asarray(change(found[at], ct, named, attrs))
        found[at] = wrong.astype(found[at].dtype)
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


def reading_cotangent(op, edit):
    """The right VJP of another cotangent: `edit(ct, primals)`."""

    def vjp(ct, *primals, **attrs):
        found = right(op, edit(ct, *primals), *primals, **attrs)
        return found[0] if len(found) == 1 else found

    return vjp


def probes(op, vjp, *, dialect="", sample="", dtype="float64"):
    """What `vjp(ct, *primals, **attrs)` returns wherever the operator's diagnosis asks it."""
    spec = gradcheck_cases.SUITE.operators[op]
    case = gradcheck_cases.SUITE.cases(
        [op], [dialect or spec.dialects[0].name], [sample or spec.samples[0].name]
    )[0]
    return Interrogation(Wrong(vjp), dtype).probes(case)


def scene(op, vjp, output, **where):
    """The scene that rules look at."""
    found = probes(op, vjp, **where)
    failing = [probe for probe in found if probe.fails(output)]
    assert failing, "the VJP is right: there is nothing to diagnose"
    return Scene(output, failing, [probe for probe in found if not probe.fails(output)])


def named(op, vjp, output, rules=RULES, **where):
    """The diagnosis of a wrong gradient by all rules, or by some."""
    found = diagnose(output, probes(op, vjp, **where), rules)
    assert found is not None, "the VJP is right: there is nothing to diagnose"
    return found


def only(name):
    """The one rule of the table called `name`."""
    (rule,) = [rule for rule in RULES if rule.name == name]
    return (rule,)
